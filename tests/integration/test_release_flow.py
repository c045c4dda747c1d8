"""The release flow under a real Prefect server: the ledger decides each step, whatever the server says."""

import asyncio
import errno
import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import TaskRunSort
from prefect.exceptions import ParameterTypeError, Pause, PrefectHTTPStatusError, SignatureMismatchError
from prefect.flow_engine import run_flow
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Crashed, Pending, Running, Suspended

import flows.releases.next_step as next_step_module
from flows.orchestration import deploy, release_flow
from flows.orchestration.reconciliation import request_of, review_flow_runs
from flows.orchestration.release_flow import EXECUTE_TAG, StepFailed, execute_release, publish_and_deliver, release
from flows.orchestration.worker import require_runnable, serve_pool
from flows.orchestration.worker_settings import DESTINATION_VARIABLE
from flows.releases.publish import publish_release
from models_db.services.audit import chain
from models_db.values.amounts import Amount
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.object_storage.address import Address, Place
from tasks.object_storage.errors import StoreDenied, store_unreachable
from tasks.publishing.bundle import destination_unusable
from tests.faults import temporary
from tests.integration.canary import PRIVATE_TEXT, leaks, text_of
from tests.integration.killing import balance, killed
from tests.integration.prefect_rows import prefect_rows
from tests.integration.story import Almoner
from tests.refusals import refusal
from tests.support import fetch

pytestmark = pytest.mark.slow  # a Prefect server
CONCERNS = ("flows/orchestration", "flows/releases")


