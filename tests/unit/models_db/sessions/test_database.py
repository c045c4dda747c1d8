"""One engine, two kinds of transaction, the settings that both backends need, and the text form of times."""

import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from models_db.database.base import utc_now
from models_db.sessions.database import Database, LedgerDiskFull, LedgerUnreachable, SchemaOutdated
from models_db.tables import Principal
from models_db.writes.database_errors import AlreadyRecorded, CapExceeded, RuleViolated, translate_database_errors
from tests.support import World, execute, fetch, snapshot

PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL
    "foreign_keys": 1,
    "recursive_triggers": 1,
    "trusted_schema": 0,
    "busy_timeout": 60_000,
}


@pytest.mark.parametrize("name", PRAGMAS)
def test_every_sqlite_connection_has_the_pragmas(sqlite_database: Database, name: str) -> None:
    assert fetch(sqlite_database, f"PRAGMA {name}") == [(PRAGMAS[name],)]


def test_postgresql_settings(postgresql_database: Database) -> None:
    settings = {
        name: fetch(postgresql_database, f"SHOW {name}")[0][0] for name in ("synchronous_commit", "lock_timeout")
    }
    assert settings == {"synchronous_commit": "on", "lock_timeout": "1min"}
    assert fetch(postgresql_database, "SHOW transaction_isolation") == [("repeatable read",)]
    with postgresql_database.write() as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "read committed"


