"""Hostile statements against today's ledger: each is tried in a ledger with something of everything, and taken back.

Like the driver, this module and those that it reads know tables; the tests name deeds only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Column, Executable, Insert, LargeBinary, String, TextClause, text
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.orm import Session

from models_db.database.base import Base
from models_db.errors import AlmonerError
from models_db.writes.database_errors import translate_database_errors
from tests.conftest import Ledgers
from tests.contract import hostile_facts, hostile_rows
from tests.contract.hostile_rows import Make
from tests.contracts.guard_alone import perform, undone
from tests.contracts.town import Town, town_of
from tests.support import LATE

DEEDS = (
    hostile_rows.BUDGET
    | hostile_rows.REQUESTS
    | hostile_rows.GATES
    | hostile_facts.AUTHORISATIONS
    | hostile_facts.PEOPLE
    | hostile_facts.DATA
    | hostile_facts.LOOKS
    | hostile_facts.RECORD
)


MOVING = {"lease", "pending_link"}
"""What is no fact: who is at work now, and what one transaction tells another table."""
COUNTERS = {"account", "audit_head"}
"""What moves with other facts; named deeds try to move it without them."""
FACTS = {table.name: table for table in Base.metadata.sorted_tables if table.name not in MOVING}
UNTIMELY = ("2026-11-22T20:22:38.000000Z and more", "2026-02-31T20:22:38.000000Z", "2026-11-22T20:22:38Z", "")
LONG, LONGEST = "x" * 1_000_001, "x" * 16_000_001
OF_A_RELEASE = {"artifact.files", "evaluation.result", "request.canonical"}
"""Texts that may be as long as a release has files; how long an entry of the record is, the ledger decides."""

Statements = Sequence[Executable]


@dataclass(frozen=True)
class HostileLogin:
    """Somebody with a login at a ledger in which everything has happened at least once."""

    town: Town

    def deeds(self) -> frozenset[str]:
        """The names of what can be tried."""
        return frozenset(DEEDS)

    def refusal(self, deed: str) -> str | None:
        """The name of the refusal that a deed meets; None if the ledger takes it."""
        return self._tried(DEEDS[deed].refused)

    def refusal_of_neighbour(self, deed: str) -> str | None:
        """The same for the nearest lawful thing; None as well where there is none."""
        lawful = DEEDS[deed].lawful
        return None if lawful is None else self._tried(lawful)

    def refusal_of_fact(self, fact: str) -> str | None:
        """The name of the refusal that a fact meets which has no conditions."""
        return self._tried(hostile_facts.UNCONDITIONAL[fact])

    def taken(self, forgery: str) -> list[str]:
        """The facts of which the ledger takes a forgery: one of `FORGERIES`."""
        with self.town.world.database.write() as session:
            if self.town.world.database.is_sqlite:  # whoever opens the file decides whether references are asked
                session.connection().exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            made = forgeries(self.town, forgery)
            taken = [name for name, statements in made if refused(session, statements) is None]
            session.rollback()
        return taken

    def _tried(self, make: Make) -> str | None:
        with self.town.world.database.write() as session:
            answer = refused(session, made_by(self.town, make))
            session.rollback()
        return answer


def made_by(town: Town, make: Make) -> Statements:
    """The statements of a deed."""
    made = make(town)
    return made if isinstance(made, list) else [made]


def refused(session: Session, statements: Statements) -> str | None:
    """The name of the refusal that statements meet, which are taken back."""
    with undone(session):
        try:
            with translate_database_errors():
                perform(session, list(statements))
        except AlmonerError as refusal:
            return refusal.code
        except (DBAPIError, StatementError) as refusal:
            return type(refusal).__name__
    return None


# --- what is tried of every fact -------------------------------------------------------------------------------------


def altered(town: Town) -> Iterator[tuple[str, Statements]]:
    for name, table in FACTS.items():
        column = next(iter(table.columns)).name
        if name not in COUNTERS:
            yield name, [text(f"UPDATE {name} SET {column} = {column}")]


def removed(town: Town) -> Iterator[tuple[str, Statements]]:
    for name in FACTS:
        yield name, [text(f"DELETE FROM {name}")]


def put_over(town: Town) -> Iterator[tuple[str, Statements]]:
    """A row put over one with the same key, which SQLite takes for an insertion alone."""
    for name, table in FACTS.items():
        keys = ", ".join(column.name for column in table.primary_key)
        columns = ", ".join(column.name for column in table.columns)
        row = f"{name} ({columns}) SELECT {columns} FROM {name} ORDER BY {keys} LIMIT 1"
        same = next(iter(table.primary_key)).name
        if name not in COUNTERS:
            yield name, [written_over(town, row, keys, f"{same} = excluded.{same}")]
    columns = "id, parent_id, block, created_at, rho_cap, delta_cap"
    row = f"account ({columns}) SELECT {columns} FROM account WHERE rho_spent > 0 LIMIT 1"
    yield "a spent account", [written_over(town, row, "id", "rho_spent = 0")]


def written_over(town: Town, row: str, keys: str, change: str) -> TextClause:
    """A row that replaces the one with its keys on SQLite, and changes it on PostgreSQL."""
    if town.world.database.is_sqlite:
        return text(f"INSERT OR REPLACE INTO {row}")
    return text(f"INSERT INTO {row} ON CONFLICT ({keys}) DO UPDATE SET {change}")


def lawful_rows(town: Town) -> Iterator[tuple[Statements, Insert]]:
    """The last statement of a lawful deed for each fact of which there is one, and those before it."""
    seen: set[str] = set()
    lawful = [deed.lawful for deed in DEEDS.values() if deed.lawful is not None]
    for make in (*lawful, *hostile_facts.UNCONDITIONAL.values()):
        *before, last = made_by(town, make)
        if isinstance(last, Insert) and last.table.name not in seen:
            seen.add(last.table.name)
            yield before, last


def changed(row: Insert, **given: object) -> Executable:
    """A row with other values, which the database is given as they are, whatever the types of their columns."""
    values = {**row.compile().params, **given}
    written = {name: value.text if isinstance(value, TextClause) else f":{name}" for name, value in values.items()}
    bound = {name: value for name, value in values.items() if not isinstance(value, TextClause)}
    return text(
        f"INSERT INTO {row.table.name} ({', '.join(written)}) VALUES ({', '.join(written.values())})"
    ).bindparams(**bound)


def forged(
    fits: Callable[[Column[object]], bool], *values: object
) -> Callable[[Town], Iterator[tuple[str, Statements]]]:
    """Lawful rows, each with one value that its column must not have."""

    def made(town: Town) -> Iterator[tuple[str, Statements]]:
        for before, row in lawful_rows(town):
            for column in row.table.columns:
                if fits(column) and column.name in row.compile().params:
                    yield from (
                        (f"{row.table.name}.{column.name}", [*before, changed(row, **{column.name: value})])
                        for value in values
                    )

    return made


def out_of_turn(town: Town) -> Iterator[tuple[str, Statements]]:
    for before, row in lawful_rows(town):
        if "id" in row.table.columns:
            newest = int(town.one(f"SELECT max(id) FROM {row.table.name}"))
            yield row.table.name, [*before, changed(row, id=newest + 1_000)]


def is_time(column: Column[object]) -> bool:
    return isinstance(column.type, String) and column.type.length == len(LATE)


def is_text(column: Column[object]) -> bool:
    return isinstance(column.type, String) and not is_time(column) and str(column) != "audit.body"


FORGERIES: dict[str, Callable[[Town], Iterator[tuple[str, Statements]]]] = {
    "altered": altered,
    "removed": removed,
    "put over another": put_over,
    "of a number out of turn": out_of_turn,
    "with a time of another form": forged(is_time, *UNTIMELY),
    "with a text that is too long": forged(lambda c: is_text(c) and str(c) not in OF_A_RELEASE, LONG),
    "with a text longer than any release": forged(lambda c: str(c) in OF_A_RELEASE, LONGEST),
    "with bytes for a text or a number": forged(lambda column: not isinstance(column.type, LargeBinary), b"bytes"),
}


OF_SQLITE = {"of a number out of turn", "with bytes for a text or a number"}
"""PostgreSQL numbers the rows of whoever has a login, and keeps no value of another type than its column's."""


def forgeries(town: Town, forgery: str) -> list[tuple[str, Statements]]:
    """Each fact, and the statements that forge it."""
    possible = town.world.database.is_sqlite or forgery not in OF_SQLITE
    return list(FORGERIES[forgery](town)) if possible else []


@contextmanager
def hostile_login(ledgers: Ledgers, backend: str) -> Iterator[HostileLogin]:
    """A login on a backend."""
    with town_of(ledgers, backend) as town:
        yield HostileLogin(town)
