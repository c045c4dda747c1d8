"""Project homes on both backends, worked by a tiny model."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest
import spacy.util
import torch
import typer.testing

import cli.command_table
import flows.audit.health
import flows.workspace.yaml_files
import migrations.schema_inventory
import models_db.sessions.database
from migrations import schema_inventory
from tasks.accounting import dp_accounting_check
from tests import tiny_embedder, tiny_model
from tests.conftest import SCHEMAS_ONCE, PostgreSQL
from tests.integration.prefect_rows import Rows, prefect_rows
from tests.integration.story import Almoner, Served
from tests.integration.team import Team, gathered
from tests.second_accountant import plan_report_once

WATCHED = {"caplog", "capsys", "capfd", "prefect_home"}
"""Who uses one of these looks at how a stage is reached, not only at what it leaves."""


def _parse_yaml_once() -> Callable[[str], object]:
    """The document in a text, parsed once."""
    parsed = cache(flows.workspace.yaml_files.parse_yaml)
    return lambda text: deepcopy(parsed(text))


ASKED_ONCE: list[tuple[Any, str, Callable[..., Any]]] = [
    (typer.testing, "_get_command", cache(typer.testing._get_command)),
    (flows.audit.health, "packages_distributions", cache(flows.audit.health.packages_distributions)),
    (dp_accounting_check, "plan_report", plan_report_once()),
    (spacy.util, "load_model_from_path", cache(spacy.util.load_model_from_path)),
    (flows.workspace.yaml_files, "parse_yaml", _parse_yaml_once()),
    (cli.command_table.ListedCommand, "load", cache(cli.command_table.ListedCommand.load)),
    *SCHEMAS_ONCE,
]
"""What commands ask of the installation, or compute from the same values, whose answer is always the same."""


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Homes at the stages of the story."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture
def own_connections() -> None:
    """Requested by tests that overwrite a ledger's file: each command opens it anew, as in a process of its own."""


class NewestEngine:
    """Engine of the SQLite file that was opened last, shared by all who open it, so that the schema is read once.

    A test types a dozen commands in one process; each would read 400 triggers and copy the log back at its end.
    """

    def __init__(self, create: Callable[[str], Any]) -> None:
        self.create = create
        self.url, self.engine, self.dispose = "", None, lambda: None

    def __call__(self, url: str) -> Any:
        if url != self.url:
            self.dispose()
            self.url, self.engine = url, self.create(url)
            self.dispose, self.engine.dispose = self.engine.dispose, lambda: None
        return self.engine


@pytest.fixture
def real_almoner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Almoner]:
    """A home that `almoner init` has not made yet, with the models of this machine."""
    made = Almoner(tmp_path)
    for room, name, answered in ASKED_ONCE:
        monkeypatch.setattr(room, name, answered)
    newest = NewestEngine(models_db.sessions.database._sqlite_engine)
    if "own_connections" not in request.fixturenames:
        monkeypatch.setattr(models_db.sessions.database, "_sqlite_engine", newest)
    monkeypatch.setenv("ALMONER_HOME", str(made.home.root))
    # On a busy machine two threads spend their time waiting for each other: 154 s instead of 8 were measured.
    monkeypatch.setenv("ALMONER_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield made
    newest.dispose()
    torch.set_num_threads(threads)


@pytest.fixture
def almoner(
    real_almoner: Almoner, shelf: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Almoner:
    """The same with a tiny model and a tiny embedder, its ledger on SQLite."""
    tiny_model.install(monkeypatch)
    tiny_embedder.install(monkeypatch)
    return replace(real_almoner, shelf=None if WATCHED & set(request.fixturenames) else shelf)


@pytest.fixture
def team_almoner(almoner: Almoner, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Almoner]:
    """The same with its ledger on PostgreSQL."""
    served = Served(postgresql, "story")  # always: a database's name is in the names of its groups
    database = postgresql.create(served.name)
    monkeypatch.setenv("ALMONER_DATABASE_URL", database.url)
    yield replace(almoner, served=served)
    postgresql.drop(database)


@pytest.fixture
def any_almoner(backend: str, request: pytest.FixtureRequest) -> Almoner:
    """Once on each backend."""
    made = request.getfixturevalue({"sqlite": "almoner", "postgresql": "team_almoner"}[backend])
    assert isinstance(made, Almoner)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On PostgreSQL a whole story is a slow test; the ledger's contracts run on both backends each time."""
    for item in items:
        on_both = isinstance(item, pytest.Function) and "any_almoner" in item.fixturenames
        if on_both and item.callspec.params.get("backend") == "postgresql":
            item.add_marker(pytest.mark.slow)


CHANGES = """
import sqlalchemy as sa
from alembic import op

revision = "{number}"
down_revision = "{after}"
gives_up = {gives_up}


def upgrade():
    {change}
"""


@pytest.fixture
def revise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Adds a revision that lives for this test only; the reference of the self-check is made anew."""
    for name in ("_items_of_memory_ledger", "_items_of_scratch_schema"):
        monkeypatch.setattr(schema_inventory, name, unwrap(getattr(schema_inventory, name)))
    folder = tmp_path / "revisions"
    folder.mkdir()
    folders = migrations.schema_inventory.VERSION_FOLDERS
    monkeypatch.setattr(migrations.schema_inventory, "VERSION_FOLDERS", [*folders, folder])

    def add(change: str, gives_up: tuple[str, ...] = ()) -> Path:
        after = migrations.schema_inventory.newest_revision()
        number = f"{int(after) + 1:04}"
        text = CHANGES.format(number=number, after=after, change=change, gives_up=gives_up)
        (folder / f"{number}.py").write_text(text)
        return folder

    return add


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Prefect server of this run's own; everything it keeps is below this folder."""
    from prefect.settings import PREFECT_HOME, PREFECT_LOCAL_STORAGE_PATH, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    home = tmp_path_factory.mktemp("prefect")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefect.testing.utilities.mkdtemp", lambda: str(home / "server"))
        (home / "server").mkdir()
        with (
            temporary_settings({PREFECT_HOME: home, PREFECT_LOCAL_STORAGE_PATH: home / "storage"}),
            prefect_test_harness(server_startup_timeout=180),
        ):
            yield home


@pytest.fixture
def new_rows(prefect_home: Path) -> Callable[[], Rows]:
    """Reads the rows of Prefect's database that were not there before the test: other tests left runs of theirs."""
    earlier = {table: {row["id"] for row in rows if "id" in row} for table, rows in prefect_rows(prefect_home).items()}

    def read() -> Rows:
        found = prefect_rows(prefect_home)
        return {table: [row for row in rows if row.get("id") not in earlier[table]] for table, rows in found.items()}

    return read


@pytest.fixture
def told_server(prefect_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment names the server, as a user's does."""
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    assert url is not None
    monkeypatch.setenv("PREFECT_API_URL", url)
    return prefect_home


@pytest.fixture
def team(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Team:
    """Sue is a steward; anna's request 1 waits at the spend gate; the ledger is on SQLite."""
    return gathered(almoner, monkeypatch)


@pytest.fixture
def any_team(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Team:
    """The same, once on each backend; only the founder has a login."""
    return gathered(any_almoner, monkeypatch)
