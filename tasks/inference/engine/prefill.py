"""Prefill: prompts of entering generations are read in scratch batches of one public shape, then enter the pool.

The shared prefix is read once for all rows that have it. A generation that goes on after it had to leave brings the
tokens it has drawn; they follow its prompt, in as many columns more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from tasks.inference.engine.row_batch import RowBatch, prefill_shape
from tasks.inference.engine.row_pool import Key, RowPool
from tasks.inference.engine.shapes import Sizes
from tasks.inference.isolation.check import IsolationCheck
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import PromptPieces

# Public prompts and prefixes that are kept at one time; a release has few (one for each label).
_KEPT = 16

Tokens = tuple[int, ...]


@dataclass
class Generation:
    """One generation of a session.

    Attributes:
        public: tokens of the public row's prompt.
        private: what stands around a reference; None if there are no private rows, or none are needed any more.
        references: tokens of each row, cut and checked; empty for a null row.
        drawn: tokens so far.
    """

    public: tuple[int, ...]
    private: PromptPieces | None
    references: list[tuple[int, ...]]
    drawn: list[int] = field(default_factory=list)

    @staticmethod
    def cut(references: Sequence[Sequence[int]], sizes: Sizes, vocabulary: int) -> list[tuple[int, ...]]:
        """Return each row's first `reference_tokens` tokens; none for a row with a token that a text may not have."""
        kept = [tuple(reference[: sizes.reference_tokens]) for reference in references]
        return [row if all(0 <= token < vocabulary for token in row) else () for row in kept]

    def present(self, number: int) -> list[Key]:
        """Return the keys of its rows that have a text."""
        return [(number, row) for row, reference in enumerate(self.references) if reference]


class PrefillTarget(Protocol):
    """Target of rows that a prefill has read: a row pool, or a consumer of the last hidden states alone."""

    def admit(self, numbers: Iterable[int], columns: int) -> None:
        """Prepare for generations whose prompts take `columns` columns."""

    def enter(self, keys: Sequence[Key], source: RowBatch, rows: Sequence[int], hidden: Tensor) -> None:
        """Take rows of these generations: the rows `rows` of `source` and of `hidden`, float32 [n, D]."""


class PrefixCache:
    """Sequences of one length that are read once and kept, each as a batch of one row with its last hidden state."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._kept: dict[tuple[Tokens, int], tuple[RowBatch, Tensor]] = {}

    def read(self, tokens: Tokens, columns: int) -> tuple[RowBatch, Tensor]:
        """Return the batch and float32 [1, D]."""
        if (tokens, columns) not in self._kept:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            batch = RowBatch(self._model, 1, columns)
            self._kept[tokens, columns] = batch, batch.read([tokens], columns)
        return self._kept[tokens, columns]

    def forget(self) -> None:
        """Free the memory."""
        self._kept.clear()


class PublicReader:
    """Public rows: each is its whole prompt.

    Args:
        columns: the longest public prompt.
    """

    def __init__(self, model: LanguageModel, columns: int) -> None:
        self._model, self._columns = model, columns
        self._prompts = PrefixCache(model)

    def forget(self) -> None:
        """Free the memory."""
        self._prompts.forget()

    def read(self, arrivals: Mapping[int, Generation], pool: RowPool) -> None:
        """Read the public rows of generations and put them into `pool`."""
        for drawn, some in _by_drawn(arrivals):
            columns = self._columns + drawn
            pool.admit(some, columns)
            for number, generation in some.items():
                batch, hidden = self._prompts.read((*generation.public, *generation.drawn), columns)
                pool.enter([(number, 0)], batch, [0], hidden)


class PrivateReader:
    """Private rows: a shared prefix, then each row's own segment, a few rows at a time, the longest first.

    Args:
        rows: of a pass, at most; as many as the device keeps apart (`open_session`), which was asked about every shape
            that these sizes can lead to, also where no text is so long: whether it fails depends on nothing that is
            read.
        mean: hand over the mean hidden state of each row's segment, in the place of the last one.
    """

    def __init__(self, model: LanguageModel, isolation: IsolationCheck, sizes: Sizes, rows: int) -> None:
        self._model, self._isolation, self._sizes = model, isolation, sizes
        self._height = min(prefill_shape(model.device)[0], rows)
        self._prefixes = PrefixCache(model)
        self._scratch: RowBatch | None = None

    def forget(self) -> None:
        """Free the memory."""
        self._prefixes.forget()
        self._scratch = None

    def read(self, arrivals: Mapping[int, Generation], pool: PrefillTarget) -> None:
        """Read the private rows of generations and put them into `pool`; a null row gets no slot."""
        for drawn, some in _by_drawn(arrivals):
            segment = self._sizes.segment + drawn
            pool.admit(some, self._sizes.prefix + segment)
            for prefix, rows in _by_prefix(some).items():
                self._read_rows(prefix, rows, segment, pool)

    def _read_rows(self, prefix: Tokens, rows: Mapping[Key, Tokens], segment: int, pool: PrefillTarget) -> None:
        height = self._height
        if not rows:
            return
        scratch = self._scratch_of(self._sizes.prefix + segment)
        shared, _ = self._prefixes.read(prefix, self._sizes.prefix)
        keys = sorted(rows, key=lambda key: -len(rows[key]))
        for first in range(0, len(keys), height):
            self._read_few(keys[first : first + height], rows, segment, shared, scratch, pool)

    def _scratch_of(self, columns: int) -> RowBatch:
        """Return the batch that prompts of so many columns are read in: one is kept, its passes are recorded."""
        if self._scratch is None or self._scratch.columns != columns:
            self._scratch = None  # its memory is free before the next one is taken
            check, recorder = self._isolation.before_pass, self._isolation.recorder
            self._scratch = RowBatch(self._model, self._height, columns, check, recorder)
        return self._scratch

    def _read_few(
        self,
        keys: Sequence[Key],
        rows: Mapping[Key, Tokens],
        segment: int,
        shared: RowBatch,
        scratch: RowBatch,
        pool: PrefillTarget,
    ) -> None:
        scratch.clear()
        scratch.begin_with(shared, [0] * scratch.rows)
        texts = [rows[key] for key in keys] + [()] * (scratch.rows - len(keys))
        hidden = scratch.read_long(texts, segment)
        pool.enter(keys, scratch, range(len(keys)), hidden)


def _by_drawn(arrivals: Mapping[int, Generation]) -> list[tuple[int, dict[int, Generation]]]:
    """Group generations by the number of drawn tokens: a ring has room for one prompt and max_new_tokens only.

    The longest come first, so that a clock that starts with them has columns for all.
    """
    groups: dict[int, dict[int, Generation]] = {}
    for number, generation in arrivals.items():
        groups.setdefault(len(generation.drawn), {})[number] = generation
    return sorted(groups.items(), reverse=True)


def _by_prefix(arrivals: Mapping[int, Generation]) -> dict[Tokens, dict[Key, Tokens]]:
    """Return the segments of all rows with a text: reference, suffix, drawn tokens."""
    groups: dict[Tokens, dict[Key, Tokens]] = {}
    for number, generation in arrivals.items():
        if generation.private is not None:
            after = (*generation.private.suffix, *generation.drawn)
            rows = groups.setdefault(generation.private.prefix, {})
            rows.update({key: (*generation.references[key[1]], *after) for key in generation.present(number)})
    return groups
