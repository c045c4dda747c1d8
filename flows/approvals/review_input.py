"""Inputs of a request's review at a gate, as one closed value.

They are collected from the ledger, or read from a file on a steward's own machine. The same functions turn both into a
`Review`; they compute each digest from the content.
"""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from flows.rehearsals.stored_results import RecordedRehearsal
from models_db.database.base import utc_now
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.policies.policy import Policy
from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import digest
from models_db.values.events import PrivacyEvent
from models_db.values.exposures import SecrecyEnd, ViewingRecord
from models_db.values.requests import model_to_json
from tasks.accounting.lifetime_claims import AmountsDiffer, BudgetFacts, require_derived
from tasks.common.extensions import code_digest
from tasks.common.published_values import Figure, Name, Strict
from tasks.evaluation.registry import UnknownMetric
from tasks.release.approved_request import ApprovedRequest
from tasks.release.claim import Claim
from tasks.release.record import Person, claim_of_plan, planned_events
from tasks.systems.registry import UnknownSystem

if TYPE_CHECKING:
    pass


DigitText = Annotated[str, StringConstraints(pattern="^(0|[1-9][0-9]{0,29})$")]
"""An integer of the ledger as text: JSON carries integers below 2**53 only."""


class BudgetInput(Strict):
    """`BudgetFacts` as they travel in a file: rho in 1e-12, delta in 1e-18.

    Each amount is the worst of the blocks that are looked at, so `left` is not what follows from the others.
    """

    epsilon_cap: Figure
    delta_cap: Figure
    delta_conversion: DigitText
    rho_cap: DigitText
    rho_spent: DigitText
    rho_held: DigitText
    rho_left: DigitText
    delta_fail_cap: DigitText
    delta_spent: DigitText
    delta_held: DigitText
    delta_left: DigitText

    @classmethod
    def of(cls, budget: BudgetFacts) -> "BudgetInput":
        """Convert a budget."""
        claim, balance = budget.claim, budget.balance
        return cls(
            epsilon_cap=claim.epsilon,
            delta_cap=claim.delta,
            delta_conversion=str(claim.delta_conversion),
            rho_cap=str(balance.cap.rho),
            rho_spent=str(balance.spent.rho),
            rho_held=str(balance.held.rho),
            rho_left=str(balance.remaining.rho),
            delta_fail_cap=str(balance.cap.delta),
            delta_spent=str(balance.spent.delta),
            delta_held=str(balance.held.delta),
            delta_left=str(balance.remaining.delta),
        )

    @property
    def facts(self) -> BudgetFacts:
        """Return the budget as `BudgetFacts`."""
        cap = Amount(int(self.rho_cap), int(self.delta_fail_cap))
        spent, held, remaining = (
            Amount(int(rho), int(delta))
            for rho, delta in (
                (self.rho_spent, self.delta_spent), (self.rho_held, self.delta_held), (self.rho_left, self.delta_left)
            )
        )  # fmt: skip
        claim = LifetimeClaim(self.epsilon_cap, self.delta_cap, int(self.delta_conversion), cap)
        return BudgetFacts(claim, Balance(cap, spent, held, remaining))

    def refusal(self, dataset: str) -> Refused | None:
        """Return why no approval may rest on this budget; None if its amounts follow from its claim."""
        try:
            require_derived(f"The lifetime claim of dataset {dataset!r}", self.facts.claim)
        except AmountsDiffer as differs:
            return differs
        return None


class ViewsInput(Strict):
    """The first day on which unprotected figures of the account were seen, and by whom."""

    since: Name
    people: tuple[Name, ...]

    @property
    def sentence(self) -> str:
        """Return the consequence in words."""
        return ViewingRecord(self.since, self.people).sentence


class RecordedDecision(Strict):
    """A recorded decision."""

    by: Name
    decision: str
    reason: str
    counts: bool
    """True if the decision still counts: unexpired, not withdrawn, and on the present subject."""


class PreviousRelease(Strict):
    """The last published release of the same dataset, and its canonical request."""

    number: int
    state: Name
    request: dict[str, Any]


class ReviewInput(Strict):
    """Fields that requests and proposals share."""

    number: int = Field(ge=1)
    state: Name
    policy: Policy
    stewards: tuple[Person, ...]
    given: tuple[RecordedDecision, ...]
    counted: Annotated[int, Field(ge=0)]
    """Number of approvals that count now, according to the database."""
    needed: Annotated[int, Field(ge=1)]
    """Number of approvals that the gate needs: the largest for any dataset of the account."""
    budget: BudgetInput
    views: ViewsInput | None = None


class RequestReviewInput(ReviewInput):
    """A request at one of its gates. `policy` must be the one whose digest the request names."""

    request: dict[str, Any]
    requester: Person
    expires_at: Name
    passes_limit: bool = False
    """Whether a run from nothing would pass the policy's limit in Rényi orders."""
    charged_rho: Figure | None = None
    """At the publish gate, what the ledger has charged each block for it."""
    previous: PreviousRelease | None
    notices: tuple[str, ...]
    """Differences between the request and the present software, policy, data and memory of the ledger's machine."""
    rehearsals: tuple[RecordedRehearsal, ...] = ()
    """Rehearsals of exactly this request on public data."""
    secrecy_end: SecrecyEnd | None = None
    """End of what the release claims while its assignment is secret; None while that lasts."""

    @model_validator(mode="after")
    def _names_its_policy(self) -> "RequestReviewInput":
        if digest(model_to_json(self.policy)) != self.request.get("policy"):
            raise ValueError("the policy is not the one that the request names")
        return self

    @property
    def approved_request(self) -> ApprovedRequest:
        """Parse the canonical request into its closed format.

        Raises:
            ValidationError: it is in another format.
        """
        return ApprovedRequest.model_validate(self.request)

    @property
    def dataset(self) -> str:
        """Return the name of the dataset whose budget is charged."""
        return self.approved_request.dataset.name

    @property
    def events(self) -> list[PrivacyEvent]:
        """Return the planned mechanisms."""
        return planned_events(self.request)

    @property
    def loss(self) -> Amount:
        """Return their cost for every block that they may read."""
        return total_amount([event.loss for event in self.events])

    @property
    def claim(self) -> Claim | None:
        """Return the claim of the release; None without protection (public data only).

        Raises:
            ClaimTooSmall: the mechanisms cost more than the request claims.
        """
        return claim_of_plan(self.events, self.request)

    @property
    def expired(self) -> bool:
        """Return whether the request has expired."""
        return self.expires_at <= utc_now()

    @property
    def refusal(self) -> AlmonerError | None:
        """Return why no approval may rest on it; None if its amounts follow from its claim, and its plan from its text.

        A plan that does not follow charges for less than is drawn, or is refused by its run and by verification. A
        release that is paid may have been made by another version, which alone can tell; the request itself says so,
        so nothing is approved on its word.
        """
        try:
            self.approved_request.require_planned()
        except (UnknownSystem, UnknownMetric) as unknown:
            return UndecidableHere(self.number, unknown.message)
        except (Refused, UsageError) as other:
            if self.charged_rho is not None and self.approved_request.code != code_digest():
                return UndecidableHere(self.number, "It was run with other code than is installed here.")
            return other
        return self.budget.refusal(self.dataset)


class UndecidableHere(Refused):
    """Whether the plan of a request follows from its text, this installation cannot tell."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(
            f"Whether the plan of request {number} follows from its text, this installation cannot tell. {reason}",
            "Decide where the version of almoner that made it and its extensions are installed, or reject it.",
            {"request": number, "reason": reason},
        )
