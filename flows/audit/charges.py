"""Charges in Rényi orders, each compared with what the plan of its request costs.

Whoever records a charge could record less than an attempt costs, and the database cannot compute it. So an account's
charges are computed again before an attempt on it begins, and all of them by `almoner doctor`.
"""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from models_db.errors import Refused
from models_db.services.audit.stored_text import request_body
from models_db.services.catalogue import requests
from models_db.services.lifecycle import renyi_account
from models_db.tables import RenyiCharge
from tasks.planning.secret_assignment import curve_of_plan


def differing_charges(session: Session, charges: Iterable[RenyiCharge]) -> list[int]:
    """Return the requests of those charges that are not what their plans cost."""
    return [charge.request_id for charge in charges if not _is_derived(session, charge)]


def require_charges_derived(session: Session, account_id: int) -> None:
    """Check that a root account was charged what follows from the texts of its requests.

    Raises:
        ChargeDiffers: some charge is another.
        LedgerAltered: the text of a request is not the one that its digest names.
    """
    differing = differing_charges(session, renyi_account.list_charges(session, account_id))
    if differing:
        raise ChargeDiffers(differing[0])


def _is_derived(session: Session, charge: RenyiCharge) -> bool:
    try:
        plan = request_body(requests.find_request(session, charge.request_id))["plan"]
        rho = sum(int(part["rho"]) for each in plan["invocations"] for part in each["instalments"])
        return (charge.rho, charge.curve) == (rho, curve_of_plan(plan))
    except (KeyError, TypeError, ValueError):
        return False


class ChargeDiffers(Refused):
    """A charge in Rényi orders is not what the plan of its request costs."""

    def __init__(self, request_id: int) -> None:
        super().__init__(
            f"What request {request_id} was charged in Rényi orders is not what its plan costs.",
            "Run nothing on the account. `almoner audit log` shows who recorded it; `almoner doctor` lists all cases.",
            {"request": request_id},
        )
