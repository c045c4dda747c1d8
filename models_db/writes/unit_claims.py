"""Claims of units: marks go into the ledger under a claim, and when the transaction ends the claim gets its digest.

A transaction makes one claim for an account, whatever units it brings: their number is private, and so is whether any
of them was new. Hence the salt, which is in the row and in no link.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import event, insert, text
from sqlalchemy.orm import Session

from models_db.database.base import moment
from models_db.tables import UnitClaim, UnitMark
from models_db.writes.database_errors import translated
from models_db.writes.pending_links import recorded

_MARKS, _SORTED = 5000, 50_000
_OPEN = "almoner_claims"
_MANY = 10_000


@event.listens_for(Session, "after_rollback")
def _forget(session: Session) -> None:
    """What was taken back is not claimed."""
    session.info.pop(_OPEN, None)


Unit = tuple[bytes, int]
"""A unit's mark, and the cohort in which the account first saw it."""


def claim_units(session: Session, account_id: int, units: Iterable[Unit], by: int | None = None) -> None:
    """Claim units for a root account; those it holds already stay, in their cohort and under their claim.

    Args:
        by: who claims them; PostgreSQL knows by itself.

    Raises:
        Denied: another account holds one of them, or one is neither known in that cohort nor new in the newest.
    """
    postgresql = session.get_bind().dialect.name == "postgresql"
    claim = None if postgresql else _open(session, account_id, by)
    with translated():
        for batch in _batched(units):
            if claim is None:
                marks, cohorts = [mark for mark, _ in batch], [cohort for _, cohort in batch]
                session.execute(_CLAIM, {"root": account_id, "marks": marks, "cohorts": cohorts})
            else:
                statement = insert(UnitMark).prefix_with("OR IGNORE")
                rows = [{"mark": mark, "account_id": account_id, "cohort": cohort, "claim": claim}
                        for mark, cohort in batch]  # fmt: skip
                session.execute(statement, rows)
        if claim is None:  # a version without units makes its claim, too
            session.execute(_CLAIM, {"root": account_id, "marks": [], "cohorts": []})
            recorded(session, "unit_claim", [{"id": 0}])


_CLAIM = text("SELECT almoner_claim_units(:root, CAST(:marks AS bytea[]), CAST(:cohorts AS integer[]))")


def _open(session: Session, account_id: int, by: int | None) -> int:
    """The claim of this transaction for an account, on SQLite."""
    claims: dict[int, tuple[int, int | None]] = session.info.setdefault(_OPEN, {})
    if account_id not in claims:
        newest = session.scalar(text("SELECT max(id) FROM unit_claim")) or 0
        claims[account_id] = (max([newest, *(number for number, _ in claims.values())]) + 1, by)
        recorded(session, "unit_claim", [{"id": claims[account_id][0]}])
    return claims[account_id][0]


def close_claims(session: Session) -> None:
    """Give the claims of this transaction their rows, on SQLite."""
    claims: dict[int, tuple[int, int | None]] = session.info.pop(_OPEN, {})
    for account_id, (number, by) in claims.items():
        salt = secrets.token_hex(32)
        row = {"id": number, "account_id": account_id, "salt": salt, "digest": _digest(session, number, salt),
               "created_at": moment(), "created_by": by}  # fmt: skip
        session.execute(insert(UnitClaim), [row])


def _digest(session: Session, claim: int, salt: str) -> str:
    query = text("SELECT claim, mark, account_id, cohort FROM unit_mark WHERE claim = :claim ORDER BY mark")
    rows = session.connection().execute(query, {"claim": claim}, execution_options={"yield_per": _MANY})
    return digests({claim: salt}, rows).get(claim, "")


def digests(salts: Mapping[int, str], marks: Iterable[Any]) -> dict[int, str]:
    """The digest of each claim.

    Args:
        marks: claim, mark, account and cohort of every unit, in the order of the marks; those of no claim are left out.
    """
    seen = {number: hashlib.sha256(salt.encode()) for number, salt in salts.items()}
    for claim, mark, account, cohort in marks:
        if claim in seen:
            seen[claim].update(_spelled(bytes(mark), account, cohort))
    return {number: each.hexdigest() for number, each in seen.items()}


def _spelled(mark: bytes, account: int, cohort: int) -> bytes:
    return len(mark).to_bytes(4, "big") + mark + account.to_bytes(8, "big") + cohort.to_bytes(8, "big")


def _batched(items: Iterable[Unit]) -> Iterator[list[Unit]]:
    """In batches of _MARKS; of every _SORTED of them in order, because neighbours lie on one page of the index."""
    coming = iter(items)
    while near := sorted(islice(coming, _SORTED)):
        yield from (near[first : first + _MARKS] for first in range(0, len(near), _MARKS))
