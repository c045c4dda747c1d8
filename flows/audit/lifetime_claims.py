"""Lifetime claims and standing authorisations, each compared with its own text before it is used.

`models_db.services.datasets` returns the rows as they are; flows that rest on a claim read it here. If the
amounts do not follow from the text that people read, the only possible decision is a rejection.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from models_db.errors import AlmonerError, Refused
from models_db.services import datasets, proposals, requests
from models_db.services.audit.stored_text import configuration_of
from models_db.services.datasets import LifetimeClaim
from models_db.tables import Dataset, Proposal, Request
from models_db.values.amounts import Amount
from models_db.values.request_state import RequestState
from models_db.values.standing_terms import cost_of
from tasks.accounting.lifetime_claims import require_derived


def claims_of(session: Session, dataset: Dataset) -> tuple[LifetimeClaim, ...]:
    """Return every lifetime claim of the dataset's account, the one in force last, with the amounts derived from it.

    Raises:
        AmountsDiffer: the stored amounts of a claim, or the caps of the account or of a block, differ from these.
    """
    what = f"The lifetime claim of dataset {dataset.name!r}"
    derived = tuple(require_derived(what, claim) for claim in datasets.list_claims(session, dataset))
    for cap in datasets.distinct_caps(session, dataset.account_id):
        require_derived(what, replace(derived[-1], cap=cap))
    return derived


def lifetime_of(session: Session, dataset: Dataset) -> LifetimeClaim:
    """Return the lifetime claim in force of the dataset's account.

    Raises:
        AmountsDiffer: see `claims_of`.
    """
    return claims_of(session, dataset)[-1]


def require_proposal_amounts(proposal: Proposal) -> None:
    """Check that a proposal's amounts follow from its text; a retraction has none.

    Raises:
        AmountsDiffer: the amounts of a cap do not follow from its epsilon and delta.
        AuthorisationDiffers: the amounts of a standing authorisation differ from the cost of its configuration.
    """
    if proposal.kind == "cap":
        require_derived(f"Proposal {proposal.id}", datasets.claim_of(proposal))
    elif proposal.kind == "standing":
        most = Amount(proposal.rho or 0, proposal.delta_fail or 0)
        require_authorisation(proposal.id, most, configuration_of(proposal))


def require_authorised(session: Session, request: Request) -> None:
    """Check that the standing authorisation of a request, if it has one, is as approved and for exactly its text.

    The database compares digests of configurations that the requester has stated, and cannot compute them.

    Raises:
        ProposalAltered: it was altered, or is for another configuration than that of the request's text.
        AuthorisationDiffers: its amounts differ from the cost of its configuration.
        LedgerAltered: the text of the request is not the one that its digest names.
    """
    if request.standing_id is not None:
        proposals.require_authorisation_intact(session, request)
        require_proposal_amounts(proposals.find_proposal(session, request.standing_id))


def unauthorised_requests(session: Session) -> list[int]:
    """Return the requests whose standing authorisation is not for their text, but for those that were given up."""
    wrong = [one.id for one in requests.list_all(session) if not _is_authorised(session, one)]
    return [number for number in wrong if requests.state_of(session, number) not in GIVEN_UP]


GIVEN_UP = (RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.DISCARDED, RequestState.RETRACTED)


def _is_authorised(session: Session, request: Request) -> bool:
    try:
        require_authorised(session, request)
    except (Refused, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def require_authorisation(number: int, most: Amount, configuration: Mapping[str, Any]) -> None:
    """Check that a standing authorisation allows each run the cost of its configuration, and no more than it claims.

    Raises:
        AuthorisationDiffers: the allowed amount differs, or the stored cost is wrong.
    """
    from tasks.mechanisms.registry import recompute  # loads OpenDP
    from tasks.release.record import claim_of_plan, planned_events

    try:
        events = planned_events(configuration)
        claim_of_plan(events, configuration)
        differs = [event.mechanism for event in events if recompute(event) != event.loss]
        cost = cost_of(configuration)
    except AlmonerError as unfit:
        raise AuthorisationDiffers(number, unfit.message) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise AuthorisationDiffers(number, "its configuration contains no plan") from None
    if differs:
        raise AuthorisationDiffers(number, f"the stored cost of {differs[0]} differs from the recomputed one")
    if cost != most:
        raise AuthorisationDiffers(
            number, f"a run costs rho {cost.rho_text} and failure delta {cost.delta_text}, and it allows rho"
            f" {most.rho_text} and failure delta {most.delta_text}"
        )  # fmt: skip


def growth_in_words(before: LifetimeClaim, after: LifetimeClaim) -> str:
    """Return the factors by which a lifetime claim grows or shrinks, in words."""
    parts = (
        ("epsilon", Decimal(before.epsilon), Decimal(after.epsilon)),
        ("rho", Decimal(before.cap.rho), Decimal(after.cap.rho)),
        ("delta", Decimal(before.delta), Decimal(after.delta)),
    )
    factors = [f"{name} {_factor(old, new)}" for name, old, new in parts]
    return f"The budget {_factor(Decimal(before.cap.rho), Decimal(after.cap.rho))}: {', '.join(factors)}."


def _factor(old: Decimal, new: Decimal) -> str:
    if old == new:
        return "stays the same"
    if not old or not new:
        return "grows from nothing" if new else "shrinks to nothing"
    word, factor = ("grows", new / old) if new > old else ("shrinks", old / new)
    return f"{word} {factor:.4g} times"


class AuthorisationDiffers(Refused):
    """The amounts of a standing authorisation do not follow from its configuration."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(
            f"Standing authorisation {number} does not follow from its configuration: {reason}.",
            "Approve and run nothing under it. `almoner audit log` shows who recorded it.",
            {"proposal": number, "reason": reason},
        )
