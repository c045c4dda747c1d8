"""Statements given to the driver: in the session's transaction, with SQLAlchemy's errors, and never outside."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, InvalidRequestError

from models_db.database.base import utc_now
from models_db.database.prepared_statements import PreparedStatement
from models_db.sessions.database import Database, LedgerUnreachable, SchemaOutdated
from models_db.values.amounts import Amount
from tests.support import World, execute, fetch, planned

CHANGE = PreparedStatement("UPDATE note SET said = :said WHERE said <> :said RETURNING said")


@pytest.fixture
def noted(database: Database) -> Database:
    """A ledger with a table of notes, one row."""
    execute(database, "CREATE TABLE note (said TEXT UNIQUE)", "INSERT INTO note VALUES ('first')")
    return database


def test_it_is_part_of_the_transaction(noted: Database) -> None:
    with noted.write() as session:
        assert CHANGE.fetch_rows(session, {"said": "second"}) == [("second",)]
        assert session.scalar(text("SELECT said FROM note")) == "second"

    def fail() -> None:
        with noted.write() as session:
            CHANGE.fetch_rows(session, {"said": "third"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert fetch(noted, "SELECT said FROM note") == [("second",)]


def test_it_begins_the_transaction_like_every_other_statement(noted: Database) -> None:
    with noted.write() as session:
        CHANGE.fetch_rows(session, {"said": "second"})
        session.execute(text("UPDATE note SET said = 'third'"))
        session.rollback()
    assert fetch(noted, "SELECT said FROM note") == [("first",)]


def test_after_a_rollback_it_writes_nothing(noted: Database) -> None:
    def go_on() -> None:
        with noted.write() as session:
            CHANGE.fetch_rows(session, {"said": "second"})
            session.rollback()
            CHANGE.fetch_rows(session, {"said": "third"})

    with pytest.raises(InvalidRequestError):
        go_on()
    assert fetch(noted, "SELECT said FROM note") == [("first",)]


def test_a_refusal_is_sqlalchemys_and_tells_no_value(noted: Database) -> None:
    execute(noted, "INSERT INTO note VALUES ('secret')")
    with pytest.raises(IntegrityError) as caught, noted.write() as session:
        PreparedStatement("UPDATE note SET said = :said WHERE said = 'first' RETURNING said").fetch_rows(
            session, {"said": "secret"}
        )
    assert caught.value.params is None
    assert "secret" not in str(caught.value.statement)


def test_a_missing_table_is_another_schema(database: Database) -> None:
    with pytest.raises(SchemaOutdated), database.write() as session:
        PreparedStatement("SELECT a FROM nowhere WHERE a = :a").fetch_rows(session, {"a": 1})


def test_a_lost_server_is_named_and_the_next_connection_is_new(postgresql_database: Database) -> None:
    def lose() -> None:
        with postgresql_database.write() as session:
            own = session.scalar(text("SELECT pg_backend_pid()"))
            fetch(postgresql_database, "SELECT pg_terminate_backend(:pid)", pid=own)
            PreparedStatement("SELECT :a").fetch_rows(session, {"a": "1"})

    with pytest.raises(LedgerUnreachable):
        lose()
    assert fetch(postgresql_database, "SELECT 1") == [(1,)]


def test_a_plan_is_the_same_rows_on_both_backends(database: Database) -> None:
    """PostgreSQL makes them in one statement; numbers, places and order are those of one at a time."""
    world = World.create(database)
    world.dataset(blocks=2)
    world.held(planned(Amount(3, 1), Amount(4)), planned(Amount(5), mechanism="noisy_count"))
    holds = fetch(
        world.database,
        "SELECT i.sequence, i.mechanism, a.block, h.instalment, h.rho, h.delta FROM hold h"
        " JOIN invocation i ON i.id = h.invocation_id JOIN account a ON a.id = h.account_id ORDER BY h.id",
    )
    first = [(0, "integer_draw", block, *part) for block in (0, 1) for part in ((0, 3, 1), (1, 4, 0))]
    assert holds == first + [(1, "noisy_count", block, 0, 5, 0) for block in (0, 1)]
    entries = fetch(world.database, "SELECT e.kind, h.rho FROM entry e JOIN hold h ON h.id = e.hold_id ORDER BY e.id")
    assert entries == [("HOLD", rho) for _, _, _, _, rho, _ in holds]
    ((at,),) = fetch(world.database, "SELECT max(at) FROM entry")
    assert str(at) <= utc_now()
