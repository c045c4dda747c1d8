"""The account in Rényi orders: charges of attempts beside the counters of rho, and their sums for each block.

A charge is of the whole plan, on each of its blocks, and is recorded when an attempt begins; the database lets nothing
be armed that no charge covers. Sums are of charges, so there is no counter that could differ from them. A request whose
assignment is no longer secret counts with its whole rho: the sums say so from the moment on at which it is recorded.
docs/proofs/secret-assignment.md has the proofs.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, select, text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services.audit.chain import Actor
from models_db.tables import Dataset, RenyiCharge, Request
from models_db.tables.accounts import CURVE_COLUMNS
from models_db.values.amounts import RenyiCurve
from models_db.writes.insert import insert_row


def charge_attempt(
    session: Session, actor: Actor, request_id: int, attempt: int, curve: RenyiCurve | None = None
) -> None:
    """Charge the whole plan of a request for an attempt from nothing, unless nothing was armed since the last charge.

    Args:
        curve: what the plan is charged in orders; None for its rho at each.

    Raises:
        RuleViolated: the attempt does not run, or another rule of the ledger forbids it.
    """
    if not needs_charge(session, request_id):
        return
    rho = int(session.scalar(_PLANNED_RHO, {"request": request_id}) or 0)
    columns = dict(zip(CURVE_COLUMNS, (curve or RenyiCurve.of_rho(rho)).values, strict=True))
    row = RenyiCharge(request_id=request_id, attempt=attempt, rho=rho, **columns, at=utc_now(), actor_id=actor.id)
    insert_row(session, row)


def needs_charge(session: Session, request_id: int) -> bool:
    """Return whether an attempt from nothing is charged: the request never was, or armed something since it was."""
    return bool(session.scalar(_NEEDS_CHARGE, {"request": request_id}))


_NEEDS_CHARGE = text("""
SELECT NOT EXISTS (SELECT 1 FROM renyi_charge c WHERE c.request_id = :request) OR EXISTS (
    SELECT 1 FROM invocation i CROSS JOIN hold h CROSS JOIN entry e WHERE i.request_id = :request
    AND i.attempt >= (SELECT max(c.attempt) FROM renyi_charge c WHERE c.request_id = :request)
    AND h.invocation_id = i.id AND h.rho > 0 AND e.hold_id = h.id AND e.kind = 'ARM')
""")
_PLANNED_RHO = text("""
SELECT coalesce(sum(q.rho * (q.last_instalment - q.first_instalment + 1)), 0) FROM planned_instalment q
WHERE q.request_id = :request
""")


def is_charged(session: Session, request_id: int) -> bool:
    """Return whether an attempt of the request was charged."""
    return session.scalar(select(RenyiCharge.id).where(RenyiCharge.request_id == request_id).limit(1)) is not None


def charged_requests(session: Session) -> set[int]:
    """Return the ids of all requests of which an attempt was charged."""
    return set(session.scalars(select(RenyiCharge.request_id).distinct()))


def list_charges(
    session: Session, account_id: int | None = None, request_id: int | None = None
) -> Sequence[RenyiCharge]:
    """Return all charges, or those of a root account or of a request, oldest first."""
    query = select(RenyiCharge).order_by(RenyiCharge.id)
    if request_id is not None:
        query = query.where(RenyiCharge.request_id == request_id)
    if account_id is not None:
        asked = select(Request.id).join(Dataset, Dataset.id == Request.dataset_id)
        query = query.where(RenyiCharge.request_id.in_(asked.where(Dataset.account_id == account_id)))
    return session.scalars(query).all()


def sums_of_blocks(
    session: Session, accounts: Collection[int], whole: Collection[int] = ()
) -> dict[int, dict[int, RenyiCurve]]:
    """Return the sum of all charges on each block of root accounts that has any, by account and the block's number.

    Args:
        whole: requests whose charges count with their rho at each order.
    """
    sums = ", ".join(
        f"sum(CASE WHEN s.known OR s.request_id IN :whole THEN s.rho ELSE s.{column} END)" for column in CURVE_COLUMNS
    )
    query = text(f"SELECT u.parent_id, u.block, {sums} {_CHARGES_OF_BLOCKS} GROUP BY u.parent_id, u.block").bindparams(
        bindparam("accounts", expanding=True), bindparam("whole", expanding=True)
    )
    found: dict[int, dict[int, RenyiCurve]] = {account_id: {} for account_id in accounts}
    for account_id, block, *values in session.execute(query, {"accounts": list(accounts), "whole": list(whole)}):
        found[account_id][int(block)] = RenyiCurve.of_values([int(value) for value in values])
    return found


_CHARGES_OF_BLOCKS = """
FROM account u JOIN dataset d ON d.account_id = u.parent_id JOIN request r ON r.dataset_id = d.id
JOIN planned_block k ON k.request_id = r.id AND u.block BETWEEN k.first_block AND k.last_block
JOIN (SELECT c.*, EXISTS (SELECT 1 FROM assignment_exposure w WHERE w.request_id = c.request_id)
    OR EXISTS (SELECT 1 FROM internal_view v JOIN artifact f ON f.id = v.artifact_id WHERE f.request_id = c.request_id)
    AS known FROM renyi_charge c) s ON s.request_id = r.id
WHERE u.parent_id IN :accounts
"""
