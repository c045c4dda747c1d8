"""The migrations build the same ledger on both backends, and what they built is recognised when it is damaged."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

import migrations.upgrade as upgrading
from migrations.inventory import Item, NoScratchSchema, compare, differences, expected, inventory
from migrations.upgrade import SchemaDiffers, SchemaUnknown, upgrade
from models_db.base import Base
from models_db.engine import Database, LedgerUnreachable
from tests.support import World, execute, fetch, snapshot

CONDITIONS = frozenset({"table", "column", "constraint", "index"})


def found_after(database: Database, *statements: str) -> list[str]:
    """The differences that some DDL makes; the DDL is rolled back."""
    with database.engine.connect() as connection:
        wanted = expected(connection)
        for statement in statements:
            connection.execute(text(statement))
        found = compare(inventory(connection), wanted)
        connection.rollback()
    return found


def test_a_fresh_ledger_is_as_the_migrations_make_it(database: Database) -> None:
    with database.read() as session:
        assert differences(session.connection()) == []


def test_the_reference_leaves_nothing_behind(postgresql_database: Database) -> None:
    with postgresql_database.engine.begin() as connection:
        differences(connection)
    assert fetch(postgresql_database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'almoner%'") == []
    assert fetch(postgresql_database, "SELECT current_schema()") == [("public",)]


def test_upgrading_again_changes_nothing(world: World) -> None:
    world.dataset()
    world.published()
    before = snapshot(world.database)
    upgrade(world.database)
    assert snapshot(world.database) == before


def test_models_and_migrations_agree(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_models_and_migrations_agree_on_checks(bare_database: Database, backend: str) -> None:
    """Alembic compares no CHECK, so compare the schema of the models with that of the migrations."""
    Base.metadata.create_all(bare_database.engine)
    with bare_database.engine.connect() as connection:
        if backend == "postgresql":
            wanted = {item for item in expected(connection) if item.table != "alembic_version"}
            of_models = {item for item in inventory(connection) if item.kind in CONDITIONS}
            assert of_models == {item for item in wanted if item.kind in CONDITIONS}
            assert sum(item.name.startswith("ck_") for item in of_models) >= 13
        else:
            made = {table: _checks(connection, table) for table in Base.metadata.tables}
            connection.rollback()
            Base.metadata.drop_all(bare_database.engine)
            upgrade(bare_database)
            assert made == {table: _checks(connection, table) for table in Base.metadata.tables}


def _checks(connection: object, table: str) -> set[tuple[str | None, str]]:
    return {(check["name"], check["sqltext"]) for check in inspect(connection).get_check_constraints(table)}


def test_every_missing_trigger_and_index_is_found(database: Database) -> None:
    with database.engine.connect() as connection:
        wanted = expected(connection)
        droppable = _droppable(wanted, on_table=not database.is_sqlite)
        assert len(droppable) > 80
        for item, statement in droppable.items():
            with connection.begin_nested() as savepoint:
                connection.execute(text(statement))
                assert compare(inventory(connection), wanted) == [f"{item} is missing"]
                savepoint.rollback()
        assert compare(inventory(connection), wanted) == []


def _droppable(items: frozenset[Item], *, on_table: bool) -> dict[Item, str]:
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
        (("ALTER TABLE cap SET UNLOGGED",), "table cap is altered"),
        (
            ("CREATE RULE mine AS ON UPDATE TO account DO INSTEAD NOTHING",),
            "rule mine on account is not of the ledger",
        ),
    ],
)
def test_damage_on_postgresql_is_found(
    postgresql_database: Database, statements: tuple[str, ...], difference: str
) -> None:
    assert found_after(postgresql_database, *statements) == [difference]


def test_unenforced_foreign_keys_are_found_on_postgresql(postgresql_database: Database) -> None:
    found = found_after(postgresql_database, "ALTER TABLE hold DISABLE TRIGGER ALL")
    assert "enforcement fk_hold_account_id on hold is altered" in found


def test_other_tables_beside_the_ledger_do_not_matter(database: Database) -> None:
    statements = ("CREATE TABLE visitors (name TEXT)", "CREATE INDEX ix_visitors ON visitors (name)")
    assert found_after(database, *statements) == []


def test_upgrade_ends_with_the_comparison(database: Database, backend: str) -> None:
    on = " ON audit" if backend == "postgresql" else ""
    execute(database, f"DROP TRIGGER audit_no_delete{on}")
    with pytest.raises(SchemaDiffers, match="trigger audit_no_delete on audit is missing"):
        upgrade(database)


def test_a_migration_that_fails_leaves_nothing(bare_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "differences", lambda connection, revision: ["something"])
    with pytest.raises(SchemaDiffers):
        upgrade(bare_database)
    with bare_database.engine.connect() as connection:
        assert inventory(connection) == frozenset()


def test_two_upgrades_at_once_both_end_well(bare_database: Database) -> None:
    databases = [bare_database, Database(bare_database.url)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, databases))
    assert fetch(bare_database, "SELECT seq FROM audit_head") == [(0,)]


def test_a_newer_ledger_is_refused(database: Database) -> None:
    execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaUnknown):
        upgrade(database)


def test_an_unreachable_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreachable):
        upgrade(Database(f"sqlite:///{tmp_path / 'no such folder' / 'almoner.db'}"))


def test_a_role_that_may_create_no_schema_is_told_so(postgresql_database: Database) -> None:
    execute(postgresql_database, "CREATE ROLE keeper LOGIN")
    try:
        keeper = Database(postgresql_database.url.replace("//postgres:", "//keeper:"))
        with pytest.raises(NoScratchSchema), keeper.read() as session:
            differences(session.connection())
    finally:
        execute(postgresql_database, "DROP ROLE keeper")


def test_migrations_import_no_project_code() -> None:
    folder = Path(upgrading.__file__).parent / "versions"
    rooms = {"cli", "flows", "tasks", "models_db", "migrations"}
    files = sorted(folder.glob("[0-9]*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            assert not rooms & {name.split(".")[0] for name in names}, path.name
