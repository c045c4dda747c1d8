"""The one door to the ledger's tables: every row that is written goes through `record`, every lock is taken here.

SQLite: plain inserts; the guards are triggers, and there is one writer at a time. PostgreSQL: functions that belong to
the owner of the schema (migration 0002), because application roles may write no table; they put the caller's login and
the server's clock where a client could lie.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Table, insert, text
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from models_db.base import Base, moment
from models_db.chain import link_hash
from models_db.services.denials import ClockWentBack, Denied, translated
from models_db.tables import Lease, UnitMark
from models_db.wire import Statement

Row = TypeVar("Row", bound=Base)
Values = dict[str, Any]

_MARKS, _SORTED = 5000, 50_000
_STAMPED = ("id", "at", "created_at")


def record(session: Session, row: Row) -> Row:
    """Insert one row; it comes back with its number.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    record_all(session, [row])
    return row


def record_all(session: Session, rows: Sequence[Row]) -> None:
    """Insert rows of one table, one after the other.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    if not rows:
        return
    table = cast("Table", type(rows[0]).__table__)
    given = [_values(table, row) for row in rows]
    with refusals(session):
        made = (_through_function if on_postgresql(session) else _one_by_one)(session.connection(), table, given)
    for row, stored in zip(rows, made, strict=True):
        for name, value in stored.items():
            setattr(row, name, value)


@contextmanager
def refusals(session: Session) -> Iterator[None]:
    """Turn what the database refuses inside the block into a named error.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    try:
        with translated():
            yield
    except Denied:
        _require_clock(session)  # roles and approvals that have not begun yet are denied, too
        raise


def _require_clock(session: Session) -> None:
    if not on_postgresql(session):
        newest = session.connection().execute(_NEWEST).scalar()
        if newest is not None and moment() < newest:
            raise ClockWentBack


_NEWEST = text("SELECT y.at FROM audit y WHERE y.seq = (SELECT k.seq FROM audit_head k)")


def _one_by_one(connection: Connection, table: Table, given: Sequence[Values]) -> list[Values]:
    statement = _insertion(table)
    return [{"id": connection.execute(statement, values).scalar_one()} for values in given]


@lru_cache
def _insertion(table: Table) -> ReturningInsert[Any]:
    return insert(table).returning(table.c.id)


def _through_function(connection: Connection, table: Table, given: Sequence[Values]) -> list[Values]:
    columns = sorted({name for each in given for name in each})
    whole = [{name: each.get(name) for name in columns} for each in given]
    stored = connection.execute(_RECORD, {"kind": table.name, "rows": json.dumps(whole)}).scalars()
    return [{name: each[name] for name in _STAMPED if name in each} for each in stored]


_RECORD = text("SELECT made FROM almoner_record(:kind, CAST(:rows AS jsonb)) made")


def _values(table: Table, row: Base) -> Values:
    """What the row says; what it leaves open is the database's."""
    return {name: value for name, value in vars(row).items() if value is not None and name in table.c}


