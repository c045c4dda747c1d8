"""Every column has one closed form in the database, on both backends and whatever guards are left.

The cases follow from the tables: what is no digest, plain name or number could become a path, a pattern or a command;
what has a control character steers a terminal or ends a text early.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Column, LargeBinary, String, Table, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from migrations.schema import forms
from models_db.database.base import Base, utc_now
from models_db.sessions.database import Database
from models_db.tables import DatasetVersion
from models_db.writes.database_errors import RuleViolated
from models_db.writes.insert import insert_row
from tests.conftest import Ledgers
from tests.contract.altered import some_row
from tests.contracts import whole_story
from tests.contracts.guard_alone import undone
from tests.support import World

CONCERNS = ("migrations/schema", "models_db/tables")

PATHS = (
    "", ".", "..", "../keys", "../../..", "*/../../../*", "/etc/passwd", "~", "*", "?" * 32, "[0-9a-f]*", "a/b", "a\\b",
    "$(touch hacked)", "`id`", ";id", "|id", "-rf", "--all", "file:///etc/passwd", "%2e%2e%2f", "A" * 64, "A" * 32,
    "g" * 64, "0" * 15 + "/", "0" * 31 + "\n", "0" * 63 + "*", "e" * 33, "e" * 65,
)  # fmt: skip
"""What no column may hold from which a path, a pattern, an address or a command is built."""
CONTROLS = ("\x01", "\x08", "\x0b", "\r", "\x1b[2J", "\x1f", "\x7f", "\x85", "\x9b31m")


TIMELY = "2024-02-29T23:59:59.999999Z"
UNTIMELY = (
    "2026-11-22T20:22:38.000000Z\0",
    "2026-11-22T20:22:38.000000Z\0and more",
    "2026-11-22T20:22:38x000000Z",
    "2026-11-22T24:00:00.000000Z",
    "2026-11-22T20:22:60.000000Z",
    "",
    TIMELY.encode(),
    9,
)


def texts() -> list[Column[str]]:
    """Every column of text of the ledger but those of times, which have a form of their own."""
    columns = (column for table in Base.metadata.sorted_tables for column in table.columns)
    return [one for one in columns if isinstance(one.type, String) and one.type.length != 27]


def digests() -> list[Column[str]]:
    return [column for column in texts() if column.type.length in (16, 32, 64)]  # type: ignore[attr-defined]


def named(column: Column[str]) -> tuple[str, str]:
    return column.table.name, column.name


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def worked(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[Database]:
    with ledgers.new(request.param) as database:
        whole_story.tell(World.create(database))
        yield database


@pytest.fixture(scope="module")
def unguarded(worked: Database) -> Iterator[Session]:
    """A transaction in which no trigger is left, and that is taken back."""
    with worked._session(**({"almoner_begin": "IMMEDIATE"} if worked.is_sqlite else {})) as session:
        connection = session.connection()
        if worked.is_sqlite:
            for name in (
                connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all()
            ):
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield session
        session.rollback()


def refusal(session: Session, column: Column[Any], value: object, **beside: object) -> str:
    """What the database says to a row with that value; empty if it takes it."""
    table = column.table
    assert isinstance(table, Table)
    row = some_row(session, table)
    if row is None:  # of the one table that is empty between transactions
        row = {"id": 1, "table_name": "approval", "first_id": 1, "last_id": 1, "account_id": None}
        session.execute(table.insert().values(row))
    keys = [key == row[key.name] for key in table.primary_key.columns]
    with undone(session):
        try:
            session.execute(table.update().where(*keys).values({column.name: text(":v").bindparams(v=value)} | beside))
        except (DBAPIError, ValueError) as problem:  # psycopg itself takes no NUL
            return str(problem)
    return ""


def test_no_digest_is_anything_but_hexadecimal_digits(unguarded: Session) -> None:
    """26 columns times 29 values, when this was written."""
    columns = digests()
    assert {named(one) for one in columns} >= {
        ("dataset_version", "uid"), ("account", "key_name"), ("artifact", "digest"),
        ("artifact", "values_digest"),
    }  # fmt: skip
    taken = [(named(column), value) for column in columns for value in PATHS if not refusal(unguarded, column, value)]
    assert taken == []


def test_names_of_datasets_zones_and_origins_are_no_paths(unguarded: Session) -> None:
    wide = {*forms.DATASET_NAMES, forms.ZONE, *forms.ORIGINS}
    columns = [column for column in texts() if named(column) in wide]
    assert {named(column) for column in columns} == wide
    hostile = ("", "..", "../keys", "*", "~", "$(id)", ";id", "-rf", "a b", "a\nb", "a\0b")
    taken = [(named(column), value) for column in columns for value in hostile if not refusal(unguarded, column, value)]
    assert taken == []


def test_no_line_or_text_has_a_control_character(unguarded: Session) -> None:
    """Of texts in JSON those are refused that JSON itself has not."""
    taken = []
    for column in texts():
        prose = column.type.length is not None or column.name in forms.PROSE  # type: ignore[attr-defined]
        for sign in (*(one for one in CONTROLS if prose or one < " "), "\0"):
            if not refusal(unguarded, column, f"a{sign}b"):
                taken.append((named(column), sign))
    assert taken == []


@pytest.mark.parametrize("value", ["two\nlines", "a\ttab", "Grüße, 東京", "a \u200dzwj"])
def test_prose_may_have_lines_and_letters(unguarded: Session, value: str) -> None:
    for column in texts():
        if column.name in forms.PROSE and named(column) != ("slot_end", "reason"):
            assert refusal(unguarded, column, value) == "", named(column)


def test_a_text_is_bounded_in_bytes(unguarded: Session) -> None:
    columns = {named(column): column for column in texts()}
    for name, most in [((table, one), most) for table, sizes in forms.TEXTS.items() for one, most in sizes.items()]:
        form, longest = f"ck_{'_'.join(name)}_form", "é" * (most // 2)
        beside = {"passkey_id": 1} if name[1] == "assertion" else {}
        assert form not in refusal(unguarded, columns[name], longest, **beside)
        assert form in refusal(unguarded, columns[name], longest + "e", **beside)


def test_the_refusal_names_the_column(world: World) -> None:
    world.dataset()
    with world.database.write() as session:
        named = {"dataset_id": 1, "number": 2, "uid": "../keys", "source_mark": "e" * 64, "manifest_mark": "e" * 64}
        version = DatasetVersion(**named, created_at=utc_now(), created_by=world.runner.id)
        with pytest.raises(RuleViolated, match="not of the form of its column, dataset_version_uid"):
            insert_row(session, version)
        session.rollback()


def times() -> list[Column[str]]:
    columns = (column for table in Base.metadata.sorted_tables for column in table.columns)
    return [one for one in columns if isinstance(one.type, String) and one.type.length == 27]


def test_no_time_has_another_form(unguarded: Session) -> None:
    taken = [
        (named(column), value) for column in times() for value in UNTIMELY if not refusal(unguarded, column, value)
    ]
    assert taken == []


def test_a_time_is_a_moment_of_the_calendar(worked: Database) -> None:
    """Every time has the same condition, which knows the calendar."""
    days = [(y, m, d) for y in (0, 1, 1900, 2000, 2023, 2024, 2026) for m in range(14) for d in range(33)]
    written = [f"{y:04}-{m:02}-{d:02}T20:22:38.000000Z" for y, m, d in days]
    condition = getattr(forms.moment("v"), "sqlite" if worked.is_sqlite else "postgresql").replace(":", r"\:")
    query = text(f"SELECT v FROM (SELECT CAST(:v AS VARCHAR(27)) AS v) x WHERE {condition}")
    with worked.read() as session:
        taken = [each for each in written if session.scalar(query, {"v": each})]
    assert taken == [each for each in written if is_moment(each)]


def is_moment(written: str) -> bool:
    try:
        return utc_now(datetime.fromisoformat(written)) == written
    except ValueError:
        return False


def test_every_column_has_its_check(worked: Database) -> None:
    """Of every text and time a form; on SQLite, whose columns take a value of any type, of every other the type."""
    with worked.read() as session:
        inspector = inspect(session.connection())
        found = {
            (table.name, check["name"])
            for table in Base.metadata.sorted_tables
            for check in inspector.get_check_constraints(table.name)
        }
    kinds = {**dict.fromkeys(texts(), "form"), **dict.fromkeys(times(), "moment")}
    columns = [column for table in Base.metadata.sorted_tables for column in table.columns]
    wanted = {(c.table.name, f"ck_{c.table.name}_{c.name}_{kinds.get(c, 'type')}") for c in columns
              if worked.is_sqlite or c in kinds}  # fmt: skip
    assert len(wanted) > 150
    assert wanted - found == set()


def test_no_value_has_another_type_on_sqlite(unguarded: Session, worked: Database) -> None:
    if not worked.is_sqlite:
        return  # its columns have types
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            others: list[object] = ["text"] if isinstance(column.type, LargeBinary) else [b"blob"]
            others += [] if isinstance(column.type, String | LargeBinary) else ["text", 0.5]
            assert all(refusal(unguarded, column, each) for each in others), named(column)
