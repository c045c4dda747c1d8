"""What somebody with all rights on today's database alters, field by field, and what then finds it.

Like the driver, this module knows tables; the tests know facts and their fields by the names that it gives.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Executable,
    Integer,
    LargeBinary,
    String,
    Table,
    UniqueConstraint,
    and_,
    text,
)
from sqlalchemy.orm import Session

from flows.workspace import rollback_guard
from flows.workspace.rollback_guard import RollbackGuardedDatabase
from models_db.database.base import Base
from models_db.home import ProjectHome
from models_db.services.audit import verify_chain
from models_db.services.queries import health
from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from tests.conftest import Ledgers
from tests.contracts import whole_story
from tests.contracts.tampering import FORGET_CHECKPOINTS, rewrite, superuser, truncate
from tests.support import World

Field = tuple[str, str]
"""A fact and one of its fields."""
DIGEST = 64
TABLES = {table.name: table for table in Base.metadata.sorted_tables if table.name != "pending_link"}

CONSTRAINTS = """
SELECT c.conrelid::regclass::text, c.conname FROM pg_constraint c
 WHERE c.connamespace = current_schema()::regnamespace AND c.contype IN ('c', 'u')"""


UNIQUE_INDEXES = """
SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
 WHERE t.relnamespace = current_schema()::regnamespace AND i.indisunique AND NOT i.indisprimary"""


@contextmanager
def behind_the_guards(database: Database) -> Iterator[Session]:
    """A transaction that no trigger, reference or CHECK sees, and that is taken back."""
    with database._session(**({"almoner_begin": "IMMEDIATE"} if database.is_sqlite else {})) as session:
        connection = session.connection()
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        try:
            yield session
        finally:
            if database.is_sqlite:
                connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
            session.rollback()


def found_by_doctor(session: Session) -> list[str]:
    return [f"{each.check}: {each.detail}" for each in health.check_health(session) if not each.ok]


def found_by_audit_verify(session: Session) -> list[str]:
    chain = verify_chain.verify_chain(session)
    return verify_rows.compare_rows_with_chain(session) + ([] if chain.sound else [chain.reason])


def found_by_both(session: Session) -> tuple[list[str], list[str]]:
    """What each of the two finds; what both ask, how rows differ from the chain, is worked out once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_rows, "compare_rows_with_chain", cache(verify_rows.compare_rows_with_chain))
        return found_by_doctor(session), found_by_audit_verify(session)


def altered(column: Column[object], value: object) -> object:
    """Another value of the column's type."""
    match column.type:
        case Boolean():
            return not value
        case LargeBinary():
            return b"\1" * 32
        case Integer() | BigInteger():
            return 987_654 if value is None else int(str(value)) + 987_654
        case String(length=27):
            return "2027-01-01T00:00:00.000000Z"
        case String(length=64):
            return "e" * DIGEST
        case _:
            return "altered"


def some_row(session: Session, table: Table, column: str = "id") -> dict[str, object] | None:
    """One in the middle of the table; of accounts, a block on which something was spent, or a root for its columns."""
    rows = session.execute(table.select().order_by(*table.primary_key.columns)).mappings().all()
    if table.name == "account":
        rows = [row for row in rows if row[column] is not None]
        rows = [row for row in rows if row["rho_spent"]] or rows
    return dict(rows[len(rows) // 2]) if rows else None


def is_key(table: Table, row: dict[str, object]) -> ColumnElement[bool]:
    return and_(*(key == row[key.name] for key in table.primary_key.columns))


@dataclass(frozen=True)
class AlteredLedger:
    """A ledger with every kind of fact, and somebody whom no guard stops; it is put back each time."""

    database: Database

    def facts(self) -> list[str]:
        """The kinds of facts."""
        return list(TABLES)

    def fields(self) -> list[Field]:
        """All fields of all facts, but for those of which it is documented that nothing tells them."""
        each = ((name, column.name) for name, table in TABLES.items() for column in table.columns)
        return [field for field in each if field not in verify_rows.DOCUMENTED_EXCEPTIONS]

    def found(self) -> tuple[list[str], list[str]]:
        """What `doctor` and `audit verify` find in the ledger as it is."""
        with self.database.read() as session:
            doctor = [each for each in found_by_doctor(session) if "foreign keys" not in each]
            return doctor, found_by_audit_verify(session)

    def altered(self, field: Field) -> bool:
        """Whether both find that a field was altered."""
        table, column = TABLES[field[0]], TABLES[field[0]].columns[field[1]]
        return self._found(
            table,
            lambda row: [
                table.update().where(is_key(table, row)).values({column.name: altered(column, row[column.name])})
            ],
            column.name,
        )

    def removed(self, fact: str) -> bool:
        """Whether both find that a row is gone."""
        table = TABLES[fact]
        return self._found(table, lambda row: [table.delete().where(is_key(table, row))])

    def added(self, fact: str) -> bool:
        """Whether both find a row that was put in, like one that is there."""
        table = TABLES[fact]
        unique = {c.name for c in table.columns if c.unique or c.primary_key}
        unique |= {c.name for u in table.constraints if isinstance(u, UniqueConstraint) for c in u.columns}
        unique |= {c.name for i in table.indexes if i.unique for c in i.columns}
        return self._found(
            table,
            lambda row: [
                table.insert().values(
                    {name: altered(table.c[name], value) if name in unique else value for name, value in row.items()}
                )
            ],
        )

    def _found(self, table: Table, change: Callable[[dict[str, object]], list[Executable]], column: str = "id") -> bool:
        with behind_the_guards(self.database) as session:
            row = some_row(session, table, column)
            assert row is not None
            for statement in change(row):
                session.execute(statement)
            return all(found_by_both(session))


@contextmanager
def altered_ledger(ledgers: Ledgers, backend: str) -> Iterator[AlteredLedger]:
    """Such a ledger on a backend; on SQLite without triggers."""
    with ledgers.new(backend) as database:
        whole_story.tell(World.create(database))
        with database.engine.begin() as connection:
            if database.is_sqlite:
                for name in connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                    connection.exec_driver_sql(f"DROP TRIGGER {name}")
            else:
                for table, name in connection.execute(text(CONSTRAINTS)).all():
                    connection.exec_driver_sql(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}" CASCADE')
                for name in connection.scalars(text(UNIQUE_INDEXES)).all():
                    connection.exec_driver_sql(f'DROP INDEX "{name}"')
        yield AlteredLedger(database)


def remembered(home: ProjectHome) -> Database:
    """The ledger of a home, which remembers its newest entry."""
    return RollbackGuardedDatabase(home)


def open_again(home: ProjectHome, database: Database) -> None:
    """Open a ledger in a home, as every command does."""
    seen = rollback_guard.load_head(home)
    with database.read() as session:
        rollback_guard.require_seen(session, seen)


def cut_off(database: Database, last: int, *, forget: bool = True) -> None:
    """Cut the record after an entry, past every guard; with `forget` the ledger's own checkpoints are gone too."""
    truncate(database, last)
    if forget:
        superuser(database, FORGET_CHECKPOINTS)


def write_anew(database: Database, entry: int, person: str) -> None:
    """Say that another person has made an entry, hash everything since anew, and forget the ledger's checkpoints."""
    rewrite(database, {entry: {"actor": person}})
    superuser(database, FORGET_CHECKPOINTS)
