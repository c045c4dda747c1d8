"""Context of a running generation: the model, the corpus, and the ledger's permission for every step.

Release steps: mechanisms that release one value each, drawn once even if the process dies (decision 0046). A step is
armed, prepared, drawn and journalled. Preparation reads private data, perhaps for hours, and draws nothing: a run that
dies in it has paid, and its successor may draw with that payment. The start of drawing is journalled first; a run that
dies between that and the result has lost both, because a second draw would have to be paid for.

`System.generate` calls `RunContext.arm(sequence, instalment)` before the first private byte of each step is read
(PRIVACY §6); the ledger refuses what was not held.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Never, Protocol

from models_db.errors import Refused
from models_db.values.canonical_json import Json
from tasks.common.progress import step
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import SHARDS, Corpus, Lot, UnitDocuments, lots, shard_of_text
from tasks.decoding.journal import ResumeState, RunJournal
from tasks.inference.backends.text_backend import TextBackend
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import RandomSource
from tasks.values.plan import Plan
from tasks.values.results import Prepared
from tasks.workers.pool import Runner, TextShards

if TYPE_CHECKING:
    from tasks.decoding.loop import DecodingSpec, DrawReady
    from tasks.inference.embeddings.parallel import WorkerSpec
    from tasks.inference.engine.engine import Engine
    from tasks.inference.engine.language_model import LanguageModel


@dataclass(frozen=True)
class ReleaseSteps:
    """Progress of earlier attempts on the steps of a release.

    Attributes:
        paid: instalments of each of the plan's mechanisms that earlier attempts have armed; empty if there were none.
        released: what they have released, by the name of the step.
        begun: the steps that they began to draw.
    """

    paid: tuple[int, ...] = ()
    released: Mapping[str, Json] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()

    def run_once(
        self,
        name: str,
        sequences: Sequence[int],
        arm: Callable[[int, int], None],
        journal: RunJournal,
        prepare: Callable[[], Prepared],
        draw: Callable[[Prepared], Json],
    ) -> Json:
        """Return the value that a step releases: by an earlier attempt that was paid for, or now.

        Args:
            name: of the step, one for each release.
            sequences: the mechanisms it consists of, of one instalment each, by their number in the plan; none where it
                makes something public of what was released, to be kept as it came out.
            arm: spends an instalment, unless it is spent already.
            journal: where it is written down that the step begins to draw, and what it released.
            prepare: reads private data.
            draw: the mechanisms, on what was prepared.

        Raises:
            StepLost: it was paid for, and died while it was drawn.
        """
        if all(sequence < len(self.paid) and self.paid[sequence] for sequence in sequences):
            if name in self.released:
                return self.released[name]
            if sequences and (name in self.begun or self._followed(sequences)):
                raise StepLost(name)
        for sequence in sequences:
            arm(sequence, 0)
        prepared = prepare()
        journal.drawing(name)
        result: Json = json.loads(json.dumps(draw(prepared)))  # as an attempt that goes on would read it
        journal.result(name, result)
        return result

    def _followed(self, sequences: Sequence[int]) -> bool:
        """Return whether a later mechanism is paid for: then this step was drawn, and the journal is too old.

        A mechanism is armed when what all before it have released is on disk. So a journal that does not know the step
        was put back, say from a backup, beside a ledger that was not.
        """
        return any(self.paid[max(sequences) + 1 :])


class StepLost(Refused):
    """An interrupted run has paid for a step and lost its result."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The interrupted run had begun to draw the step {name!r}, and its result is lost.",
            "Draw and pay everything again: `almoner run ID --anew`. The spent budget stays spent.",
            {"step": name},
        )


TENTHS = 10
PARENT = "values of the parent"
"""The step, in the journal, at which a run that extends a release takes its values."""


class Workers(Protocol):
    """Workers that draw in place of the run's own process."""

    @property
    def load(self) -> "Callable[[str], LanguageModel]":
        """Loads the model on a device, in the worker."""

    @property
    def places(self) -> "tuple[WorkerSpec, ...]":
        """Specifications of the workers."""

    @property
    def runner(self) -> Runner:
        """Starts them."""

    def ready(
        self, drawing: "DecodingSpec", count: int, earlier: ResumeState, lost: int, model: "LanguageModel"
    ) -> "AbstractContextManager[DrawReady]":
        """Open workers whose devices have passed all checks, for the duration of the block.

        Args:
            model: the run's own; a worker must have the same.
        """


