"""Review for a steward's decision: a digest to sign, sections in reading order, and how two requests differ.

Each kind of review (a request at the spend gate, its files at the publish gate, a proposal) writes its own sections, so
the code that shows or signs a review does not depend on its kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from models_db.errors import AlmonerError
from models_db.policies.policy import Policy
from models_db.values.request_state import Gate
from tasks.release.sections import Section

if TYPE_CHECKING:
    from tasks.evaluation.policy_bounds import BoundCheck
    from tasks.release.record import Person


ABSENT_VALUE = "-"
IGNORED_FIELDS = ("format", "nonce", "dataset.uid", "plan.invocations")
"""Fields that are random by design, or shown in their own table."""

ADAPTER, OF_THE_ADAPTER = "parameters.adapter.sha256", "parameters.adapter.meta."
"""Fields that an adapter's digest covers: they are left out if the digest itself differs."""


def request_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that differ between two canonical requests; IGNORED_FIELDS are not compared."""
    before, after = dict(flatten_fields(then)), dict(flatten_fields(now))
    names = [*after, *(name for name in before if name not in after)]
    if before.get(ADAPTER) != after.get(ADAPTER):
        names = [name for name in names if not name.startswith(OF_THE_ADAPTER)]
    return tuple(
        (name, before.get(name, ABSENT_VALUE), after.get(name, ABSENT_VALUE))
        for name in names
        if before.get(name) != after.get(name)
    )


def flatten_fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield a request's fields as (dotted name, value)."""
    if path in IGNORED_FIELDS:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from flatten_fields(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) and "id" in one for one in value):
        yield path, ", ".join(str(one["id"]) for one in value)
        for one in value:  # groups: a changed title is shown alone, not as two whole lists
            yield from flatten_fields({name: item for name, item in one.items() if name != "id"}, f"{path}.{one['id']}")
    elif isinstance(value, list | tuple):
        yield path, ", ".join(map(str, value)) or ABSENT_VALUE
    else:
        yield path, ABSENT_VALUE if value is None else str(value)


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
