"""Review for a steward's decision: a digest to sign, and sections in reading order.

Each kind of review (a request at the spend gate, its files at the publish gate, a proposal) writes its own sections, so
the code that shows or signs a review does not depend on its kind.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models_db.errors import AlmonerError
from models_db.policies.policy import Policy
from models_db.values.request_state import Gate
from tasks.release.sections import Section

if TYPE_CHECKING:  # a price is shown without what compares figures and reads records
    from tasks.evaluation.policy_bounds import BoundCheck
    from tasks.release.record import Person


@dataclass(frozen=True)
class Review:
    """One decision to take.

    Attributes:
        number: the number of the request or proposal.
        gate: the gate at which it waits.
        dataset: the dataset of the budget or release; a steward types its name.
        state: the state of the request or proposal now.
        subject_digest: the digest that an approval signs, computed from the shown content.
        policy: the policy of the request or proposal.
        sections: the sections to read before a decision.
        stewards: the people who may sign, by name and key.
        payload: at the publish gate, the additional statement to sign.
        missed_bounds: at the publish gate, the bounds of the policy that the release misses.
        refusal: why it can only be rejected: its plan, amounts in it, or in the claim it rests on, do not follow from
            their text; or it cannot be shown, because its draft is lost or its rows are not what was recorded; or
            another installation alone can tell (`UndecidableHere`).
    """

    number: int
    gate: Gate
    dataset: str
    state: str
    subject_digest: str
    policy: Policy
    sections: tuple[Section, ...]
    stewards: "tuple[Person, ...]" = ()
    payload: bytes | None = None
    missed_bounds: "tuple[BoundCheck, ...]" = ()
    refusal: AlmonerError | None = None

    def require_approvable(self) -> None:
        """Check that the request or proposal may be approved.

        Raises:
            PlanMismatch, UndecidableHere, AmountsDiffer, AuthorisationDiffers, ArtifactChanged, ProposalAltered: by
                `refusal`, if there is one.
        """
        if self.refusal is not None:
            raise self.refusal

    @property
    def title(self) -> str:
        """Return the heading of the review."""
        return f"Dataset {self.dataset} - {self.gate.subject.capitalize()} {self.number}, {self.gate} gate"