@dataclass(frozen=True)
class RunContext:
    """The resources of a running generation.

    Attributes:
        engine: the model of this machine; a release with an external model has none, and its use is refused
            (`NoEngine`).
        corpus: the private (or public) texts.
        scheme: the dataset's partition.
        split: this release's split into batches.
        prompt: the public wording of every row; `prompts_for` makes a label's prompts of it.
        rng: randomness; anything but the operating system's is refused by the ledger.
        arm: spends one instalment of one invocation, durably, before it returns.
        progress: called with (what, done, total).
        workers: processes that draw, embed and extract in place of this process; None without workers.
        earlier: what is there from attempts that were interrupted: the release goes on from it.
        journal: where draws are written down.
        steps: mechanisms that release one thing each, and what earlier attempts have released by them.
        cache: a private folder for what is derived from single units, by whatever key; None if nothing is kept.
        outside: writes texts in place of the engine, where the request names an external model.
        device: where an embedder belongs.
        kept: what the mechanisms of the parent have released, where the request extends a release.
    """

    engine: "Engine"
    corpus: Corpus
    scheme: PartitionScheme
    split: BatchSplit
    prompt: PromptSpec
    rng: RandomSource
    arm: Callable[[int, int], None]
    progress: Callable[[str, int, int], None]
    workers: Workers | None = None
    earlier: ResumeState = field(default_factory=ResumeState)
    journal: RunJournal = field(default_factory=RunJournal)
    steps: ReleaseSteps = field(default_factory=ReleaseSteps)
    cache: Path | None = None
    outside: TextBackend | None = None
    device: str = "cpu"
    kept: Json = None

    def begin_steps(self, plan: Plan) -> None:
        """Open the journal of a system that releases by steps, unless an earlier attempt has; before the first step."""
        if not self.steps.paid:
            self.journal.begin(len(plan.invocations), {})

    def lots(self, blocks: Sequence[int], labels: Sequence[str] = ()) -> Iterator[Lot]:
        """Return every unit of some blocks once, the units of some shards at a time. PRIVATE; one lot is in memory.

        A caller that keeps values of each unit sorts them by the unit's `order`, which leaves no trace of the shards.

        Args:
            labels: the public label set; with labels, units without any of them are left out.
        """
        return lots(self.corpus.each_shard(self.scheme, self.split, blocks, labels))

    def unit_chunks(self, labels: Sequence[str], at_once: int, what: str) -> Iterator[list[tuple[int, UnitDocuments]]]:
        """Yield every unit once with the number of its label (`Corpus.each`), so many at a time. PRIVATE.

        Args:
            at_once: a public number.
            what: the name of the work, under which it is reported in tenths.
        """
        done, units = 0, self.corpus.each(self.scheme, self.split, labels)
        total, progress = self.corpus.unit_count(), self.in_tenths(what)
        while chunk := list(islice(units, at_once)):
            yield chunk
            done += len(chunk)
            progress(done, total)

    @property
    def text_shards(self) -> TextShards:
        """Return the division of private texts among workers, by their keyed hash under the dataset's key."""
        return TextShards(SHARDS, partial(shard_of_text, self.scheme.key))

    def in_tenths(self, what: str) -> Callable[[int, int], None]:
        """Return a callback that reports progress in tenths, because the number of units is private (PRIVACY §1)."""
        return lambda done, total: self.progress(what, done * TENTHS // total if total else TENTHS, TENTHS)

    def release(
        self, name: str, sequences: Sequence[int], prepare: Callable[[], Prepared], draw: Callable[[Prepared], Json]
    ) -> Json:
        """Return the value that the step `name` releases, armed in this context; as `ReleaseSteps.run_once`.

        The draw is reported when it begins and ends: counting, clustering and noise have no progress of their own.

        Raises:
            StepLost: an interrupted run has paid for it and lost it.
        """

        def reported(prepared: Prepared) -> Json:
            with step(self.progress, f"drawing {name.removesuffix(' 0')}"):
                return draw(prepared)

        return self.steps.run_once(name, sequences, self.arm, self.journal, prepare, reported)

    def values_of_parent(self) -> Json:
        """Return what the mechanisms of the parent have released, in a release whose one mechanism is post-processing.

        Raises:
            StepLost: as `release`.
        """
        return self.release(PARENT, [0], lambda: self.kept, lambda values: values)


class NoEngine:
    """Placeholder for the engine of a run with an external model; any use of it raises `EngineMissing`.

    Args:
        model: as the request names it.
    """

    def __init__(self, model: str) -> None:
        self._named = model

    def __getattr__(self, name: str) -> Never:
        raise Refused(
            f"This step needs a model of this machine, and the request names {self._named!r}, which is behind an API.",
            "Name a model of `almoner models list`.",
            {"model": self._named},
            code="EngineMissing",
        )


class NoCorpus:
    """Placeholder for the corpus of a release made of released values alone; any use of it raises `CorpusClosed`."""

    def __getattr__(self, name: str) -> Never:
        raise Refused(
            "This release extends another one and may not read private text.",
            "Nothing was read. Report this as a fault of the software.",
            code="CorpusClosed",
        )


@dataclass(frozen=True)
class PlannedStageBudget:
    """The `StageBudget` of one stage.

    Attributes:
        name: of the stage, in the journal.
        first: where its mechanisms begin in the plan.
    """

    context: RunContext
    name: str
    first: int

    def release(
        self, numbers: int | Sequence[int], prepare: Callable[[], Prepared], draw: Callable[[Prepared], Json]
    ) -> Json:
        """Implement `StageBudget.release`.

        Raises:
            StepLost: an interrupted run has paid for it and lost it.
        """
        some = [numbers] if isinstance(numbers, int) else list(numbers)
        name = f"{self.name} {some[0]}" if some else f"{self.name} refined"
        return self.context.release(name, [self.first + number for number in some], prepare, draw)
