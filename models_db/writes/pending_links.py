"""Rows that a session has recorded and that have no link yet; `models_db.writes.links` makes links of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from models_db.values.request_state import RequestState
from models_db.writes.link_content import BLOCK_RANK, TABLE_RANKS

_PENDING_KEY = "almoner_recorded"
_RANKED_FIRST = (RequestState.RUNNING, RequestState.WITHDRAWN)
_ENDED_ATTEMPT = (RequestState.RUNNING, RequestState.APPROVED)


@event.listens_for(Session, "after_rollback")
def _forget_pending(session: Session) -> None:
    """Forget the pending rows of a transaction that was rolled back."""
    session.info.pop(_PENDING_KEY, None)


@dataclass(frozen=True)
class PendingRow:
    """A row that has no link yet."""

    table: str
    id: int
    rank: int


def add_pending(session: Session, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add recorded rows as pending: each with its `id`, accounts and transitions with their values."""
    pending: list[PendingRow] = session.info.setdefault(_PENDING_KEY, [])
    pending += [PendingRow(table, row["id"], _row_rank(table, row)) for row in rows]


def _row_rank(table: str, row: Mapping[str, Any]) -> int:
    """Return the rank of a row, as `migrations.schema.audit_log.rank_of_row` does."""
    if table == "account" and row.get("parent_id") is not None:
        return BLOCK_RANK
    steps = row.get("from_state"), row.get("to_state")
    runs = table == "transition" and (steps[1] in _RANKED_FIRST or steps == _ENDED_ATTEMPT)
    return 1 if runs else TABLE_RANKS[table]


def take_pending(session: Session) -> list[PendingRow]:
    """Return the pending rows and clear them."""
    pending: list[PendingRow] = session.info.pop(_PENDING_KEY, [])
    return pending


def group_by_link(pending: Sequence[PendingRow]) -> list[list[PendingRow]]:
    """Return the rows of each link, in each the one that it is about first."""
    top = min((row.rank for row in pending), default=0)
    groups: list[list[PendingRow]] = []
    before: list[PendingRow] = []
    for row in pending:
        if row.rank == top:
            groups.append([row, *before])
            before = []
        else:
            (groups[-1] if groups else before).append(row)
    return groups
