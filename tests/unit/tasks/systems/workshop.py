"""A context with a tiny model and a corpus that writes down when it is read."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from tasks.corpus.demo_clinic import demo_notes
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus, open_corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import DeterministicRandom, RandomSource
from tasks.mechanisms.tokens import integer_table
from tests.tiny_model import tiny_model

KEY = b"k" * 32
PATIENTS = 12
NOTES = [note for note in demo_notes() if note["patient_id"] <= f"patient-{PATIENTS:03}"]
Step = tuple[object, ...]


def draw_by_one_number_each(patch: pytest.MonkeyPatch) -> None:
    """Let each draw of a token read equally many random bytes, whatever its scores are.

    A number below a sum of weights is drawn by rejection, so its bytes depend on the sum: another sum moves the bytes
    of all later draws.
    """

    def scaled(sums: Sequence[int], rng: RandomSource) -> list[int]:
        return [most * int.from_bytes(rng.random_bytes(16)) >> 128 for most in sums]

    patch.setattr(integer_table, "uniform_below_each", scaled)


def store(
    home: ProjectHome, source: Path, notes: Iterable[Mapping[str, str]], label_field: str | None = None
) -> Corpus:
    """The notes as a version of the home."""
    home.create()
    source.write_text("".join(json.dumps(note) + "\n" for note in notes))
    return open_corpus(home, ingest(home, source, "patient_id", KEY, label_field=label_field).uid)


@dataclass(frozen=True)
class WatchedCorpus:
    """A corpus; each reading of it goes into `seen`."""

    corpus: Corpus
    seen: list[Step]

    def unit_count(self) -> int:
        self.seen.append(("count",))
        return self.corpus.unit_count()

    def texts(self, label: str | None = None) -> Iterator[str]:
        self.seen.append(("texts",))
        return self.corpus.texts(label)

    def require_labels(self) -> None:
        self.corpus.require_labels()

    def batches(
        self,
        scheme: PartitionScheme,
        split: BatchSplit,
        per_block: int,
        wanted: Collection[Any],
        labels: Sequence[str] = (),
        most: int = 1,
    ) -> Any:
        self.seen.append(("batches", per_block, tuple(wanted)))
        return self.corpus.batches(scheme, split, per_block, wanted, labels, most)

    def each(self, scheme: PartitionScheme, split: BatchSplit, labels: Sequence[str] = ()) -> Iterator[Any]:
        self.seen.append(("each", tuple(labels)))
        return self.corpus.each(scheme, split, labels)

    def each_shard(
        self, scheme: PartitionScheme, split: BatchSplit, blocks: Sequence[int], labels: Sequence[str] = ()
    ) -> Iterator[Any]:
        self.seen.append(("each_shard", tuple(blocks), tuple(labels)))
        return self.corpus.each_shard(scheme, split, blocks, labels)


def refusing(refused: tuple[int, int]) -> Callable[[int, int], None]:
    """An `arm` that refuses one instalment of one invocation, and pays for every other."""

    def arm(sequence: int, instalment: int) -> None:
        if (sequence, instalment) == refused:
            raise PermissionError

    return arm


class NoCorpus:
    """Whoever looks at it has read private data."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the corpus was asked for {name}")


@dataclass(frozen=True)
class Workshop:
    """A context whose every reading and arming is on one list, in order."""

    corpus: Any
    blocks: int = 1
    seen: list[Step] = field(default_factory=list)

    def context(
        self,
        rng: RandomSource | None = None,
        *,
        key: bytes = KEY,
        stops: bool = False,
        arm: Callable[[int, int], None] | None = None,
        description: str = "Short notes.",
    ) -> RunContext:
        """A context over the corpus; `arm` is called after the arming is written down."""

        def armed(sequence: int, instalment: int) -> None:
            self.seen.append(("arm", sequence, instalment))
            if arm is not None:
                arm(sequence, instalment)

        corpus: Any = WatchedCorpus(self.corpus, self.seen) if type(self.corpus) is Corpus else self.corpus
        return RunContext(
            engine=Engine(tiny_model(stops=stops)),
            corpus=corpus,
            scheme=PartitionScheme(key, self.blocks),
            split=BatchSplit(key, "release"),
            prompt=PromptSpec(description),
            rng=rng or DeterministicRandom("tests"),
            arm=armed,
            progress=lambda what, done, total: None,
        )

    def place(self, unit: str, per_block: int) -> tuple[int, int, int]:
        """Where a unit is."""
        scheme = PartitionScheme(KEY, self.blocks)
        return scheme.block_of(unit), 0, BatchSplit(scheme.key, "release").batch_of(unit, per_block)
