"""Inserts of the ledger's tables: every row is written here, and waits for its transaction's link.

The guards are triggers. On PostgreSQL one of them (`migrations.schema.logins`) gives a row its number, and to one of a
login its time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import Table, event, insert, text
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from models_db.database.base import Base, utc_now
from models_db.tables import Lease
from models_db.values.untrusted_text import is_transferable
from models_db.writes.database_errors import ClockWentBack, RuleViolated, form_rule, translate_database_errors

_PENDING_KEY = "almoner_recorded"

IdRange = tuple[int, int]


@event.listens_for(Session, "after_rollback")
def _forget_pending(session: Session) -> None:
    """Forget the pending rows of a transaction that was rolled back."""
    session.info.pop(_PENDING_KEY, None)


def add_pending(session: Session, table: str, ids: Iterable[int]) -> None:
    """Add rows of a table: those of a transaction have one number after the other."""
    pending: dict[str, IdRange] = session.info.setdefault(_PENDING_KEY, {})
    numbers = [*ids, *pending.get(table, ())]
    if numbers:
        pending[table] = (min(numbers), max(numbers))


def take_pending(session: Session) -> list[tuple[str, IdRange]]:
    """Return the first and the last pending row of each table, in the order of their names, and forget them."""
    pending: dict[str, IdRange] = session.info.pop(_PENDING_KEY, {})
    return sorted(pending.items())


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


@dataclass(frozen=True)
class PlannedHold:
    """Mechanism to record, and its holds: account, instalment, rho and delta of each."""

    invocation: Mapping[str, Any]
    holds: Sequence[tuple[int, int, int, int]]


def reserve(session: Session, actor_id: int, plan: Sequence[PlannedHold]) -> None:
    """Record mechanisms, their holds, and an entry HOLD for each of these.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        connection = session.connection()
        for planned in plan:
            made = {**planned.invocation, "created_at": utc_now(), "created_by": actor_id}
            number = connection.execute(_INSERT_INVOCATION, made).scalar_one()
            holds = {"invocation_id": number, "holds": json.dumps(planned.holds)}
            entries = {"invocation_id": number, "at": utc_now(), "actor_id": actor_id}
            add_pending(session, "invocation", [number])
            add_pending(session, "hold", connection.execute(_INSERT_HOLDS[connection.dialect.name], holds).scalars())
            add_pending(session, "entry", connection.execute(_ENTER_HOLDS, entries).scalars())


def record_entries(session: Session, actor_id: int, entries: Sequence[tuple[int, str]]) -> None:
    """Record entries, each a hold and its step.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        step = {"entries": json.dumps(entries), "at": utc_now(), "actor_id": actor_id}
        connection = session.connection()
        add_pending(session, "entry", connection.execute(_INSERT_ENTRIES[connection.dialect.name], step).scalars())


_INSERT_INVOCATION = text("""
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
VALUES (:request_id, :attempt, :sequence, :mechanism, :event, :relation, :rng_kind, :device, :code_digest,
        :libraries, :idem_key, :created_at, :created_by) RETURNING id
""")
# The texts stay the same however many rows there are: to plan the guards anew costs more than to ask them.
_INSERT_HOLDS = {
    "sqlite": text("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT :invocation_id, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'),
       json_extract(j.value, '$[3]') FROM json_each(:holds) j ORDER BY j.key RETURNING id
"""),
    "postgresql": text("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT :invocation_id, CAST(j.hold ->> 0 AS BIGINT), CAST(j.hold ->> 1 AS INTEGER), CAST(j.hold ->> 2 AS BIGINT),
       CAST(j.hold ->> 3 AS BIGINT) FROM json_array_elements(CAST(:holds AS JSON)) WITH ORDINALITY j(hold, key)
 ORDER BY j.key RETURNING id
"""),
}
_ENTER_HOLDS = text("""
INSERT INTO entry (hold_id, kind, at, actor_id) SELECT h.id, 'HOLD', :at, :actor_id FROM hold h
WHERE h.invocation_id = :invocation_id ORDER BY h.id RETURNING id
""")
_INSERT_ENTRIES = {
    "sqlite": text("""
INSERT INTO entry (hold_id, kind, at, actor_id)
SELECT json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), :at, :actor_id FROM json_each(:entries) j
 ORDER BY j.key RETURNING id
"""),
    "postgresql": text("""
INSERT INTO entry (hold_id, kind, at, actor_id)
SELECT CAST(j.entry ->> 0 AS BIGINT), j.entry ->> 1, :at, :actor_id
  FROM json_array_elements(CAST(:entries AS JSON)) WITH ORDINALITY j(entry, key) ORDER BY j.key RETURNING id
"""),
}
