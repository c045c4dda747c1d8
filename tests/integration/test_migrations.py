"""The migrations build the same ledger on both backends, and what they built is recognised when it is damaged."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_alembic
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pytest_alembic import tests as its_tests
from pytest_alembic.config import Config
from pytest_alembic.runner import MigrationContext as MigrationRunner
from sqlalchemy import Connection, text

import migrations.schema_inventory
import migrations.upgrade as upgrading
from migrations.schema_inventory import SchemaItem, compare_items, expected_items, schema_differences, schema_items
from migrations.upgrade import upgrade
from models_db.database.base import Base
from models_db.sessions.database import Database, LedgerUnreachable
from tests.refusals import refusal
from tests.support import World, execute, fetch, snapshot

CONCERNS = ("migrations",)


def found_after(database: Database, *statements: str) -> list[str]:
    """The differences that some DDL makes; the DDL is rolled back."""
    with database.engine.connect() as connection:
        wanted = expected_items(connection)
        for statement in statements:
            connection.execute(text(statement))
        found = compare_items(schema_items(connection), wanted)
        connection.rollback()
    return found


def test_a_fresh_ledger_is_as_the_migrations_make_it(database: Database) -> None:
    with database.read() as session:
        assert schema_differences(session.connection()) == []


ROOT = Path(__file__).resolve().parents[2]
DIGEST_OF_TABLES = """
import hashlib
from sqlalchemy.schema import CreateTable
from migrations.schema.tables import ledger_tables
made = "".join(str(CreateTable(table)) for table in ledger_tables())
print(hashlib.sha256(made.encode()).hexdigest())
"""


def test_the_schema_is_the_same_in_every_process() -> None:
    """SQLite keeps the statement of a table as it was written, constraints in their order; `doctor` compares it."""
    digests = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        program = [sys.executable, "-c", "junk = [object() for _ in range(997 * " + seed + ")]" + DIGEST_OF_TABLES]
        done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_the_reference_leaves_nothing_behind(postgresql_database: Database) -> None:
    with postgresql_database.engine.begin() as connection:
        schema_differences(connection)
    assert fetch(postgresql_database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'almoner%'") == []
    assert fetch(postgresql_database, "SELECT current_schema()") == [("public",)]


def test_upgrading_again_changes_nothing(world: World) -> None:
    world.dataset()
    world.published()
    before = snapshot(world.database)
    upgrade(world.database)
    assert snapshot(world.database) == before


@pytest.fixture
def empty(bare_database: Database) -> Iterator[Connection]:
    """A connection to an empty database; what is done there is rolled back."""
    with bare_database.engine.connect() as connection:
        upgrading.suspend_references(connection)
        yield connection
        connection.rollback()


@pytest.mark.parametrize(
    "check",
    [its_tests.test_single_head_revision, its_tests.test_upgrade, its_tests.test_model_definitions_match_ddl],
    ids=lambda check: str(check.__name__),
)
def test_what_pytest_alembic_checks(empty: Connection, check: Callable[[MigrationRunner], None]) -> None:
    """Its plugin collects tests as older versions of pytest did, so its tests are called."""
    settings = Config(alembic_config=migrations.schema_inventory.settings_for())
    with pytest_alembic.runner(settings, engine=empty) as runner:
        check(runner)


def test_a_schema_is_never_taken_back(database: Database) -> None:
    """Going up and down again is not tested, because there is no way down: history would be lost with the schema."""
    revisions = list(ScriptDirectory.from_config(migrations.schema_inventory.settings_for()).walk_revisions())
    assert revisions
    assert [each.revision for each in revisions if hasattr(each.module, "downgrade")] == []
    before = snapshot(database)
    with database.engine.connect() as connection:
        with pytest.raises(AttributeError, match="downgrade"):
            command.downgrade(migrations.schema_inventory.settings_for(connection), "base")
        connection.rollback()
        assert schema_differences(connection) == []
    assert snapshot(database) == before


def test_models_and_migrations_agree(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.slow
def test_every_missing_trigger_and_index_is_found(database: Database) -> None:
    with database.engine.connect() as connection:
        wanted = expected_items(connection)
        droppable = _droppable(wanted, on_table=not database.is_sqlite)
        assert len(droppable) > 80
        for item, statement in droppable.items():
            with connection.begin_nested() as savepoint:
                connection.execute(text(statement))
                assert compare_items(schema_items(connection), wanted) == [f"{item} is missing"]
                savepoint.rollback()
        assert compare_items(schema_items(connection), wanted) == []


def _droppable(items: frozenset[SchemaItem], *, on_table: bool) -> dict[SchemaItem, str]:
    """Each trigger, and each index that is not a constraint's, with the statement that drops it."""
    kept = {item.name for item in items if item.kind == "constraint"}
    triggers = [item for item in items if item.kind == "trigger"]
    indexes = [item for item in items if item.kind == "index" and item.definition and item.name not in kept]
    return {item: f"DROP TRIGGER {item.name}" + (f" ON {item.table}" if on_table else "") for item in triggers} | {
        item: f"DROP INDEX {item.name}" for item in indexes
    }


