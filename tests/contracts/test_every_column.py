"""On SQLite every value of another type than its column's, put in behind the guards' back, is found."""

from collections.abc import Iterator

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Table,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from tests.conftest import Ledgers
from tests.contract.altered import TABLES, altered_ledger, behind_the_guards, found_by_both, some_row

CONCERNS = ("migrations/schema", "models_db/services/audit", "models_db/services/verification", "models_db/writes")

SAMPLE, EVERY = "one of each table", "every"


@pytest.fixture(scope="module")
def worked(ledgers: Ledgers) -> Iterator[Database]:
    """A ledger with rows in every table, without triggers."""
    with altered_ledger(ledgers, "sqlite") as made:
        yield made.database


BOOLEAN_TEXTS = {0: "'false'", 1: "'true'"}
OTHER_STORAGE = {
    "bytes": "CAST({name} AS BLOB)",
    "bytes that are no text": "x'ff00'",
    "text": "'abc'",
    "empty text": "''",
    "text with a zero": "{name} || char(0)",
    "real": "1.5e300",
    "negative": "-1",
    "very negative": "-9223372036854775808",
}
"""Values of other types or ranges than the column's, which SQLite keeps where no CHECK looks."""


def stored(session: Session, table: Table, column: Column[object], row: dict[str, object]) -> object:
    """The value of a column and how SQLite stores it."""
    keys = " AND ".join(f'"{key.name}" = :{key.name}' for key in table.primary_key.columns if key is not column)
    query = f'SELECT "{column.name}", typeof("{column.name}") FROM {table.name}'
    values = {key.name: row[key.name] for key in table.primary_key.columns if key is not column}
    found = session.execute(text(f"{query} WHERE {keys}" if keys else query), values).all()
    return [tuple(one) for one in found]


@pytest.mark.parametrize("which", [SAMPLE, pytest.param(EVERY, marks=pytest.mark.slow)])
def test_every_value_of_another_storage_class_is_found(worked: Database, which: str) -> None:
    """PostgreSQL keeps no value of another type than its column's."""
    missed, tried = [], 0
    for number, table in enumerate(TABLES.values()):
        columns = list(table.columns)
        booleans = [column for column in columns if isinstance(column.type, Boolean)]
        chosen = columns if which == EVERY else [columns[number % len(columns)], *booleans]
        for place, column in enumerate(chosen):
            kinds = list(OTHER_STORAGE)
            some = kinds if which == EVERY else [kinds[(number + place) % len(kinds)]]
            for kind in [*some, "boolean"] if column in booleans else some:
                with behind_the_guards(worked) as session:
                    row = some_row(session, table, column.name)
                    if row is None:
                        continue
                    name = f'"{column.name}"'
                    value = row[column.name]
                    expression = BOOLEAN_TEXTS[int(bool(value))] if kind == "boolean" else OTHER_STORAGE[kind]
                    before = stored(session, table, column, row)
                    keys = {key.name: row[key.name] for key in table.primary_key.columns}
                    where = " AND ".join(f'"{key}" = :{key}' for key in keys)
                    change = f"UPDATE {table.name} SET {name} = {expression.format(name=name)} WHERE {where}"
                    try:
                        session.execute(text(change), keys)
                    except DBAPIError:  # no row has such a number, or it has to have a value
                        continue
                    if stored(session, table, column, row) == before:
                        continue
                    seen = found_by_both(session)
                tried += 1
                excepted = (table.name, column.name) in verify_rows.DOCUMENTED_EXCEPTIONS
                if not all(seen) and not excepted:
                    missed.append((table.name, column.name, kind, seen))
    assert missed == []
    assert tried > (2000 if which == EVERY else len(TABLES) * 9 // 10)
