"""What every text-generating system offers: a price before anything is touched, and texts after it is paid.

A `Generator` is stateless. `plan` is a pure function of public numbers: what will be invoked, in which
instalments, on which blocks. `generate` follows that plan and calls `bench.arm(sequence, instalment)` before the
first private byte of each step is read (PRIVACY §6); the ledger refuses what was not held.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Never, Protocol

from pydantic import BaseModel

from models_db.budgets import Amount, total
from models_db.canonical import Json
from models_db.errors import Refused, UsageError
from models_db.events import PrivacyEvent
from models_db.requests import ReleaseRequest
from models_db.services.ledger import PlannedInvocation
from tasks.corpus.partition import PartitionScheme
from tasks.corpus.store import Corpus, UnitDocuments
from tasks.generation.journal import Earlier
from tasks.generation.steps import Prepared, Steps
from tasks.inference.backends.interface import Sampling, TextBackend
from tasks.inference.backends.local import LocalBackend
from tasks.inference.prompt_spec import PromptSpec
from tasks.insights.values import Insight
from tasks.mechanisms.rng import RandomSource

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.generation.workers import Workers
    from tasks.inference.engine import Engine


TENTHS = 10


@dataclass(frozen=True)
class Ask:
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
class Plan:
    """What a release will do, fixed before it begins.

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
        prompts: how many public prompts a text backend answers at most; 0 where it is one for each text.
    """

    invocations: tuple[PlannedInvocation, ...]
    blocks: tuple[int, ...]
    samples: int
    facts: Mapping[str, str]
    rows: int
    steps: int
    prompt_tokens: int
    reading_rows: int = 0
    texts_per_unit: int = 1
    measuring: tuple[PlannedInvocation, ...] = ()
    amount: Amount = field(default_factory=Amount)
    prompts: int = 0

    @property
    def at_work(self) -> "Plan":
        """The plan as its system carries it out: its blocks numbered from 0, as `SomeBlocks` numbers them."""
        return replace(self, blocks=tuple(range(len(self.blocks))))

    def require_invoking(self, events: Sequence[PrivacyEvent]) -> None:
        """Check that these are the mechanisms of the texts: what is drawn is what was planned.

        Raises:
            ValueError: they are others.
        """
        if tuple(events) != tuple(invocation.event for invocation in self.invocations):
            raise ValueError("the mechanisms are not those of the plan")

    @property
    def every(self) -> tuple[PlannedInvocation, ...]:
        """All mechanisms in order: those of the texts, then those of the metrics."""
        return self.invocations + self.measuring

    @property
    def loss(self) -> Amount:
        """What the plan charges to every block."""
        return total([part for invocation in self.every for part in invocation.instalments])


def invoked_once(events: Sequence[PrivacyEvent]) -> tuple[PlannedInvocation, ...]:
    """Mechanisms that are paid for whole, each in one instalment."""
    return tuple(PlannedInvocation(event, (event.loss,)) for event in events)


@dataclass(frozen=True)
class Bench:
    """What a running generation works with.

    Attributes:
        engine: the model of this machine; of a release with an external model there is none, and whoever asks for it
            is refused (`NoEngine`).
        corpus: the private (or public) texts.
        scheme: the dataset's partition.
        scheme_id: names this release's split into batches.
        prompt: the public wording of every row; `prompts_for` makes a label's prompts of it.
        rng: randomness; anything but the operating system's is refused by the ledger.
        arm: spends one instalment of one invocation, durably, before it returns.
        progress: told (what, done, total).
        workers: who draws, embeds and extracts in place of this process; None if it does so itself.
        earlier: what is there from attempts that were interrupted: the release goes on from it.
        begun: told, before the first draw, the number of the first invocation that is armed for draws, and what was
            released by then; written down when it returns.
        drawn: told, after each step, how many instalments of draws are armed, and for each live generation its token
            and what its rule keeps; written down when it returns.
        steps: mechanisms that release one thing each, and what earlier attempts have released by them.
        cache: a private folder for what is derived from single units, by whatever key; None if nothing is kept.
        outside: writes texts in place of the engine, where the request names an external model.
        device: where an embedder belongs.
        kept: what the mechanisms of the parent have released, where the request extends a release.
    """

    engine: "Engine"
    corpus: Corpus
    scheme: PartitionScheme
    scheme_id: str
    prompt: PromptSpec
    rng: RandomSource
    arm: Callable[[int, int], None]
    progress: Callable[[str, int, int], None]
    workers: "Workers | None" = None
    earlier: Earlier = field(default_factory=Earlier)
    begun: Callable[[int, Mapping[str, str]], None] = lambda first, released: None
    drawn: Callable[[int, Mapping[int, Sequence[float]]], None] = lambda armed, drawn: None
    steps: Steps = field(default_factory=Steps)
    cache: Path | None = None
    outside: TextBackend | None = None
    device: str = "cpu"
    kept: Json = None

    @property
    def backend(self) -> TextBackend:
        """Who writes texts from public prompts: the external model, or the engine."""
        return self.outside or LocalBackend(self.engine.model, self._from_public_prompts)

    def _from_public_prompts(self, prompts: Sequence[Sequence[int]], how: Sampling) -> "list[GeneratedText]":
        from tasks.generation.public_texts import Drawn, draw_public_texts  # they load torch, and know this module

        return draw_public_texts(self, prompts, Drawn(how.max_new_tokens, how.temperature, how.top_k), None)

    def begin_steps(self, plan: Plan) -> None:
        """Open the journal of a system that releases by steps, unless an earlier attempt has; before the first step."""
        if not self.steps.paid:
            self.begun(len(plan.invocations), {})

    def units(self, blocks: Sequence[int], labels: Sequence[str] = ()) -> list[tuple[int, UnitDocuments]]:
        """Every unit of some blocks once, in keyed order, each with the number of the label it is read under. PRIVATE.

        Args:
            labels: the public label set; without labels the number is 0, and with them who carries none is left out.
        """
        places = [(block, label, 0) for block in blocks for label in range(max(1, len(labels)))]
        found = self.corpus.batches(self.scheme, self.scheme_id, 1, places, labels)
        return [(place[1], unit) for place in places for unit in found[place]]

    def in_tenths(self, what: str) -> Callable[[int, int], None]:
        """Tells how many tenths of the work on units are done: how many units there are is private (PRIVACY §1)."""
        return lambda done, total: self.progress(what, done * TENTHS // total if total else TENTHS, TENTHS)

    def release(
        self, name: str, sequences: Sequence[int], prepare: Callable[[], Prepared], draw: Callable[[Prepared], Json]
    ) -> Json:
        """What the step `name` releases, armed by this bench; as `Steps.once`.

        Raises:
            StepLost: an interrupted run has paid for it and lost it.
        """
        return self.steps.once(name, sequences, self.arm, prepare, draw)


@dataclass(frozen=True)
class GeneratedText:
    """One released text.

    Attributes:
        complete: False where it was cut at the token limit.
        label: the public label of its batch, where the request declares labels.
        facts: public figures beside it (mean number of candidates, ...): functions of released tokens and of public
            logits alone, so post-processing.
        insight: the node of a hierarchy that it describes, in a release of insights.
    """

    text: str
    tokens: int
    complete: bool
    label: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    insight: Insight | None = None


@dataclass(frozen=True)
class Generated:
    """All texts of a release in a public order, and figures that charged mechanisms released on the way.

    Attributes:
        values: everything that was released, where more texts can be made of that alone; kept for `release extend`.
    """

    texts: tuple[GeneratedText, ...]
    released: Mapping[str, str] = field(default_factory=dict)
    values: Json = None


TEXT_KINDS = ("synthetic_corpus", "demonstrations", "records")
"""Kinds of releases that are texts one after another; they differ in what a line of the release says."""


class Generator(Protocol):
    """One system. Its loss is stated by `plan` and drawn by `generate`, side by side in one file.

    A system that asks `bench.backend` alone, never the engine, says `shows_private_text = False` and may use a model
    behind an API; whoever does not say so may not (`generation.external`).
    """

    name: str
    kinds: tuple[str, ...]
    parameters: type[BaseModel]
    charges: bool

    def written_out(self, request: ReleaseRequest) -> ReleaseRequest:
        """The request with everything that it names and that only this machine could look up.

        What is stored says all that a plan depends on, so whoever verifies a release plans it again from that alone.

        Raises:
            UsageError, EnvironmentProblem: it is not to be found, or does not fit the request.
        """

    def fail_share(self, parameters: BaseModel) -> Fraction:
        """The part of the release's delta that its mechanisms need for failing; none where none of them may fail."""

    def plan(self, ask: Ask) -> Plan:
        """The plan for these public facts.

        Raises:
            Refused: the amount is too small, or the data must not be read this way.
        """

    def generate(self, plan: Plan, parameters: BaseModel, bench: Bench) -> Generated:
        """Carry the plan out."""


