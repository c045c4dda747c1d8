"""The guards that every table has, clause by clause: each alone, and each with a clause of its condition removed.

A row is recorded once and has the next number. What a guard must deny follows from the columns of its table, so the
cases are made from them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import pytest
from sqlalchemy import Column, Executable, LargeBinary, String, Table, UniqueConstraint, text
from sqlalchemy.orm import Session

from migrations.schema.tables import author, ledger_tables
from models_db.database.base import Base
from models_db.tables.principals import ROLES
from tests.conftest import Ledgers
from tests.contracts.circumstances import FUTURE, PAST
from tests.contracts.guard_alone import Guard, guards_of, mutants, refusal, remove_guards, unchecked, undone
from tests.contracts.test_guards import CASES
from tests.contracts.town import Town, town_of

pytestmark = pytest.mark.slow
CONCERNS = ("migrations/schema", "migrations/versions", "tests/contracts")
"""Guards change with the schema; then, and before a release, every clause is tried again."""

Row = Mapping[str, object]


PENDING: Row = {"id": 1, "table_name": "approval", "first_id": 1, "last_id": 1, "account_id": 1}
"""A row of the one table that is empty between transactions."""


AUTHORS = {t.name: (*named, t.info["recorded_by"]) for t in ledger_tables() for named in filter(None, [author(t)])}
GRANT = text("INSERT INTO role_grant VALUES (987654, 999, :role, :begins, :ends, 999, '', :begins)")
REVOCATION = text("INSERT INTO role_revocation VALUES (987654, 987654, 999, '', :at)")
"""A role of somebody who has none, and its end."""


@dataclass(frozen=True)
class Try:
    """Rows that are put in one after another, and whether the guard of their table denies them."""

    rows: list[Executable]
    denied: bool


@pytest.fixture(scope="module")
def town(ledgers: Ledgers) -> Iterator[Town]:
    with town_of(ledgers, "sqlite") as built:
        yield built


@pytest.fixture(scope="module")
def guards(town: Town) -> dict[str, Guard]:
    return guards_of(town.world.database)


def put(table: Table, row: Row) -> Executable:
    """An insertion that gives each value to the database as it is, whatever the type of its column."""
    names = ", ".join(f":{name}" for name in row)
    return text(f"INSERT INTO {table.name} ({', '.join(row)}) VALUES ({names})").bindparams(**row)


def keys(table: Table) -> list[tuple[str, ...]]:
    """What no two rows of a table have in common."""
    unique = [(c.name,) for c in table.columns if c.unique]
    unique += [tuple(u.columns.keys()) for u in table.constraints if isinstance(u, UniqueConstraint)]
    whole = [i for i in table.indexes if i.unique and i.dialect_options["sqlite"]["where"] is None]
    unique += [tuple(i.columns.keys()) for i in whole]
    return sorted({tuple(table.primary_key.columns.keys()), *unique})


def rows_of(session: Session, table: Table) -> list[Row]:
    found = session.execute(text(f"SELECT * FROM {table.name} ORDER BY 1 DESC")).mappings().all()
    return [dict(row) for row in found] or [PENDING]


def another(table: Table, row: Row, number: int = 1) -> dict[str, object]:
    """A row like this one that has no key in common with it, nor with those of other numbers."""
    key = {name for names in keys(table) for name in names}
    return {name: unlike(table.c[name], value, number) if name in key else value for name, value in row.items()}


def unlike(column: Column[object], value: object, number: int) -> object:
    match column.type:
        case LargeBinary():
            return bytes([number]) * 32
        case String(length=27):
            return f"{2026 + number}-01-01T00:00:00.000000Z"
        case String():
            return f"{number:064}"
        case _:
            return int(str(value or 0)) + 987_654 * number


# --- What each guard must deny ------------------------------------------------------------------------------


def recorded(session: Session, table: Table) -> Iterator[Try]:
    """A row that has a whole key of another one is denied; one that has all of a key but one column is not."""
    rows = rows_of(session, table)
    for key in keys(table):
        row = next(row for row in rows if None not in [row[name] for name in key])
        yield Try([put(table, another(table, row) | {name: row[name] for name in key})], True)
        for left_out in key if len(key) > 1 else ():
            shared = {name: row[name] for name in key if name != left_out}
            yield Try([put(table, another(table, row) | shared)], False)


def numbered(session: Session, table: Table) -> Iterator[Try]:
    """A row has the next number: no later one, and none that was left free."""
    row = rows_of(session, table)[0]
    newest = int(session.scalar(text(f"SELECT coalesce(max(id), 0) FROM {table.name}")) or 0)
    first, second, third, fourth = (put(table, another(table, row, n) | {"id": newest + n}) for n in (1, 2, 3, 4))
    again = put(table, another(table, row, 5) | {"id": newest + 2})
    yield Try([first, second, third, fourth], False)
    yield Try([second], True)
    yield Try([first, second, third, text(f"DELETE FROM {table.name} WHERE id = {newest + 2}"), again], True)
    empty = text(f"DELETE FROM {table.name}")
    yield Try([empty, put(table, {**row, "id": 1})], False)
    yield Try([empty, put(table, {**row, "id": 2})], True)


def current(session: Session, table: Table) -> Iterator[Try]:
    """A row is not older than the newest link."""
    row, newest = another(table, rows_of(session, table)[0]), rows_of(session, Base.metadata.tables["audit"])[0]["at"]
    yield from (Try([put(table, row | {"at": at})], at == PAST) for at in (PAST, newest, FUTURE))


def authored(session: Session, table: Table) -> Iterator[Try]:
    """Whoever adds a row has one of the roles at its time."""
    (who, when, roles), row = AUTHORS[table.name], another(table, rows_of(session, table)[0])
    at, made = row[when], put(table, row | {who: 999})
    yield from (Try([put(table, row | {who: nobody})], True) for nobody in (999, None))
    for role, (begins, ends) in product(ROLES, ((at, None), (at, FUTURE), (at, at), (FUTURE, None))):
        granted = GRANT.bindparams(role=role, begins=begins, ends=ends)
        yield Try([granted, made], role not in roles or ends == at or begins != at)
        yield Try([granted, REVOCATION.bindparams(at=at), made], True)


FAMILIES: dict[str, Callable[[Session, Table], Iterator[Try]]] = {
    "_no_replace": recorded, "_numbers": numbered, "_now": current, "_by": authored,
}  # fmt: skip
WITHOUT_CLAUSES = ("_no_update", "_no_delete")


def of_family(guards: dict[str, Guard], *suffixes: str) -> list[Guard]:
    return [guard for guard in guards.values() if guard.name.endswith(suffixes) and guard.name not in CASES]


# --- The guards, and what they are without a clause ---------------------------------------------------------


def wrong(session: Session, guard: Guard, condition: str, tries: list[Try]) -> Iterator[int]:
    """The tries that the guard denies, or lets pass, with this condition though it must not."""
    statement = guard.statement(condition)
    if guard.name.endswith("_numbers"):  # the database has numbered the row by then
        statement = statement.replace(" BEFORE ", " AFTER ", 1)
    with undone(session), unchecked(session):
        session.connection().exec_driver_sql(statement)
        yield from (n for n, each in enumerate(tries) if (guard.message in refusal(session, each.rows)) != each.denied)


def test_every_guard_is_tried(guards: dict[str, Guard]) -> None:
    assert {guard.condition for guard in of_family(guards, *WITHOUT_CLAUSES)} == {"TRUE"}
    common = {guard.name for guard in of_family(guards, *FAMILIES, *WITHOUT_CLAUSES)}
    assert guards.keys() == CASES.keys() | common


@contextmanager
def bare(town: Town) -> Iterator[Session]:
    """A transaction without any trigger, which is taken back."""
    with town.world.database.write() as session:
        session.connection().exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        remove_guards(session, session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all())
        yield session
        session.rollback()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_common_guard_alone(town: Town, guards: dict[str, Guard], family: str) -> None:
    with bare(town) as session:
        for guard in of_family(guards, family):
            tries = list(FAMILIES[family](session, Base.metadata.tables[guard.table]))
            assert list(wrong(session, guard, guard.condition, tries)) == [], guard.name


def test_every_clause_of_a_common_guard_is_noticed(town: Town, guards: dict[str, Guard]) -> None:
    tried, missed = 0, set()
    with bare(town) as session:
        for family in FAMILIES:
            for guard in of_family(guards, family):
                tries = list(FAMILIES[family](session, Base.metadata.tables[guard.table]))
                for mutant in mutants(guard.condition):
                    tried += 1
                    if next(wrong(session, guard, mutant.condition, tries), None) is None:
                        missed.add((guard.name, mutant.change.partition(": ")[2]))
    assert tried > 400
    assert missed == set()
