"""Charges of releases, compared with what their plans cost.

The database refuses an artifact of which some part was not armed. Whoever goes past its guards is found here: the texts
of the requests say what each block has to be charged, and the holds and entries what it was charged.

Whoever records a charge in Rényi orders could record less than an attempt costs, and the database cannot compute it.
So an account's charges are computed again wherever its sums are asked for (`governance.exposure.orders_budgets`): one
that differs counts with its whole rho, which no order passes. The request that has it can neither be run nor published;
it keeps no other from running. `almoner doctor` names it.
"""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from models_db.errors import Refused
from models_db.services import artifacts, budget, requests
from models_db.services.audit.stored_text import request_body
from models_db.tables import RenyiCharge
from models_db.values.amounts import Amount
from models_db.values.standing_terms import cost_of
from tasks.planning.secret_assignment import curve_of_plan
from tasks.release.signatures.publisher_statements import Charged


def charge_of_release(session: Session, request_id: int) -> Charged:
    """Return the charge of a release, once every part of its plan was armed on every block of it.

    What attempts that failed have lost beside it is left out.

    Raises:
        NotCharged: some part was not, or at another amount; or the parts of a mechanism do not cover its loss.
        ChargeDiffers: it was charged in Rényi orders what its plan does not cost.
        LedgerAltered: the text of the request is not the one that its digest names.
    """
    plan = request_body(requests.find_request(session, request_id))["plan"]
    if any(sum(int(part[unit]) for part in each["instalments"]) < int(each["event"][unit])
           for each in plan["invocations"] for unit in ("rho", "delta")):  # fmt: skip
        raise _not_charged(request_id, plan["blocks"])
    require_charges_derived(session, request_id)
    parts = [
        (sequence, instalment, int(part["rho"]), int(part["delta"]))
        for sequence, each in enumerate(plan["invocations"])
        for instalment, part in enumerate(each["instalments"])
    ]
    armed = budget.armed_parts(session, request_id)
    if missing := {(block, *part) for block in plan["blocks"] for part in parts} - armed:
        raise _not_charged(request_id, sorted({block for block, *_ in missing}))
    amount = Amount(sum(rho for *_, rho, _ in parts), sum(delta for *_, delta in parts))
    return Charged(blocks=tuple(plan["blocks"]), rho=amount.rho_text, delta=amount.delta_text)


def uncharged_releases(session: Session) -> list[int]:
    """Return the requests that have an artifact, but not the charge of their plan."""
    return [made.request_id for made in artifacts.list_all(session) if not _is_charged(session, made.request_id)]


def _is_charged(session: Session, request_id: int) -> bool:
    try:
        charge_of_release(session, request_id)
    except (Refused, KeyError, TypeError, ValueError):
        return False
    return True


def differing_charges(session: Session, charges: Iterable[RenyiCharge]) -> list[int]:
    """Return the requests of those charges that are not what their plans cost."""
    return [charge.request_id for charge in charges if not _is_derived(session, charge)]


def require_charges_derived(session: Session, request_id: int) -> None:
    """Check that what a request was charged in Rényi orders, if anything, is what its plan costs.

    Raises:
        ChargeDiffers: some charge is another.
        LedgerAltered: the text of the request is not the one that its digest names.
    """
    if differing_charges(session, budget.list_charges(session, request_id=request_id)):
        raise Refused(
            f"What request {request_id} was charged in Rényi orders is not what its plan costs.",
            "It can neither be run nor published: request it anew. `almoner audit log` shows who recorded the charge;"
            " `almoner doctor` lists all cases.",
            {"request": request_id},
            code="ChargeDiffers",
        )


def _is_derived(session: Session, charge: RenyiCharge) -> bool:
    try:
        body = request_body(requests.find_request(session, charge.request_id))
        return (charge.rho, charge.curve) == (cost_of(body).rho, curve_of_plan(body["plan"]))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # no text that almoner would write
        return False


def _not_charged(request_id: int, blocks: list[int]) -> Refused:
    numbers = ", ".join(map(str, blocks))
    return Refused(
        f"The ledger has not charged what request {request_id} was approved for, on block {numbers}.",
        "Do not publish it: its texts cost more than the budget shows. `almoner audit log --release"
        f" {request_id}` shows who ran it; `almoner doctor` lists all cases.",
        {"request": request_id, "blocks": blocks},
        code="NotCharged",
    )
