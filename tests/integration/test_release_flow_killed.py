"""Everything around a release is killed, one after the other: the ledger's figures are those of a quiet run."""

import gc
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings
from sqlalchemy import text

from models_db.values.amounts import Amount, total_amount
from tests.integration.killing import balance, instalments
from tests.integration.postgresql_cluster import Cluster
from tests.integration.prefect_database import PrefectDatabase
from tests.integration.release_process import BUNDLE, DELIVERY, HOLD_VARIABLE, draws_file, held_file, publishing_hold
from tests.integration.story import Almoner
from tests.support import PATIENCE, fetch, free_port, wait_until

LOST_SERVER = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Prefect's client leaves the connections open that it had to a server which is gone."""
pytestmark = [pytest.mark.slow, LOST_SERVER]


class Machines:
    """A Prefect server and a worker, each a process that can be killed and started again."""

    def __init__(self, almoner: Almoner, folder: Path) -> None:
        self.almoner, self.folder, self.port = almoner, folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.url = f"http://127.0.0.1:{self.port}/api"
        self.database: PrefectDatabase | None = None
        """What Prefect's server keeps its rows in; none is a file in its folder."""
        self.hold = folder / "hold"
        """While this file is there, runs stop drawing, so that what is done to them is done in their middle."""

    def wait_until_held(self) -> None:
        """Wait for a run that has paid and drawn, and is held before its next draw."""
        held_file(self.hold).unlink(missing_ok=True)
        wait_until(held_file(self.hold).exists)

    def environment(self) -> dict[str, str]:
        settings = {
            "PREFECT_HOME": str(self.folder),
            "PREFECT_API_URL": self.url,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_HEARTBEAT_SECONDS": "1",
            HOLD_VARIABLE: str(self.hold),
        }
        if self.database is not None:
            settings["PREFECT_API_DATABASE_CONNECTION_URL"] = self.database.url
        return {**os.environ, **settings}

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], env=self.environment(), stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def start_server(self) -> subprocess.Popen[bytes]:
        server = self.start(
            "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port), "--analytics-off"
        )
        wait_until(self.answers)
        return server

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def delete_database(self) -> None:
        """Lose Prefect's database, with every run that it knew."""
        for file in self.folder.glob("prefect.db*"):
            file.unlink()

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.start("tests.integration.release_worker", "pool", str(self.almoner.folder / "out"))

    def state_of(self, run: UUID) -> str:
        state = self.read(run).state
        assert state is not None
        return str(state.name)

    def starts_of(self, run: UUID) -> int:
        """How often a process has begun it."""
        return int(self.read(run).run_count)

    def read(self, run: UUID) -> FlowRun:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(run)


def kill(process: subprocess.Popen[bytes]) -> None:
    """As a machine that loses its power, or a kernel that is out of memory."""
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)


@pytest.fixture
def postgresql(ledger_folder: Path) -> Iterator[Cluster]:
    """A server that a test may kill, in place of the one that all others share."""
    cluster = Cluster(ledger_folder / f"killed-{secrets.token_hex(3)}")
    yield cluster
    cluster.remove()


@pytest.fixture
def machines(any_almoner: Almoner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(any_almoner, tmp_path_factory.mktemp("server"))
    with temporary_settings({PREFECT_API_URL: made.url}):
        yield made
    for process in made.processes:
        process.kill()
        process.wait(PATIENCE)
    gc.collect()  # here, where the warnings about them are expected
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
def prefect_database(machines: Machines) -> Iterator[PrefectDatabase]:
    """A PostgreSQL of Prefect's own, which the server of the test uses."""
    folder = Path(tempfile.mkdtemp(prefix="almoner-test-prefect-"))
    folder.chmod(0o755)  # PostgreSQL's user passes through it
    machines.database = PrefectDatabase(folder / "rows")
    yield machines.database
    machines.database.remove()
    folder.rmdir()


def armed(almoner: Almoner) -> int:
    """How many instalments were paid."""
    ((paid,),) = fetch(almoner.database, "SELECT count(*) FROM audit WHERE kind = 'ledger.arm'")
    return int(paid)


def attempts(almoner: Almoner) -> int:
    """How often a run of the request was begun."""
    ((begun,),) = fetch(almoner.database, "SELECT count(*) FROM audit WHERE kind = 'run.started'")
    return int(begun)


def cut_sessions(almoner: Almoner) -> None:
    """End every session of the ledger but this one."""
    others = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database()"
    with almoner.connection() as connection:
        connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))


def lose_ledger(cluster: Cluster, machines: Machines, run: UUID) -> None:
    """Kill the ledger's server while a run is held; start it when the run was begun anew without it, and hold it again.

    The run draws what was paid, cannot pay for more, and ends.
    """
    starts = machines.starts_of(run)
    cluster.kill()
    machines.hold.unlink()
    wait_until(lambda: machines.starts_of(run) > starts)
    machines.hold.touch()
    cluster.start()
    machines.wait_until_held()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_everything_is_killed_in_turn(any_almoner: Almoner, machines: Machines) -> None:
    almoner = any_almoner
    almoner.submitted()
    plan = instalments(almoner)
    server = machines.start_server()
    almoner.type("deploy --pool pool")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    worker = machines.start_worker()
    wait_until(lambda: machines.state_of(run) == "Suspended")
    machines.hold.touch()
    almoner.type('approve 1 --gate spend --reason "a first look"')

    machines.wait_until_held()
    assert armed(almoner) >= 1
    kill(worker)  # its process ends with it
    wait_until(lambda: almoner.state() == "approved")
    assert balance(almoner).held == Amount()
    worker = machines.start_worker()
    machines.wait_until_held()
    assert almoner.state() == "running"
    if almoner.served is not None:
        assert isinstance(almoner.served.server, Cluster)
        lose_ledger(almoner.served.server, machines, run)
        assert almoner.state() == "running"
        cut_sessions(almoner)
    kill(server)  # the run goes on without it
    machines.hold.unlink()
    wait_until(lambda: almoner.state() == "produced")
    server = machines.start_server()
    wait_until(lambda: machines.state_of(run) == "Suspended")
    assert balance(almoner).spent == total_amount(plan)

    kill(worker)
    kill(server)
    machines.delete_database()
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    machines.start_server()
    almoner.type("deploy --pool pool")
    runs = [UUID(almoner.ask("release start 1")["flow_run"]) for _ in range(2)]
    machines.start_worker()
    wait_until(lambda: [machines.state_of(each) for each in runs] == ["Completed"] * 2)
    assert draws_file(machines.hold).read_text()
    as_after_a_quiet_run(almoner, machines)


