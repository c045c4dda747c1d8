"""Review for a steward's decision: a digest to sign, and sections in reading order.

Each kind of review (a request at the spend gate, its files at the publish gate, a proposal) builds its own sections
from the same four parts, so the code that shows or signs a review does not depend on its kind.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from models_db.errors import AlmonerError
from models_db.policies.policy import Policy
from models_db.values.gates import Gate

if TYPE_CHECKING:  # a price is shown without what compares figures and reads records
    from tasks.evaluation.policy_bounds import BoundCheck
    from tasks.release.record import Person


@dataclass(frozen=True)
class Summary:
    """Summary of the decision's subject in a few sentences; the other sections have the exact facts."""

    lines: tuple[str, ...]
    title: str = "Summary"
    signed: bool = False


@dataclass(frozen=True)
class FieldList:
    """Names and values, one on each line.

    Attributes:
        signed: whether the signature covers it; False for content of the ledger alone (balances, people, history).
        detail: whether a screen may leave it out until its reader asks for details.
    """

    title: str
    rows: tuple[tuple[str, str], ...]
    signed: bool = True
    detail: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under headings; `empty` is shown in place of no rows, `detail` as in `FieldList`.

    Attributes:
        released: whether the rows are of the release itself: as confidential as its texts until it is published.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    signed: bool = True
    empty: str = ""
    detail: bool = False
    released: bool = False


@dataclass(frozen=True)
class Samples:
    """Texts to read, the first of `of`; `names` are their topics, where known."""

    title: str
    texts: tuple[str, ...]
    signed: bool = True
    names: tuple[str | None, ...] = ()
    of: int = 0

    @property
    def count(self) -> int:
        """Return how many texts there are, whether they are here or not."""
        return self.of or len(self.texts)

    @property
    def heading(self) -> str:
        """Return the title, with how many of the texts are here."""
        here = len(self.texts)
        return f"{self.title}: {f'the first {here:,} of' if self.count > here else 'all'} {self.count:,}"


@dataclass(frozen=True)
class Warnings:
    """Warnings that a steward must read."""

    lines: tuple[str, ...]
    title: str = "Look twice"
    signed: bool = True


ReviewSection: TypeAlias = Summary | FieldList | Table | Samples | Warnings


def is_detail(section: ReviewSection) -> bool:
    """Return whether a screen may leave a section out until its reader asks for details."""
    return isinstance(section, FieldList | Table) and section.detail


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
    sections: tuple[ReviewSection, ...]
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