def append_link(
    session: Session, actor: str, kind: str, body: str, dataset: str | None, request_id: int | None
) -> tuple[int, str]:
    """Add a link to the audit chain; returns its number and hash. The head is locked from here to the end.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    given: Values = {"actor": actor, "kind": kind, "dataset": dataset, "request_id": request_id, "body": body}
    with translated():
        if on_postgresql(session):
            number, made = _APPEND.rows(session, given)[0]
            return number, made
        ((last, previous),) = _HEAD.rows(session, {})
        link = {"seq": last + 1, "prev_hash": previous, "at": moment(), **given}
        made = link_hash(**link)
        _LINK.insert(session, {**link, "row_hash": made})
        return last + 1, made


_APPEND = Statement("SELECT seq, hash FROM almoner_append(:actor, :kind, :dataset, :request_id, :body)")
_HEAD = Statement("SELECT seq, hash FROM audit_head")
_LINK = Statement("""
INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)
VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :dataset, :request_id, :body)
""")


def lock_accounts(session: Session, root: int, blocks: Sequence[int]) -> None:
    """Until the transaction ends nobody else moves these accounts, nor the envelopes and windows of their root."""
    if on_postgresql(session):
        _LOCK_ACCOUNTS.rows(session, {"root": root, "blocks": list(blocks)})


def when_locked(session: Session, root: int, blocks: Sequence[int], query: Statement, given: Values) -> list[Any]:
    """What is found once these accounts are locked (`lock_accounts`)."""
    if on_postgresql(session):
        return query.after(session, _LOCK_ACCOUNTS, {"root": root, "blocks": list(blocks)}, given)
    return query.rows(session, given)


_LOCK_ACCOUNTS = Statement("SELECT almoner_lock_accounts(:root, :blocks)")


def lock_request(session: Session, number: int) -> None:
    """Until the transaction ends nobody else decides on this request."""
    if on_postgresql(session):
        session.execute(text("SELECT almoner_lock_request(:number)"), {"number": number})


def lock_motion(session: Session, number: int) -> None:
    """Until the transaction ends nobody else decides on this motion."""
    if on_postgresql(session):
        session.execute(text("SELECT almoner_lock_motion(:number)"), {"number": number})


def take_lease(session: Session, lease: Lease) -> None:
    """Put down who runs an attempt, in place of the attempt before."""
    if on_postgresql(session):
        statement = text("SELECT almoner_lease(:request_id, :attempt, :token, :owner, :expires_at)")
        with translated():
            session.execute(statement, _lease_values(lease))
    else:
        session.merge(lease)
        session.flush()


def renew_lease(session: Session, request_id: int, token: str, expires_at: str) -> bool:
    """Prolong a lease; False if it is somebody else's now."""
    statement = _RENEW_THERE if on_postgresql(session) else _RENEW
    found = statement.rows(session, {"request_id": request_id, "token": token, "expires_at": expires_at})
    return any(bool(renewed) for (renewed,) in found)


_RENEW_THERE = Statement("SELECT almoner_renew(:request_id, :token, :expires_at)")
_RENEW = Statement("""
UPDATE lease SET expires_at = :expires_at WHERE request_id = :request_id AND token = :token RETURNING request_id
""")


def _lease_values(lease: Lease) -> Mapping[str, Any]:
    return {column.name: getattr(lease, column.name) for column in Lease.__table__.columns}


Unit = tuple[bytes, int]
"""A unit's mark, and the cohort in which the account first saw it."""


def claim_units(session: Session, account_id: int, units: Iterable[Unit]) -> None:
    """Claim units for a root account; those it holds already stay, in their cohort.

    Raises:
        Denied: another account holds one of them, or one is neither known in that cohort nor new in the newest.
    """
    with translated():
        for batch in _batched(units):
            if on_postgresql(session):
                marks, cohorts = [mark for mark, _ in batch], [cohort for _, cohort in batch]
                session.execute(_CLAIM, {"root": account_id, "marks": marks, "cohorts": cohorts})
            else:
                statement = insert(UnitMark).prefix_with("OR IGNORE")
                rows = [{"mark": mark, "account_id": account_id, "cohort": cohort} for mark, cohort in batch]
                session.execute(statement, rows)


_CLAIM = text("SELECT almoner_claim_units(:root, CAST(:marks AS bytea[]), CAST(:cohorts AS integer[]))")


def _batched(items: Iterable[Unit]) -> Iterable[list[Unit]]:
    """In batches of _MARKS; of every _SORTED of them in order, because neighbours lie on one page of the index."""
    coming = iter(items)
    while near := sorted(islice(coming, _SORTED)):
        yield from (near[first : first + _MARKS] for first in range(0, len(near), _MARKS))


def on_postgresql(session: Session) -> bool:
    """Whether this ledger is on PostgreSQL."""
    return session.get_bind().dialect.name == "postgresql"
