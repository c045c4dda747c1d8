"""Inserts of the ledger's tables: every row is written here, or a step of the budget at once in `budget_steps`.

The guards are triggers. On PostgreSQL one of them (`migrations.schema.logins`) gives a row its number, and to one of a
login its time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import Table, insert, text
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from models_db.database.base import Base, utc_now
from models_db.tables import Lease
from models_db.values.printable_text import is_transferable
from models_db.writes.database_errors import ClockWentBack, RuleViolated, form_rule, translate_database_errors
from models_db.writes.pending_links import add_pending

Row = TypeVar("Row", bound=Base)
Values = dict[str, Any]

_STAMPED_COLUMNS = ("id", "at", "created_at")
"""What the database gives a row: its number; to one of a login also its time."""


def insert_row(session: Session, row: Row) -> Row:
    """Insert one row; it comes back with its number.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    insert_rows(session, [row])
    return row


def insert_rows(session: Session, rows: Sequence[Row]) -> None:
    """Insert rows of one table, one after the other.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    if not rows:
        return
    table = cast("Table", type(rows[0]).__table__)
    values = [_row_values(table, row) for row in rows]
    with translate_refusals(session):
        statement, connection = _insert_statement(table), session.connection()
        stored_rows = [connection.execute(statement, each).mappings().one() for each in values]
    for row, stored in zip(rows, stored_rows, strict=True):
        for name, value in stored.items():
            setattr(row, name, value)
    add_pending(session, table.name, [stored["id"] for stored in stored_rows])
    if table.name == "cohort":
        add_pending(session, "account", session.scalars(_BLOCKS_OF_COHORTS, {"first": stored_rows[0]["id"]}))


def insert_many(session: Session, kind: type[Base], rows: Sequence[Values]) -> None:
    """Insert many rows whose numbers are not needed, in one statement.

    Args:
        kind: the table.
        rows: the values of each row, of the same columns in every one of them.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said; then none of them is
        recorded.
    """
    if not rows:
        return
    with translate_refusals(session):
        session.connection().execute(insert(cast("Table", kind.__table__)), list(rows))
        last = session.scalar(text(f"SELECT max(id) FROM {kind.__tablename__}")) or 0  # noqa: S608
        add_pending(session, kind.__tablename__, [last - len(rows) + 1, last])


# The database opens the blocks of a cohort.
_BLOCKS_OF_COHORTS = text("""
SELECT a.id FROM cohort c JOIN account r ON r.id = c.account_id
JOIN account a ON a.parent_id = r.id AND a.block / r.blocks = c.number - 1
WHERE c.id >= :first
""")


@contextmanager
def translate_refusals(session: Session) -> Iterator[None]:
    """Turn refusals of the database inside the block into named errors.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    try:
        with translate_database_errors():
            yield
    except RuleViolated:
        _require_clock(session)  # roles and approvals that have not begun yet are denied, too
        raise


def _require_clock(session: Session) -> None:
    if not on_postgresql(session):
        newest = session.connection().execute(_NEWEST_LINK_TIME).scalar()
        if newest is not None and utc_now() < newest:
            raise ClockWentBack


_NEWEST_LINK_TIME = text("SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k)")


@lru_cache
def _insert_statement(table: Table) -> ReturningInsert[Any]:
    return insert(table).returning(*(table.c[name] for name in _STAMPED_COLUMNS if name in table.c))


def _row_values(table: Table, row: Base) -> Values:
    """Return the values that the row sets; the database fills in the others.

    Raises:
        RuleViolated: a text holds a NUL or half of a surrogate pair, which no driver hands to a database alike.
    """
    values = {name: value for name, value in vars(row).items() if value is not None and name in table.c}
    for name, value in values.items():
        if isinstance(value, str) and not is_transferable(value):
            raise RuleViolated(form_rule(f"{table.name}_{name}"))
    return values


def take_lease(session: Session, lease: Lease) -> None:
    """Record the lease of an attempt, in place of the attempt before."""
    if on_postgresql(session):
        statement = text("SELECT almoner_lease(:request_id, :attempt, :token, :owner, :expires_at)")
        with translate_database_errors():
            session.execute(statement, _lease_values(lease))
    else:
        session.merge(lease)
        session.flush()


def renew_lease(session: Session, request_id: int, token: str, expires_at: str) -> bool:
    """Prolong a lease; return False if another attempt has taken it."""
    statement = _RENEW_FUNCTION if on_postgresql(session) else _RENEW_LEASE
    renewal = {"request_id": request_id, "token": token, "expires_at": expires_at}
    return bool(session.execute(statement, renewal).scalar())


_RENEW_FUNCTION = text("SELECT almoner_renew(:request_id, :token, :expires_at)")
_RENEW_LEASE = text("""
UPDATE lease SET expires_at = :expires_at WHERE request_id = :request_id AND token = :token RETURNING request_id
""")


def _lease_values(lease: Lease) -> Mapping[str, Any]:
    return {column.name: getattr(lease, column.name) for column in Lease.__table__.columns}


def on_postgresql(session: Session) -> bool:
    """Return whether this ledger is on PostgreSQL."""
    return session.get_bind().dialect.name == "postgresql"
