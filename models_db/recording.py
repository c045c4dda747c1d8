"""The one door to the ledger's tables: every row that is written goes through `record`, every lock is taken here.

SQLite: plain inserts; the guards are triggers, and there is one writer at a time. PostgreSQL: functions that belong to
the owner of the schema (migration 0002), because application roles may write no table; they put the caller's login and
the server's clock where a client could lie.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import Table, insert, select, text, update
from sqlalchemy.orm import Session

from models_db.base import Base, moment
from models_db.services.denials import translated
from models_db.tables import Audit, AuditHead, Lease, UnitMark

Row = TypeVar("Row", bound=Base)

_MARKS = 5000
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
    with translated():
        if on_postgresql(session):
            _through_function(session, table, rows)
        else:
            for row in rows:
                made = session.execute(insert(table).values(_values(table, row)).returning(table.c.id)).scalar_one()
                row.id = made  # type: ignore[attr-defined]


def _through_function(session: Session, table: Table, rows: Sequence[Row]) -> None:
    given = [_values(table, row) for row in rows]
    columns = {name for each in given for name in each}
    whole = [{name: each.get(name) for name in sorted(columns)} for each in given]
    statement = text("SELECT made FROM almoner_record(:kind, CAST(:rows AS jsonb)) made")
    made = session.scalars(statement, {"kind": table.name, "rows": json.dumps(whole)}).all()
    for row, stored in zip(rows, made, strict=True):
        for name in _STAMPED:
            if name in stored:
                setattr(row, name, stored[name])


def _values(table: Table, row: Base) -> dict[str, Any]:
    """What the row says; what it leaves open is the database's."""
    found = {column.name: getattr(row, column.name) for column in table.columns}
    return {name: value for name, value in found.items() if value is not None}


def append_link(
    session: Session, actor: str, kind: str, body: str, dataset: str | None, request_id: int | None
) -> tuple[int, str]:
    """Add a link to the audit chain; returns its number and hash. The head is locked from here to the end.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    given = {"actor": actor, "kind": kind, "dataset": dataset, "request_id": request_id, "body": body}
    with translated():
        if on_postgresql(session):
            row = session.execute(
                text("SELECT seq, hash FROM almoner_append(:actor, :kind, :dataset, :request_id, :body)"), given
            ).one()
            return int(row.seq), str(row.hash)
        seq, previous = session.execute(_HEAD).one()
        link = Audit(seq=seq + 1, prev_hash=previous, at=moment(), **given)
        link.row_hash = link.computed_hash
        session.execute(insert(Audit), _link_values(link))
        return link.seq, link.row_hash


_HEAD = select(AuditHead.seq, AuditHead.hash)


def _link_values(link: Audit) -> dict[str, Any]:
    return {column.name: getattr(link, column.name) for column in Audit.__table__.columns}


def lock_accounts(session: Session, root: int, blocks: Sequence[int]) -> None:
    """Until the transaction ends nobody else moves these accounts, nor the envelopes and windows of their root."""
    if on_postgresql(session):
        session.execute(text("SELECT almoner_lock_accounts(:root, :blocks)"), {"root": root, "blocks": list(blocks)})


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
    if on_postgresql(session):
        statement = text("SELECT almoner_renew(:request_id, :token, :expires_at)")
        given = {"request_id": request_id, "token": token, "expires_at": expires_at}
        return bool(session.scalar(statement, given))
    renewed = update(Lease).where(Lease.request_id == request_id, Lease.token == token).values(expires_at=expires_at)
    return session.execute(renewed).rowcount == 1  # type: ignore[attr-defined, no-any-return]


def _lease_values(lease: Lease) -> Mapping[str, Any]:
    return {column.name: getattr(lease, column.name) for column in Lease.__table__.columns}


def claim_units(session: Session, account_id: int, marks: Iterable[bytes]) -> None:
    """Claim units for a root account; those it holds already stay.

    Raises:
        Denied: another account holds one of them.
    """
    with translated():
        for batch in _batched(marks):
            if on_postgresql(session):
                given = {"root": account_id, "marks": batch}
                session.execute(text("SELECT almoner_claim_units(:root, CAST(:marks AS bytea[]))"), given)
            else:
                statement = insert(UnitMark).prefix_with("OR IGNORE")
                session.execute(statement, [{"mark": mark, "account_id": account_id} for mark in batch])


def _batched(items: Iterable[bytes]) -> Iterable[list[bytes]]:
    batch: list[bytes] = []
    for item in items:
        batch.append(item)
        if len(batch) == _MARKS:
            yield batch
            batch = []
    if batch:
        yield batch


def on_postgresql(session: Session) -> bool:
    """Whether this ledger is on PostgreSQL."""
    return session.get_bind().dialect.name == "postgresql"