@pytest.mark.parametrize("constraint", ["ck_account_rho", "uq_entry_hold_id_kind", "fk_hold_account_id"])
def test_a_missing_constraint_is_found(postgresql_database: Database, constraint: str) -> None:
    table = constraint.split("_")[1]
    found = found_after(postgresql_database, f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
    assert f"constraint {constraint} on {table} is missing" in found


HARMLESS = "CREATE TRIGGER entry_no_update BEFORE UPDATE ON entry WHEN FALSE BEGIN SELECT RAISE(ABORT, 'no'); END"


@pytest.mark.parametrize(
    ("statements", "difference"),
    [
        (("DROP TRIGGER entry_no_update", HARMLESS), "trigger entry_no_update on entry is altered"),
        (
            (
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_master SET sql = replace(sql, 'rho_held + rho_spent <= rho_cap', 'TRUE')",
            ),
            "table account is altered",
        ),
        (
            ("CREATE TRIGGER mine BEFORE UPDATE ON account BEGIN SELECT RAISE(IGNORE); END",),
            "trigger mine on account is not of the ledger",
        ),
        (("ALTER TABLE hold ADD COLUMN note TEXT",), "table hold is altered"),
    ],
)
def test_damage_on_sqlite_is_found(sqlite_database: Database, statements: tuple[str, ...], difference: str) -> None:
    assert found_after(sqlite_database, *statements) == [difference]


EMPTY_BODY = (
    "CREATE OR REPLACE FUNCTION entry_no_update() RETURNS trigger LANGUAGE plpgsql"
    " SET search_path = public, pg_temp AS $$ BEGIN RETURN NEW; END $$"
)


LOCK = "function almoner_begin()"
TELLS_LITTLE = (
    "CREATE CONSTRAINT TRIGGER pending_link_is_told AFTER INSERT ON pending_link FOR EACH ROW WHEN (NEW.id < 0)"
    " EXECUTE FUNCTION pending_link_is_told()"
)
OTHER_DOOR = (
    "CREATE OR REPLACE FUNCTION almoner_begin() RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
    " SET search_path = public, pg_temp AS $$ BEGIN DELETE FROM lease; END $$"
)


@pytest.mark.slow_except(
    "statements0-trigger entry_no_update on entry is altered",
    "statements1-trigger entry_no_update on entry is altered",
    "statements2-trigger entry_no_update on entry is altered",
    "statements3-constraint ck_account_rho on account is altered",
    "statements4-column rho on hold is altered",
    "statements5-table erasure_end is altered",
    "statements7-function almoner_begin() on audit_head is missing",
    "statements10-function almoner_begin() on audit_head is altered",
    "statements15-operator = on audit_head is not of the ledger",
)
@pytest.mark.parametrize(
    ("statements", "difference"),
    [
        ((EMPTY_BODY,), "trigger entry_no_update on entry is altered"),
        (("ALTER FUNCTION entry_no_update() RESET search_path",), "trigger entry_no_update on entry is altered"),
        (("ALTER TABLE entry DISABLE TRIGGER entry_no_update",), "trigger entry_no_update on entry is altered"),
        (
            (
                "ALTER TABLE account DROP CONSTRAINT ck_account_rho",
                "ALTER TABLE account ADD CONSTRAINT ck_account_rho CHECK (rho_held >= 0)",
            ),
            "constraint ck_account_rho on account is altered",
        ),
        (("ALTER TABLE hold ALTER COLUMN rho DROP NOT NULL",), "column rho on hold is altered"),
        (("ALTER TABLE erasure_end SET UNLOGGED",), "table erasure_end is altered"),
        (
            ("CREATE RULE mine AS ON UPDATE TO account DO INSTEAD NOTHING",),
            "rule mine on account is not of the ledger",
        ),
        (("DROP FUNCTION almoner_begin()",), f"{LOCK} on audit_head is missing"),
        ((OTHER_DOOR,), f"{LOCK} on audit_head is altered"),
        (("ALTER FUNCTION almoner_begin() SECURITY INVOKER",), f"{LOCK} on audit_head is altered"),
        (("ALTER FUNCTION almoner_begin() RESET search_path",), f"{LOCK} on audit_head is altered"),
        (
            ("CREATE ROLE keeper", "ALTER FUNCTION almoner_begin() OWNER TO keeper"),
            f"{LOCK} on audit_head is altered",
        ),
        (("GRANT EXECUTE ON FUNCTION almoner_begin() TO PUBLIC",), f"{LOCK} on audit_head is altered"),
        (
            ("CREATE FUNCTION almoner_backdoor() RETURNS void LANGUAGE sql AS 'UPDATE account SET rho_spent = 0'",),
            "function almoner_backdoor() on audit_head is not of the ledger",
        ),
        (
            ("CREATE FUNCTION to_json(text) RETURNS json LANGUAGE sql AS $$ SELECT '{}'::json $$",),
            "function to_json on audit_head is not of the ledger",
        ),
        (
            (
                "CREATE FUNCTION mine(varchar, text) RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'",
                "CREATE OPERATOR = (FUNCTION = mine, LEFTARG = varchar, RIGHTARG = text)",
            ),
            "operator = on audit_head is not of the ledger",
        ),
        (
            ("ALTER TABLE pending_link DISABLE TRIGGER pending_link_is_told",),
            "trigger pending_link_is_told on pending_link is altered",
        ),
        (
            ("DROP TRIGGER pending_link_is_told ON pending_link",),
            "trigger pending_link_is_told on pending_link is missing",
        ),
        (
            (
                "DROP TRIGGER pending_link_is_told ON pending_link",
                TELLS_LITTLE,
            ),
            "trigger pending_link_is_told on pending_link is altered",
        ),
        (("CREATE TABLE more () INHERITS (entry)",), "table entry is altered"),
        (("GRANT SELECT ON unit_mark TO PUBLIC",), "table unit_mark is altered"),
        (("CREATE ROLE keeper", "ALTER TABLE approval OWNER TO keeper"), "table approval is altered"),
        (("ALTER TABLE entry ENABLE ROW LEVEL SECURITY",), "table entry is altered"),
        (
            ("CREATE POLICY mine ON entry USING (id > 9)",),
            "policy mine on entry is not of the ledger",
        ),
    ],
)
def test_damage_on_postgresql_is_found(
    postgresql_database: Database, statements: tuple[str, ...], difference: str
) -> None:
    assert found_after(postgresql_database, *statements) == [difference]


def test_functions_of_others_do_not_matter(postgresql_database: Database) -> None:
    assert found_after(postgresql_database, "CREATE FUNCTION weigh(text) RETURNS int LANGUAGE sql AS 'SELECT 1'") == []


def test_unenforced_foreign_keys_are_found_on_postgresql(postgresql_database: Database) -> None:
    found = found_after(postgresql_database, "ALTER TABLE hold DISABLE TRIGGER ALL")
    assert "enforcement fk_hold_account_id on hold is altered" in found


def test_other_tables_beside_the_ledger_do_not_matter(database: Database) -> None:
    statements = ("CREATE TABLE visitors (name TEXT)", "CREATE INDEX ix_visitors ON visitors (name)")
    assert found_after(database, *statements) == []


def test_upgrade_ends_with_the_comparison(database: Database, backend: str) -> None:
    on = " ON audit" if backend == "postgresql" else ""
    execute(database, f"DROP TRIGGER audit_no_delete{on}")
    with refusal("SchemaDiffers", match="trigger audit_no_delete on audit is missing"):
        upgrade(database)


def test_a_migration_that_fails_leaves_nothing(bare_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "schema_differences", lambda connection, revision: ["something"])
    with refusal("SchemaDiffers"):
        upgrade(bare_database)
    with bare_database.engine.connect() as connection:
        assert schema_items(connection) == frozenset()


BATCH = 'with op.batch_alter_table("{table}", recreate="always") as b: b.add_column(sa.Column("note", sa.Text()))'


def whole(database: Database) -> frozenset[SchemaItem]:
    with database.engine.connect() as connection:
        return schema_items(connection)


@pytest.mark.parametrize("table", ["entry", "unit_mark"])
def test_a_batch_operation_of_alembic_is_refused(
    sqlite_database: Database, revise: Callable[..., None], table: str
) -> None:
    """It looks innocent, and takes every trigger of the table with it: in the reference of the self-check too.

    Where views or triggers of other tables name the table, SQLite itself is in the way; nothing else would be.
    """
    before, rows = whole(sqlite_database), snapshot(sqlite_database)
    revise(BATCH.format(table=table))
    with refusal("LedgerUnreachable" if table == "entry" else "ProtectionLost") as refused:
        upgrade(sqlite_database)
    if table == "unit_mark":
        guards = ("keeps_cohort", "no_delete", "no_update", "one_account", "open_claim")
        assert refused.value.facts["lost"] == [f"unit_mark_{guard}" for guard in guards]
    assert whole(sqlite_database) == before
    assert snapshot(sqlite_database) == rows


def test_a_lost_guard_is_noticed_when_a_ledger_is_made_too(
    bare_database: Database, revise: Callable[..., None]
) -> None:
    revise('op.execute("DROP INDEX uq_entry_closed")')
    with refusal("ProtectionLost", match="uq_entry_closed"):
        upgrade(bare_database)
    assert whole(bare_database) == frozenset()


def test_a_revision_says_what_it_gives_up(database: Database, revise: Callable[..., None]) -> None:
    revise('op.execute("DROP INDEX ix_audit_at")', gives_up=("ix_audit_at",))
    upgrade(database)
    assert "ix_audit_at" not in {item.name for item in whole(database)}
    revise('op.execute("DROP INDEX uq_entry_closed")')
    with refusal("ProtectionLost", match="loses what protects the ledger: uq_entry_closed"):
        upgrade(database)


def test_two_upgrades_at_once_both_end_well(bare_database: Database) -> None:
    databases = [bare_database, Database(bare_database.url)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, databases))
    assert fetch(bare_database, "SELECT seq FROM audit_head") == [(0,)]


def test_a_newer_ledger_is_refused(database: Database) -> None:
    execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with refusal("SchemaUnknown"):
        upgrade(database)


def test_an_unreachable_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreachable):
        upgrade(Database(f"sqlite:///{tmp_path / 'no such folder' / 'almoner.db'}"))


def test_a_role_that_may_create_no_schema_is_told_so(postgresql_database: Database) -> None:
    execute(postgresql_database, "CREATE ROLE keeper LOGIN")
    try:
        keeper = Database(postgresql_database.url.replace("//postgres:", "//keeper:"))
        with refusal("ScratchSchemaForbidden"), keeper.read() as session:
            schema_differences(session.connection())
    finally:
        execute(postgresql_database, "DROP ROLE keeper")