def test_the_files_of_a_sqlite_ledger_are_private(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'almoner.db'}")
    with database.write() as session:
        session.execute(text("CREATE TABLE t (a INTEGER)"))
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["almoner.db", "almoner.db-shm", "almoner.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_ledger_that_others_can_read_is_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "almoner.db"
    path.touch(mode=0o644)
    fetch(Database(f"sqlite:///{path}"), "SELECT 1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_is_whole_or_nothing(database: Database) -> None:
    before = snapshot(database)

    def half(database: Database) -> None:
        with database.write() as session:
            session.add(Principal(name="a", public_key="k", created_at=utc_now()))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half(database)
    assert snapshot(database) == before
    execute(database, f"INSERT INTO principal (name, public_key, created_at) VALUES ('a', 'k', '{utc_now()}')")
    assert fetch(database, "SELECT name FROM principal") == [("a",)]


def test_a_read_writes_nothing(database: Database) -> None:
    before = snapshot(database)
    with database.read() as session:
        session.add(Principal(name="a", public_key="k", created_at=utc_now()))
        session.flush()
    assert snapshot(database) == before


def test_what_was_read_stays_readable(world: World) -> None:
    with world.database.read() as session:
        found = session.get_one(Principal, world.steward.id)
    assert found.name == "steward"


def test_a_writer_begins_before_it_reads(sqlite_database: Database) -> None:
    """BEGIN IMMEDIATE: a read that later becomes a write would decide on what it saw before others wrote."""
    path = sqlite_database.engine.url.database or ""
    with closing(sqlite3.connect(path, timeout=0)) as other:
        with sqlite_database.read() as session:
            session.execute(text("SELECT * FROM account"))
            other.execute("BEGIN IMMEDIATE")
            other.rollback()
        with sqlite_database.write() as session:
            session.execute(text("SELECT * FROM account"))
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")


def test_a_locked_ledger_is_named(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models_db.sessions.database._PRAGMAS", ("busy_timeout=50",))
    with sqlite_database.write() as session:
        session.execute(text("SELECT * FROM account"))
        with pytest.raises(LedgerUnreachable):
            execute(sqlite_database, "SELECT * FROM account")


@pytest.mark.parametrize("query", ["SELECT * FROM no_such_table", "SELECT no_such_column FROM account"])
def test_another_schema_is_named(database: Database, query: str) -> None:
    with pytest.raises(SchemaOutdated) as problem:
        fetch(database, query)
    assert "almoner init" in problem.value.advice


@pytest.mark.parametrize(
    "url", ["sqlite:////no/such/folder/almoner.db", "postgresql://me:secret@127.0.0.1:1/almoner?connect_timeout=2"]
)
def test_an_unreachable_ledger_is_named_without_its_password(url: str) -> None:
    with pytest.raises(LedgerUnreachable) as problem, Database(url).read() as session:
        session.execute(text("SELECT 1"))
    assert "secret" not in problem.value.diagnostics() + str(problem.value.facts)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgres://h/d", "postgresql+psycopg://h/d"),
        ("postgresql://h/d", "postgresql+psycopg://h/d"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d"),
    ],
)
def test_the_driver_is_chosen(given: str, used: str) -> None:
    assert Database(given).url == used


def test_an_error_quotes_no_values(database: Database) -> None:
    with pytest.raises(DBAPIError) as problem, database.engine.connect() as connection:
        connection.execute(text("SELECT no_such_function(:value)"), {"value": "private words"})
    assert "private words" not in str(problem.value)


# --- what the database says, as named errors ------------------------------------------------------------------------


def said(database: Database, *statements: str) -> type[Exception]:
    with pytest.raises((RuleViolated, AlreadyRecorded, CapExceeded)) as refusal, translate_database_errors():
        execute(database, *statements)
    return refusal.type


def principal(id_: int, name: str) -> str:
    return f"INSERT INTO principal (id, name, public_key, created_at) VALUES ({id_}, '{name}', 'k', '{utc_now()}')"


def test_refusals_have_the_same_names_on_both_backends(world: World) -> None:
    database = world.database
    account = f"INSERT INTO account (rho_cap, delta_cap, created_at, rho_held) VALUES (5, 5, '{utc_now()}'"
    ((newest,),) = fetch(database, "SELECT max(id) FROM principal")
    assert said(database, principal(1, "new")) is (AlreadyRecorded if database.is_sqlite else RuleViolated)
    assert said(database, principal(int(str(newest)) + 1, "steward")) is AlreadyRecorded
    assert said(database, f"{account}, 1)") is RuleViolated
    assert said(database, f"{account}, 0)") is RuleViolated
    assert said(database, "UPDATE principal SET name = 'x'") is RuleViolated
    assert said(database, f"INSERT INTO cohort (account_id, number, version_id, created_at, created_by)"
                          f" VALUES (99, 2, 1, '{utc_now()}', 1)") is RuleViolated  # fmt: skip


def test_a_refusal_names_the_constraint_and_no_value(world: World) -> None:
    with pytest.raises(RuleViolated, match="account is a root with its claim") as refusal, translate_database_errors():
        execute(
            world.database,
            "INSERT INTO account (epsilon, rho_cap, delta_cap, created_at)"
            f" VALUES ('private words', 5, 5, '{utc_now()}')",
        )
    assert "private words" not in refusal.value.diagnostics()
    assert refusal.value.__cause__ is None


def test_other_errors_pass(database: Database) -> None:
    with pytest.raises(DBAPIError) as problem, translate_database_errors(), database.engine.connect() as connection:
        connection.execute(text("SELECT * FROM no_such_table"))
    assert not isinstance(problem.value, IntegrityError)


# --- times ----------------------------------------------------------------------------------------------------------


def test_times_have_one_form() -> None:
    at = datetime(2026, 11, 21, 4, 3, tzinfo=UTC)
    assert utc_now(at) == "2026-11-21T04:03:00.000000Z"
    assert utc_now(at.astimezone(timezone(timedelta(hours=5)))) == utc_now(at)
    assert len(utc_now()) == 27


def test_times_sort_as_text() -> None:
    at = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    times = [utc_now(at + timedelta(microseconds=n)) for n in (-1, 0, 1, 10**9)]
    assert times == sorted(times)


def test_a_ledger_without_room_is_named_and_unchanged(sqlite_database: Database) -> None:
    """SQLite says that the disk is full where it may have no further page."""
    world = World.create(sqlite_database)
    world.dataset("clinic")
    before = snapshot(sqlite_database)

    def fill() -> None:
        with sqlite_database.write() as session:
            session.execute(text("PRAGMA max_page_count = 1"))
            for number in range(100):
                session.execute(text(f"CREATE TABLE filler_{number} AS SELECT randomblob(1000000) AS data"))

    with pytest.raises(LedgerDiskFull, match=r"is full .*MiB free.*; nothing was changed") as full:
        fill()
    assert isinstance(full.value, LedgerUnreachable), "whoever waits for the ledger waits for room, too"
    assert "MiB of room" in full.value.advice
    sqlite_database.dispose()
    assert snapshot(sqlite_database) == before
    world.request("clinic")
