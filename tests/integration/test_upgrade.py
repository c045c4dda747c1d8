"""A ledger in use gets a further revision: all that it holds stays; an upgrade that is interrupted changes nothing."""

import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest
from sqlalchemy import MetaData, event, text

from migrations.schema_inventory import SchemaItem, schema_differences, schema_items
from migrations.upgrade import upgrade
from models_db.services import artifacts
from models_db.services.audit import verify_chain
from models_db.services.audit.verify_chain import ChainAnchor
from models_db.services.queries import health
from models_db.sessions.database import Database
from tests.conftest import Ledgers
from tests.integration import upgrade_driver
from tests.integration.story import Almoner
from tests.refusals import refusal
from tests.support import PATIENCE, World, execute, fetch

CONCERNS = ("migrations",)

Rows = dict[str, list[tuple[object, ...]]]
SECOND = """op.create_table("remark", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("text", sa.Text()))
    op.create_index("ix_entry_kind", "entry", ["kind"])
    guard = "DROP TRIGGER approval_separate"
    if op.get_bind().dialect.name == "sqlite":
        made = op.get_bind().scalar(sa.text("SELECT sql FROM sqlite_master WHERE name = 'approval_separate'"))
        op.execute(sa.text(guard))
        op.get_bind().exec_driver_sql(made.replace("nobody approves", "nobody ever approves"))
    else:
        op.execute(sa.text("ALTER FUNCTION approval_is_sound() SET work_mem = '8MB'"))
"""
"""A revision as one may come: it adds a table and an index, and makes a guard anew."""


@pytest.fixture
def used(backend: str, ledgers: Ledgers) -> Iterator[World]:
    """A ledger in use, with a release published, one under way, and one that waits."""
    with ledgers.new(backend) as made:
        world = World.create(made)
        world.dataset()
        world.published()
        world.running()
        world.produced("clinic")
        yield world


@pytest.fixture
def old(used: World) -> Database:
    """Its database."""
    return used.database


@pytest.fixture
def revision(revise: Callable[..., Path]) -> Path:
    """The folder with the further revision, of which the installation knows."""
    return revise(SECOND)


def rows(database: Database, known: MetaData | None = None) -> tuple[Rows, MetaData]:
    """Every row of every table that is `known`."""
    with database.engine.connect() as connection:
        if known is None:
            known = MetaData()
            known.reflect(connection)
        found = {
            table.name: sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
            for table in known.sorted_tables
        }
        connection.rollback()
    return found, known


def whole(database: Database) -> tuple[frozenset[SchemaItem], Rows]:
    """The schema and all rows, to compare before and after a refusal."""
    with database.engine.connect() as connection:
        items = schema_items(connection)
        connection.rollback()
    return items, rows(database)[0]


def is_sound(database: Database) -> None:
    """What the doctor looks at."""
    with database.read() as session:
        assert [each for each in health.check_health(session) if not each.ok] == []
        assert schema_differences(session.connection()) == []


@pytest.mark.slow_except("sqlite")
def test_every_row_is_kept(old: Database, revision: Path) -> None:
    before, known = rows(old)
    upgrade(old)
    after, _ = rows(old, known)
    assert (before.pop("alembic_version"), after.pop("alembic_version")) == ([("0001",)], [("0002",)])
    assert after == before
    assert fetch(old, "SELECT count(*) FROM remark") == [(0,)]
    is_sound(old)
    again = whole(old)
    upgrade(old)
    assert whole(old) == again


@pytest.mark.slow_except("sqlite")
def test_work_goes_on(used: World, old: Database, revision: Path) -> None:
    """The chain goes on behind a head that was kept before, and a request from before is published."""
    [(seq, head)] = fetch(old, "SELECT seq, hash FROM audit_head")
    upgrade(old)
    [(number,)] = fetch(old, "SELECT request_id FROM transition WHERE to_state = 'produced' ORDER BY id DESC LIMIT 1")
    used.decide(int(str(number)), "publish")
    with old.write() as session:
        artifacts.record_publication(session, used.runner, int(str(number)))
    with old.read() as session:
        found = verify_chain.verify_chain(session, [ChainAnchor(str(head), "k", int(str(seq)))])
    assert found.holds
    assert [each.verdict for each in found.placements] == ["on the chain"]
    is_sound(old)


