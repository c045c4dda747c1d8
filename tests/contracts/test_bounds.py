"""What people write into the ledger has a bounded size, depth and number of digits, whoever else would refuse it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import UniqueConstraint
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from migrations.schema import forms, rendering
from models_db.database.base import Base, utc_now
from models_db.services.catalogue import policies
from models_db.sessions.database import Database
from models_db.tables import StoredEvaluation
from models_db.writes.database_errors import RuleViolated
from models_db.writes.insert import insert_row
from models_db.writes.json_depth import JSON_TEXT_COLUMNS, MOST_JSON_DEPTH, UNBOUNDED_TEXT
from tests.conftest import Ledgers
from tests.contract.altered import altered, some_row
from tests.contracts import whole_story
from tests.support import World, terms

COLUMNS = [(table, column, most) for table, texts in forms.TEXTS.items() for column, most in texts.items()]
JSON_COLUMNS = [(table, column) for table, columns in forms.JSON.items() for column in columns]
DEEP = '{"a":' * (MOST_JSON_DEPTH + 1) + "1" + "}" * (MOST_JSON_DEPTH + 1)
LONG_NUMBER = '{"a":' + "9" * forms.DIGITS + "}"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def worked(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[Database]:
    with ledgers.new(request.param) as database:
        whole_story.tell(World.create(database))
        yield database


@pytest.fixture
def bounded(worked: Database) -> Iterator[Session]:
    """A transaction in which no other guard is left, and that is taken back."""
    with worked._session(**({"almoner_begin": "IMMEDIATE"} if worked.is_sqlite else {})) as session:
        connection = session.connection()
        if worked.is_sqlite:
            query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name NOT LIKE '%_bounded'"
            for name in connection.exec_driver_sql(query).scalars().all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        else:
            for table in forms.TEXTS:
                connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
                connection.exec_driver_sql(f"DROP FUNCTION {table}_is_sound() CASCADE")
                rendering._create_row_guard(connection, table, [each for each in forms.BOUNDS if each.table == table])
        yield session
        session.rollback()


def put_in(session: Session, table: str, **given: object) -> None:
    """A row like one that is there."""
    made = Base.metadata.tables[table]
    row = some_row(session, made)
    assert row is not None
    unique = {c.name for c in made.columns if c.unique or c.primary_key}
    unique |= {c.name for u in made.constraints if isinstance(u, UniqueConstraint) for c in u.columns}
    unique |= {c.name for i in made.indexes if i.unique for c in i.columns}
    whole = {name: altered(made.c[name], value) if name in unique else value for name, value in row.items()}
    if "assertion" in given:  # there is one with a passkey alone
        whole |= {"passkey_id": 1}
    session.execute(made.insert().values({**whole, **given}))


@pytest.mark.parametrize(("table", "column", "most"), COLUMNS)
def test_a_text_is_bounded_in_bytes(bounded: Session, table: str, column: str, most: int) -> None:
    with bounded.begin_nested():
        put_in(bounded, table, **{column: "é" * (most // 2)})
        bounded.execute(Base.metadata.tables[table].delete().where(Base.metadata.tables[table].c[column].like("éé%")))
    with pytest.raises(IntegrityError, match=UNBOUNDED_TEXT), bounded.begin_nested():
        put_in(bounded, table, **{column: "é" * (most // 2) + "e"})


@pytest.mark.parametrize(("table", "column"), JSON_COLUMNS)
def test_a_number_is_bounded_in_digits(bounded: Session, table: str, column: str) -> None:
    with pytest.raises(IntegrityError, match=UNBOUNDED_TEXT), bounded.begin_nested():
        put_in(bounded, table, **{column: LONG_NUMBER})
    put_in(bounded, table, **{column: LONG_NUMBER.replace("9", "", 1)})


@pytest.mark.parametrize(("table", "column"), JSON_COLUMNS)
def test_json_is_bounded_in_depth(bounded: Session, table: str, column: str) -> None:
    if bounded.get_bind().dialect.name == "postgresql":
        with pytest.raises(IntegrityError, match=UNBOUNDED_TEXT), bounded.begin_nested():
            put_in(bounded, table, **{column: DEEP})
        put_in(bounded, table, **{column: DEEP[5:-1] + " "})
    assert (table, column) in [(name, each) for name, columns in JSON_TEXT_COLUMNS.items() for each in columns]


@pytest.mark.parametrize("body", [DEEP, "[" * 3000 + "]" * 3000, LONG_NUMBER, '{"a":"' + "x" * 10**6 + '"}'])
def test_the_services_refuse_by_name(world: World, body: str) -> None:
    """Also on SQLite, where the depth is looked at before the row is inserted."""
    with pytest.raises(RuleViolated, match=UNBOUNDED_TEXT), world.database.write() as session:
        policies.adopt(session, world.admin, terms(body=body))
    world.dataset()
    world.produced("clinic")
    with pytest.raises(RuleViolated, match=UNBOUNDED_TEXT), world.database.write() as session:
        insert_row(
            session,
            StoredEvaluation(artifact_id=1, metric="m", exposure="public", result=body * 20, created_at=utc_now(),
                             created_by=world.runner.id),
        )  # fmt: skip


def test_brackets_in_strings_do_not_count(world: World) -> None:
    with world.database.write() as session:
        policies.adopt(session, world.admin, terms(body='{"a":"' + "[" * 100 + '\\"{"}'))