class AsAsked:
    """What most systems say: a request is whole as it is, and none of its mechanisms fails."""

    def written_out(self, request: ReleaseRequest) -> ReleaseRequest:
        """As it is: nothing has to be looked up."""
        return request

    def fail_share(self, parameters: BaseModel) -> Fraction:
        """None."""
        return Fraction(0)


class NoEngine:
    """In place of the engine where an external model writes: a system that wants to read rows with it ends by name.

    Args:
        model: as the request names it.
    """

    def __init__(self, model: str) -> None:
        self._named = model

    def __getattr__(self, name: str) -> Never:
        raise EngineMissing(self._named)


class NoCorpus:
    """In place of the corpus where a release is made of released values alone: whoever reaches for it ends by name."""

    def __getattr__(self, name: str) -> Never:
        raise CorpusClosed


class CorpusClosed(Refused):
    """A run that may not read the corpus reaches for it."""

    def __init__(self) -> None:
        super().__init__(
            "This release extends another one and may not read private text.",
            "Nothing was read. Report this as a fault of the software.",
        )


class EngineMissing(Refused):
    """A system reaches for the engine in a release that an external model writes."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"This step needs a model of this machine, and the request names {model!r}, which is behind an API.",
            "Name a model of `almoner models list`.",
            {"model": model},
        )


class UnknownSystem(UsageError):
    """No generator of that name for that kind of release."""

    def __init__(self, mechanism: str, kind: str, known: list[str]) -> None:
        super().__init__(
            f"The mechanism {mechanism!r} cannot make a {kind!r} release in this version.",
            f"Available: {', '.join(known)}.",
            {"mechanism": mechanism, "kind": kind, "known": known},
        )


class NotForGovernedData(Refused):
    """The system reads private text without protection."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(
            f"{mechanism!r} shows private text to the model without any guarantee; on governed data it is refused.",
            "Use it on a dataset registered with `--public`, or choose a private mechanism.",
            {"mechanism": mechanism},
        )


class BlockWithoutSample(UsageError):
    """Fewer samples than blocks."""

    def __init__(self, samples: int, blocks: int) -> None:
        super().__init__(
            f"{samples} samples cannot be shared by {blocks} blocks: each block makes at least one.",
            f"Ask for at least {blocks} samples.",
            {"samples": samples, "blocks": blocks},
        )