DAMAGES = {
    "a guard that is made anew": "DROP TRIGGER approval_separate",
    "a guard that stays": "DROP TRIGGER approval_no_update",
    "an index": "DROP INDEX ix_approval_request_id",
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_not_upgraded(old: Database, revision: Path, backend: str, damage: str) -> None:
    statement = DAMAGES[damage]
    if backend == "postgresql":  # where the guards of new rows are one trigger
        statement = statement.replace("approval_separate", "approval_is_sound")
    execute(old, statement + (" ON approval" if backend == "postgresql" and "TRIGGER" in statement else ""))
    before = whole(old)
    with refusal("SchemaDiffers", match=f"{statement.split()[-1]} on approval is missing"):
        upgrade(old)
    assert whole(old) == before


HARMLESS = {
    "sqlite": (
        "DROP TRIGGER approval_separate",
        "CREATE TRIGGER approval_separate BEFORE INSERT ON approval WHEN FALSE BEGIN SELECT RAISE(ABORT, 'no'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION approval_is_sound() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ),
}


@pytest.mark.slow_except("sqlite")
def test_a_harmless_guard_under_the_right_name_is_not_healed_unseen(
    old: Database, revision: Path, backend: str
) -> None:
    """The revision makes this guard anew: without a look before the upgrade nobody would know of the damage."""
    execute(old, *HARMLESS[backend])
    before = whole(old)
    with refusal("SchemaDiffers", match=r"trigger approval_(separate|is_sound) on approval is altered"):
        upgrade(old)
    assert whole(old) == before


@pytest.mark.parametrize("backend", ["sqlite"])
def test_rows_that_point_nowhere_are_not_upgraded(old: Database, revision: Path) -> None:
    """SQLite checks foreign keys where a connection asks for it; PostgreSQL always does."""
    with closing(sqlite3.connect(old.engine.url.database or "")) as careless, careless:
        careless.execute("INSERT INTO lease VALUES (999, 1, 't', 'o', '2027-01-01T00:00:00.000000Z')")
    before = whole(old)
    with refusal("SchemaDiffers", match="rows of lease point nowhere"):
        upgrade(old)
    assert whole(old) == before


def statements_of_an_upgrade(database: Database) -> int:
    """How many there are; a child process that upgrades a copy issues as many."""
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    event.listen(database.engine, "before_cursor_execute", count)
    upgrade(database)
    event.remove(database.engine, "before_cursor_execute", count)
    return seen


def killed(database: Database, revision: Path, statement: int | None) -> None:
    """An upgrade in another process, which dies there."""
    database.dispose()
    context = get_context("forkserver")
    context.set_forkserver_preload([upgrade_driver.__name__])
    process = context.Process(target=upgrade_driver.upgrade_and_die, args=(database.url, revision, statement))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_upgrade_leaves_the_old_ledger(old: Database, revision: Path, backend: str, ledgers: Ledgers) -> None:
    before = whole(old)
    with ledgers.new(backend, like=old) as copy:
        total = statements_of_an_upgrade(copy)
    for part in (1, total // 8, total // 4, total // 2, 3 * total // 4, total, 0):
        killed(old, revision, part)
        assert whole(old) == before, part
        with old.engine.connect() as connection:
            assert schema_differences(connection, "0001") == []
            connection.rollback()
    killed(old, revision, None)
    is_sound(old)
    assert fetch(old, "SELECT version_num FROM alembic_version") == [("0002",)]


@pytest.mark.slow_except("sqlite")
def test_two_upgrades_at_once(old: Database, revision: Path) -> None:
    others = [Database(old.url) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, [old, *others]))
    for other in others:
        other.dispose()
    is_sound(old)


def test_init_upgrades_a_home_and_keeps_everything(any_almoner: Almoner, revise: Callable[..., Path]) -> None:
    """Until then `doctor` says that the ledger is of another version."""
    any_almoner.type("init")
    any_almoner.type("dataset register surgery --unit patient_id --epsilon 8 --delta 1e-6")
    before, known = rows(any_almoner.database)
    files = {path: path.read_bytes() for path in any_almoner.home.root.rglob("*") if is_kept(path)}
    revise(SECOND)
    structure = [each for each in any_almoner.ask("doctor", expected=3)["findings"] if not each["ok"]]
    assert "table remark is missing" in str(structure)
    any_almoner.type("init")
    after, _ = rows(any_almoner.database, known)
    assert (before.pop("alembic_version"), after.pop("alembic_version")) == ([("0001",)], [("0002",)])
    assert after == before
    assert {path: path.read_bytes() for path in files} == files
    assert any_almoner.ask("doctor")["ok"] is True
    assert any_almoner.ask("audit verify")["holds"] is True


def is_kept(path: Path) -> bool:
    """A file of the home beside its ledger."""
    return path.is_file() and not path.name.startswith("almoner.db")


def test_a_ledger_of_a_newer_almoner_is_left_alone(any_almoner: Almoner) -> None:
    any_almoner.type("init")
    with any_almoner.connection() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = whole(any_almoner.database)
    told = any_almoner.ask("init", expected=3)
    assert told["error"] in ("SchemaUnknown", "SchemaOutdated")
    assert whole(any_almoner.database) == before
