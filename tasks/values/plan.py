"""Interface of every text-generating system: a price before anything is touched, and texts after payment.

A `Generator` is stateless. `plan` is a pure function of public numbers: what will be invoked, in which
instalments, on which blocks. `generate` follows that plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol, TypeVar

from pydantic import BaseModel

from models_db.errors import Refused, UsageError
from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ReleaseRequest
from tasks.values.generated import Generated

WARNING = "warning"
"""The public parameter of a plan that says why its release may tell little; it is shown before approval."""


@dataclass(frozen=True)
class PlanInputs:
    """The public facts a plan may depend on.

    Attributes:
        amount: the most the release may charge; None for systems that charge nothing.
        parameters: the request's parameters, validated by the generator's own model.
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


Work = TypeVar("Work", contravariant=True)
"""Context of a running generation: `tasks.decoding.run_context.RunContext`."""


class Generator(Protocol[Work]):
    """One system. Its loss is stated by `plan` and drawn by `generate`, side by side in one file.

    A system that uses only the context's backend, never the engine, sets `shows_private_text = False` and may use a
    model behind an API; other systems may not (`tasks.pricing.external_models`). A system whose rows read the request's
    prompt as `tasks.inference.prompts.render` makes it, in either form, sets `renders_prompt`; others have
    conversations of their own.
    """

    name: str
    kinds: tuple[str, ...]
    parameters: type[BaseModel]
    charges: bool
    renders_prompt: bool

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Return the request with everything that it names and that only this machine could look up.

        The stored request has everything that a plan depends on, so a verifier can plan the release from it alone.

        Raises:
            UsageError, EnvironmentProblem: it is not to be found, or does not fit the request.
        """

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """Return the share of the release's delta for failures of its mechanisms; 0 if none may fail."""

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes beside the plan's rows, on two cores; for quotes alone."""

    def plan(self, ask: PlanInputs) -> Plan:
        """Return the plan for these public facts.

        Raises:
            Refused: the amount is too small, or the data must not be read this way.
        """

    def generate(self, plan: Plan, parameters: BaseModel, bench: Work) -> Generated:
        """Generate the texts of a plan."""


class GeneratorDefaults:
    """Defaults of most systems: a request names nothing to look up, and none of its mechanisms fails."""

    renders_prompt = False

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Return the request unchanged: nothing has to be looked up."""
        return request

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """Return 0: no mechanism fails."""
        return Fraction(0)

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return 0: a unit is read in microseconds, and embedded nowhere."""
        return 0.0


class UnknownSystem(UsageError):
    """No generator of that name for that kind of release."""

    def __init__(self, mechanism: str, kind: str, names: list[str]) -> None:
        super().__init__(
            f"The mechanism {mechanism!r} cannot make a {kind!r} release in this version.",
            f"Available: {', '.join(names)}.",
            {"mechanism": mechanism, "kind": kind, "known": names},
        )


class NotForGovernedData(Refused):
    """The system reads private text without protection."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(
            f"{mechanism!r} shows private text to the model without any guarantee; on governed data it is refused.",
            "Use it on a dataset registered with `--public`, or choose a private mechanism.",
            {"mechanism": mechanism},
        )
