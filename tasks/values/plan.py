"""Plan of a release: what will be invoked, in which instalments, on which blocks; a function of public numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent

WARNING = "warning"
"""The public parameter of a plan that says why its release may tell little; it is shown before approval."""


@dataclass(frozen=True)
class PlanInputs:
    """The public facts a plan may depend on.

    Attributes:
        amount: the most the release may charge; None for systems that charge nothing.
        parameters: the request's parameters, validated by the system's own model.
        blocks: how many blocks the dataset has.
        population: the declared number of units, if one was declared.
        governed: False for data that its owner has marked public.
    """

    amount: Amount | None
    parameters: BaseModel
    blocks: int
    population: int | None
    governed: bool


@dataclass(frozen=True)
class BatchAssignment:
    """The public sizes of a split whose assignment of units is secret (docs/proofs/secret-assignment.md).

    Attributes:
        batches: N, into how many batches the units of a label in a block are split, or fewer.
        read: M, the largest number of texts of a label in a block; each reads a batch of its own.
    """

    batches: int
    read: int

    def __post_init__(self) -> None:
        if not 1 <= self.read <= self.batches:
            raise ValueError(f"{self.read} of {self.batches} batches cannot be read")


@dataclass(frozen=True)
class Plan:
    """Plan of a release, fixed before it begins.

    Attributes:
        invocations: mechanisms that make the texts, in order, with their instalments, charged on each of `blocks`.
        blocks: the blocks the release is eligible to read.
        samples: how many texts it makes.
        facts: the public parameters as people read them (C, B, T, ...), for the price and the card.
        rows: how many model rows are expected in each step, from public numbers.
        steps: how many steps each row takes at most.
        prompt_tokens: the longest prompt of a row, in tokens, without the description.
        reading_rows: how many of `rows` are read once and take no part in steps.
        texts_per_unit: how many texts a unit is read for at most: a mechanism is invoked that many times as often as a
            text has draws.
        measuring: the mechanisms of charged metrics, invoked once each after the texts, in the request's order.
        amount: what the system was given to spend, of which `invocations` cost no more.
        prompts: how many public prompts a text backend answers at most; 0 if it is one for each text.
        assignment: the split, if the release may state what it claims while the assignment is secret; None if not.
    """

    invocations: tuple[InvocationPlan, ...]
    blocks: tuple[int, ...]
    samples: int
    facts: Mapping[str, str]
    rows: int
    steps: int
    prompt_tokens: int
    reading_rows: int = 0
    texts_per_unit: int = 1
    measuring: tuple[InvocationPlan, ...] = ()
    amount: Amount = field(default_factory=Amount)
    prompts: int = 0
    assignment: BatchAssignment | None = None

    @property
    def with_local_block_numbers(self) -> "Plan":
        """The plan as its system carries it out: its blocks numbered from 0, as `SomeBlocks` numbers them."""
        return replace(self, blocks=tuple(range(len(self.blocks))))

    def require_invoking(self, events: Sequence[PrivacyEvent]) -> None:
        """Check that these are the planned mechanisms of the texts.

        Raises:
            ValueError: they are others.
        """
        if tuple(events) != tuple(invocation.event for invocation in self.invocations):
            raise ValueError("the mechanisms are not those of the plan")

    @property
    def all_invocations(self) -> tuple[InvocationPlan, ...]:
        """All mechanisms in order: those of the texts, then those of the metrics."""
        return self.invocations + self.measuring

    @property
    def events(self) -> list[PrivacyEvent]:
        """Events of all mechanisms, in their order."""
        return [invocation.event for invocation in self.all_invocations]

    @property
    def instalments(self) -> int:
        """Number of instalments of all invocations."""
        return sum(len(invocation.instalments) for invocation in self.all_invocations)

    @property
    def loss(self) -> Amount:
        """Loss that the plan charges to every block."""
        return total_amount([part for invocation in self.all_invocations for part in invocation.instalments])


def invoked_once(events: Sequence[PrivacyEvent]) -> tuple[InvocationPlan, ...]:
    """Mechanisms that are paid for whole, each in one instalment."""
    return tuple(InvocationPlan(event, (event.loss,)) for event in events)
