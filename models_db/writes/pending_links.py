"""Rows that a session has added and that have no link yet; `models_db.writes.links` makes their link."""

from collections.abc import Iterable

from sqlalchemy import event
from sqlalchemy.orm import Session

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