def as_after_a_quiet_run(almoner: Almoner, machines: Machines) -> None:
    """The price is spent once, nothing is held, no draw was made twice; one release is out, and holds."""
    plan = total_amount(instalments(almoner))
    assert (balance(almoner).spent, balance(almoner).held) == (plan, Amount())
    draws = draws_file(machines.hold).read_text().splitlines() if draws_file(machines.hold).exists() else []
    assert len(set(draws)) == len(draws)
    for table in ("publication", "delivery", "artifact"):
        assert fetch(almoner.database, f"SELECT count(*) FROM {table}") == [(1,)]
    assert almoner.ask(f"verify-release {almoner.bundle}")["rho"] == plan.rho_text
    almoner.type("doctor")


@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize("before", [BUNDLE, DELIVERY])
def test_postgresql_is_killed_between_publication_and_delivery(
    any_almoner: Almoner, machines: Machines, before: str
) -> None:
    almoner = any_almoner
    almoner.passed()
    assert almoner.served is not None
    cluster = almoner.served.server
    assert isinstance(cluster, Cluster)
    machines.start_server()
    almoner.type("deploy --pool pool")
    publishing_hold(machines.hold, before).touch()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    machines.start_worker()
    machines.wait_until_held()
    assert fetch(almoner.database, "SELECT count(*) FROM publication") == [(1,)]
    assert fetch(almoner.database, "SELECT count(*) FROM delivery") == [(0,)]
    written = contents(almoner.bundle)
    assert bool(written) == (before == DELIVERY)

    starts = machines.starts_of(run)
    cluster.kill()
    publishing_hold(machines.hold, before).unlink()
    wait_until(lambda: machines.starts_of(run) > starts)  # begun anew, without a ledger
    cluster.start()
    wait_until(lambda: machines.state_of(run) == "Completed")
    as_after_a_quiet_run(almoner, machines)
    assert written.items() <= contents(almoner.bundle).items()
    again = UUID(almoner.ask("release start 1")["flow_run"])
    wait_until(lambda: machines.state_of(again) == "Completed")
    as_after_a_quiet_run(almoner, machines)


def held_amid_generation(almoner: Almoner, machines: Machines) -> tuple[subprocess.Popen[bytes], UUID]:
    """Start a server and a worker with a run that has paid and drawn in part, and is held; the server and the run."""
    almoner.approved()
    server = machines.start_server()
    almoner.type("deploy --pool pool")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    machines.hold.touch()
    machines.start_worker()
    machines.wait_until_held()
    assert 0 < armed(almoner) < len(instalments(almoner))
    return server, run


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a bundle; none where there is no bundle."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_prefects_database_is_lost_while_a_release_is_generated(any_almoner: Almoner, machines: Machines) -> None:
    almoner = any_almoner
    server, lost = held_amid_generation(almoner, machines)

    kill(server)
    machines.delete_database()
    machines.start_server()
    almoner.type("deploy --pool pool")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    machines.start_worker()  # the first one is busy with the run that Prefect has forgotten
    # Where Prefect ends the process of the forgotten run, the new one goes on with what that one has paid for.
    wait_until(lambda: machines.state_of(run) == "Suspended" or attempts(almoner) == 2)
    machines.hold.unlink()
    wait_until(lambda: almoner.state() == "produced")
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    wait_until(lambda: machines.state_of(run) == "Completed")
    with pytest.raises(ObjectNotFound):
        machines.read(lost)
    assert draws_file(machines.hold).read_text()
    as_after_a_quiet_run(almoner, machines)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_prefects_postgresql_is_killed_while_a_release_is_generated(
    any_almoner: Almoner, machines: Machines, prefect_database: PrefectDatabase
) -> None:
    almoner = any_almoner
    _, run = held_amid_generation(almoner, machines)

    prefect_database.kill()
    machines.hold.unlink()
    wait_until(lambda: almoner.state() == "produced")  # the run goes on while nothing can be told
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    prefect_database.start()
    wait_until(lambda: machines.state_of(run) == "Completed")
    as_after_a_quiet_run(almoner, machines)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_run_that_is_cancelled_on_the_page_stops(any_almoner: Almoner, machines: Machines) -> None:
    almoner = any_almoner
    almoner.approved()
    machines.start_server()
    almoner.type("deploy --pool pool")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    machines.hold.touch()
    machines.start_worker()
    wait_until(lambda: armed(almoner) >= 1)
    httpx.post(f"{machines.url}/flow_runs/{run}/set_state", json={"state": {"type": "CANCELLING"}}).raise_for_status()
    wait_until(lambda: machines.state_of(run) == "Cancelled")
    assert almoner.state() == "approved"
    assert balance(almoner).held == Amount()
    assert 0 < armed(almoner) < len(instalments(almoner))