@pytest.fixture
def pool(almoner: Almoner, prefect_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A work pool on the server, and the environment of a machine that serves it."""
    monkeypatch.setenv(DESTINATION_VARIABLE, str(almoner.folder / "out"))
    name = f"pool-{uuid4()}"  # the server outlives a test, and so would the runs that the test leaves there
    deploy.deploy(name, limit=2)
    return name


def carried(run: UUID) -> str:
    """Carry a flow run as far as it goes now, as its worker's process does; its state afterwards."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Pending(), force=True)
        with suppress(Pause, StepFailed):
            run_flow(release, flow_run=client.read_flow_run(run))
    return state_of(run)


def state_of(run: UUID) -> str:
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
    assert state is not None
    return str(state.name)


def reviewed(almoner: Almoner, pool: str) -> None:
    async def review() -> None:
        async with get_client() as client:
            await review_flow_runs(client, pool, "a worker", (), almoner.home)

    asyncio.run(review())


def marked(run: UUID, state: State[Any], holder: str = "") -> None:
    """Say of a run what a server says of one that somebody has cancelled, or whose machine is gone."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(run, infrastructure_pid=holder or None)
        client.set_flow_run_state(run, state, force=True)


def resumed(run: UUID) -> None:
    """As the button on Prefect's page does."""
    with get_client(sync_client=True) as client:
        client.resume_flow_run(run)


def tags_of(run: UUID) -> dict[str, list[str]]:
    """The tags of each task run of a flow run, which Prefect's limits count."""
    with get_client(sync_client=True) as client:
        this = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
        found = client.read_task_runs(flow_run_filter=this, sort=TaskRunSort.ID_DESC, limit=200)
    return {each.name: each.tags for each in found}


def ledger_of(almoner: Almoner) -> str:
    with almoner.database.read() as session:
        return chain.ledger_id(session)


def test_a_release_flow_waits_for_the_ledger(almoner: Almoner, pool: str, prefect_home: Path) -> None:
    almoner.submitted()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    before = almoner.everything()
    assert carried(run) == "Suspended"
    reviewed(almoner, pool)
    assert state_of(run) == "Suspended"
    resumed(run)
    assert carried(run) == "Suspended"  # nobody has approved it
    assert almoner.everything() == before

    almoner.type('approve 1 --gate spend --reason "a first look"')
    reviewed(almoner, pool)
    assert state_of(run) == "Resuming"
    assert carried(run) == "Suspended"
    assert almoner.state() == "produced"
    assert (almoner.home.root / "reports" / "1-steward.html").exists()
    assert EXECUTE_TAG in tags_of(run)["execute"]
    resumed(run)
    assert carried(run) == "Suspended"
    assert not almoner.bundle.exists()

    almoner.type('approve 1 --gate publish --reason "names nobody"')
    reviewed(almoner, pool)
    assert carried(run) == "Completed"
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    resumed_again = carried(run)  # a finished run that somebody begins anew
    assert resumed_again == "Completed"
    assert fetch(almoner.database, "SELECT count(*) FROM delivery") == [(1,)]
    almoner.type("doctor")

    rows = prefect_rows(prefect_home)
    (flow_run,) = [row for row in rows["flow_run"] if row["id"].replace("-", "") == run.hex]
    assert json.loads(flow_run["parameters"]) == {"request": 1, "ledger": ledger_of(almoner)}
    kept = text_of(prefect_home)
    assert leaks(kept) == []
    for line in (almoner.bundle / "texts.jsonl").read_text().splitlines():
        assert json.dumps(json.loads(line)["text"])[1:-1] not in kept


def test_a_step_that_pays_is_not_retried_and_its_error_has_a_name_only(
    almoner: Almoner, pool: str, prefect_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    almoner.approved()
    calls = []

    def fail(self: InvisibleInkRule, session: Any) -> None:
        calls.append(1)
        raise ValueError(PRIVATE_TEXT)

    monkeypatch.setattr(InvisibleInkRule, "next_tokens", fail)
    run = UUID(almoner.ask("release start 1")["flow_run"])
    assert carried(run) == "Failed"
    assert len(calls) == 1
    assert almoner.state() == "approved"
    kept = text_of(prefect_home)
    assert "StepFailed: TaskFailed" in kept
    assert leaks(kept) == []
    assert leaks(capfd.readouterr().err) == []


STORE = Address("releases")
PASSING = [store_unreachable(STORE, "no answer"), destination_unusable(Path("out"), temporary()), temporary()]
LASTING = [StoreDenied(STORE, "no"), destination_unusable(Path("out"), OSError(errno.ENOSPC, "full")), ValueError()]


@pytest.mark.parametrize("fault", [*PASSING, *LASTING], ids=repr)
def test_publishing_is_retried_after_faults_that_may_pass_alone(
    almoner: Almoner, pool: str, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The same ones after which a metric is: `tasks.common.faults` judges both."""
    almoner.passed()
    calls = []

    def fail_twice(home: Path, request: int, place: Place) -> object:
        calls.append(place)
        if len(calls) < 3:
            raise fault
        return publish_release(home, request, place)

    monkeypatch.setattr("flows.releases.publish.publish_release", fail_twice)
    monkeypatch.setattr(release_flow, "publish_and_deliver", publish_and_deliver.with_options(retry_delay_seconds=0))
    run = UUID(almoner.ask("release start 1")["flow_run"])
    assert (carried(run), len(calls)) == (("Completed", 3) if fault in PASSING else ("Failed", 1))
    assert fetch(almoner.database, "SELECT count(*) FROM publication") == [(int(fault in PASSING),)]


def rerun(step: Any) -> None:
    """Call a task of the release flow for request 1, in a flow run of its own."""

    def call() -> None:
        step(1)

    flow(name="rerun", retries=0, persist_result=False, log_prints=False)(call)()


@pytest.mark.parametrize("stage", ["submitted", "produced"])
def test_a_task_that_is_called_at_a_closed_gate_does_nothing(
    almoner: Almoner, pool: str, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """A task that somebody runs again, or first, asks the ledger like any other."""
    getattr(almoner, stage)()
    monkeypatch.setenv(DESTINATION_VARIABLE, str(almoner.folder / "out"))
    before = almoner.everything()
    for step in (execute_release, publish_and_deliver):
        with pytest.raises(StepFailed):
            rerun(step)
    assert almoner.everything() == before
    assert not (almoner.folder / "out").exists()


def test_a_refusal_is_not_retried(almoner: Almoner, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.passed()
    (draft,) = almoner.home.quarantine.iterdir()
    (draft / "texts.jsonl").write_text("{}\n")
    run = UUID(almoner.ask("release start 1")["flow_run"])
    assert carried(run) == "Failed"
    assert almoner.state() == "produced"


@pytest.mark.parametrize("end", ["reject 1 --gate spend", "release withdraw 1"])
def test_a_release_that_stewards_end_ends_its_flow(almoner: Almoner, pool: str, end: str) -> None:
    almoner.submitted()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    assert carried(run) == "Suspended"
    almoner.type(f'{end} --reason "not this one"')
    reviewed(almoner, pool)
    assert carried(run) == "Completed"
    assert fetch(almoner.database, "SELECT count(*) FROM hold") == [(0,)]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"request": 1}, {"request": "1; rm", "ledger": ""}, {"request": 1, "ledger": "", "home": "/elsewhere"}],
)
def test_forged_parameters_begin_nothing(almoner: Almoner, pool: str, parameters: dict[str, Any]) -> None:
    """Whatever the server lets through, neither the engine nor the worker does."""
    almoner.approved()
    before = almoner.everything()
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(release, parameters=parameters)
        client.set_flow_run_state(run.id, Pending(), force=True)
        with pytest.raises((ParameterTypeError, SignatureMismatchError, TypeError)):
            run_flow(release, flow_run=client.read_flow_run(run.id))
    with refusal("ParametersUnfit"):
        require_runnable("release", parameters)
    assert almoner.everything() == before


def test_a_request_that_the_ledger_does_not_know(almoner: Almoner, pool: str) -> None:
    almoner.submitted()
    assert almoner.ask("release start 7", expected=2)["error"] == "RequestUnknown"
    assert carried(deploy.start_release(7, ledger_of(almoner), "default")) == "Failed"


def test_a_request_of_another_ledger_is_not_touched(almoner: Almoner, pool: str) -> None:
    """Two teams share a server and, by mistake, a pool: their requests have the same numbers."""
    almoner.approved()
    before = almoner.everything()
    run = deploy.start_release(1, "0" * 64, "default")
    marked(run, Suspended())
    reviewed(almoner, pool)
    assert state_of(run) == "Suspended"
    assert carried(run) == "Failed"
    assert almoner.everything() == before


@pytest.mark.parametrize("number", [0, -1, 10**30, True, "1", None])
def test_numbers_that_no_request_has_stop_no_review(almoner: Almoner, pool: str, number: object) -> None:
    almoner.submitted()
    run = FlowRun(flow_id=uuid4(), parameters={"request": number, "ledger": ledger_of(almoner)}, state=Suspended())
    assert request_of(run, ledger_of(almoner)) is None


def test_a_run_whose_machine_is_gone_is_begun_anew(almoner: Almoner, pool: str) -> None:
    almoner.submitted()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    for state in (Running(), Pending(), Crashed()):
        marked(run, state, "a machine that is gone:17")
        reviewed(almoner, pool)
        assert state_of(run) == "AwaitingRetry"
    by_hand = UUID(almoner.ask("release start 1")["flow_run"])
    marked(by_hand, Running())  # no worker holds it
    reviewed(almoner, pool)
    assert state_of(by_hand) == "Running"


def test_a_run_that_is_cancelled_gives_back_what_it_held(almoner: Almoner, pool: str) -> None:
    almoner.approved()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    killed("run 1", "mid generation")
    assert almoner.state() == "running"
    marked(run, Cancelling(), "a machine that is gone:17")
    reviewed(almoner, pool)
    assert state_of(run) == "Cancelled"
    assert almoner.state() == "approved"
    assert balance(almoner).held == Amount()


def test_a_request_that_another_process_runs_is_waited_for(
    almoner: Almoner, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved()
    run = UUID(almoner.ask("release start 1")["flow_run"])
    killed("run 1", "mid generation")
    monkeypatch.setattr(next_step_module, "is_dead", lambda lease: False)
    assert carried(run) == "Suspended"
    reviewed(almoner, pool)
    assert state_of(run) == "Suspended"
    monkeypatch.undo()


def test_a_deployment_is_made_anew_each_time(almoner: Almoner, pool: str) -> None:
    assert almoner.ask(f"deploy --pool {pool} --limit 3")["queues"] == ["urgent", "default", "background"]
    with get_client(sync_client=True) as client:
        made = client.read_work_pool(pool)
        assert (made.type, made.concurrency_limit) == ("almoner", 3)
        assert made.base_job_template["variables"]["properties"] == {}
        queues = [client.read_work_queue_by_name(name, work_pool_name=pool) for name in deploy.QUEUES]
        assert {queue.name: queue.priority for queue in queues} == {"urgent": 1, "default": 2, "background": 3}
        assert client.read_deployment_by_name("release/almoner").enforce_parameter_schema is True


def test_its_project_file_names_what_can_be_imported(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.type(f"deploy --write {almoner.folder / 'prefect.yaml'} --pool kubernetes")
    written = yaml.safe_load((almoner.folder / "prefect.yaml").read_text())
    for each in written["deployments"]:
        assert load_flow_from_entrypoint(each["entrypoint"]).name in release_flow.FLOWS
        assert each["work_pool"]["name"] == "kubernetes"
    told = almoner.ask(f"deploy --write {almoner.folder / 'prefect.yaml'}", expected=2)
    assert told["error"] == "FileUnwritable"


def test_a_worker_that_could_do_nothing_does_not_start(almoner: Almoner, pool: str) -> None:
    almoner.registered()
    assert almoner.ask("worker --to out --pool missing", expected=3)["error"] == "PoolMissing"
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="foreign", type="process"))
    assert almoner.ask("worker --to out --pool foreign", expected=3)["facts"]["type"] == "process"
    with temporary_settings({PREFECT_API_URL: None}):
        assert almoner.ask("worker --to out", expected=3)["error"] == "PrefectNotConfigured"
        assert almoner.ask("deploy", expected=3)["error"] == "PrefectNotConfigured"


def test_a_worker_needs_a_runner(almoner: Almoner, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.registered()
    monkeypatch.setattr("flows.orchestration.worker.people.roles_of", lambda *_: frozenset({"analyst"}))
    assert almoner.ask(f"worker --to out --pool {pool}", expected=1)["error"] == "RunnerRoleMissing"


def test_a_worker_runs_no_other_flow(almoner: Almoner, pool: str) -> None:
    """Somebody who reaches the server adds a deployment of their own code to the pool."""
    almoner.registered()
    ran = []

    @flow(name="foreign")
    def foreign() -> None:
        ran.append(1)

    with get_client(sync_client=True) as client:
        identifier = client.create_flow(foreign)
        job = {"command": f"touch {almoner.folder / 'ran'}"}
        place = {"flow_id": identifier, "entrypoint": "os.abort", "work_pool_name": pool}
        with pytest.raises(PrefectHTTPStatusError):
            client.create_deployment(name="foreign", job_variables=job, **place)
        deployment = client.create_deployment(name="foreign", **place)
        run = client.create_flow_run_from_deployment(deployment)
    serve_pool(almoner.home, pool, str(almoner.folder / "out"), limit=9, once=True)
    assert state_of(run.id) == "Crashed"
    assert ran == []
    assert not (almoner.folder / "ran").exists()
