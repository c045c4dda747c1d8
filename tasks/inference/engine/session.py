"""Session of generations that are decoded side by side: public rows in one pool, private rows in another.

The time at which a generation enters, and so the columns of its rows, depend on public facts: the number of places
(`Sizes`, memory), and the ends of other generations, which their drawn tokens show. Private rows are read when they are
first asked for, so nothing private is read before it is paid for.

Prefill: prompts of entering generations are read in scratch batches of one public shape, then enter the pool. The
shared prefix is read once for all rows that have it. A generation that goes on after it had to leave brings the tokens
it has drawn; they follow its prompt, in as many columns more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
from torch import Tensor

from tasks.inference.engine import language_model
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import MemoryRanOut, is_out_of_memory
from tasks.inference.engine.rows import Key, RowBatch, RowChunk, RowPool, prefill_shape
from tasks.inference.engine.shapes import Sizes, public_rows_per_chunk
from tasks.inference.prompt_rendering import PromptPieces


@dataclass(frozen=True)
class RowValues:
    """Values of the private rows of live generations, by generation and in the order of their references.

    Attributes:
        values: float32 [rows, K]; zeros where not valid.
        generation: int64 [rows], which live generation a row belongs to, from 0.
        valid: bool [rows], false for a null row (no text) and for one whose values are not all finite: its
            contribution must be zero (PRIVACY §3).
    """

    values: Tensor
    generation: Tensor
    valid: Tensor

    @classmethod
    def of(cls, text_rows: Tensor, places: Sequence[tuple[int, bool]]) -> Self:
        """Build the values from `text_rows`, float32 [rows with a text, K], in the order of `places`.

        Args:
            places: for every row, the place of its generation and whether it has a text.
        """
        present = torch.tensor([occupied for _, occupied in places], dtype=torch.bool, device=text_rows.device)
        values = text_rows.new_zeros((len(places), text_rows.shape[1]))
        values[present] = text_rows
        valid = present & values.isfinite().all(1)
        values.masked_fill_(~valid[:, None], 0.0)
        return cls(
            values, torch.tensor([place for place, _ in places], dtype=torch.int64, device=text_rows.device), valid
        )


class RowLogits(RowValues):
    """Logits: K is the number of candidates, or of all tokens."""


class RowHidden(RowValues):
    """Last hidden states, after the final norm: K is the model's width D."""


@dataclass(frozen=True)
class _RowQuery:
    """A query to the private rows.

    Attributes:
        width: K, how many values each row gives.
        check: asks the device about the shape of `of`, whether there is a row or not.
        of: float32 [slots, K] of a chunk.
    """

    width: int
    check: Callable[[], None]
    of: Callable[[RowChunk], Tensor]


class Session:
    """Batch of live generations (`Engine.session`). The caller admits generations and draws; the session computes.

    Args:
        places: the most generations that may be live at once.
        per_chunk: private rows per pass.

    Methods that compute raise MemoryRanOut if memory is short: the rows are private, so nothing is computed in another
    shape instead, and the holder of the session ends the attempt.

    Attributes:
        places: as given.
    """

    def __init__(
        self, model: LanguageModel, isolation: IsolationCheck, sizes: Sizes, places: int, per_chunk: int
    ) -> None:
        model = sizes.model_for(model)
        self._model, self._isolation, self._sizes = model, isolation, sizes
        self.places, self._per_chunk = places, per_chunk
        self._generations: dict[int, Generation] = {}
        self._public = self._public_pool()
        self._private = self._private_pool()
        self._public_reader = PublicReader(model, sizes.public_prompt)
        self._private_reader = PrivateReader(model, isolation, sizes, per_chunk)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The live generations, ascending; everything below is in this order."""
        return tuple(sorted(self._generations))

    def drawn(self, number: int) -> Sequence[int]:
        """Return the tokens of a live generation so far."""
        return self._generations[number].drawn

    def enter(
        self,
        number: int,
        public: PromptPieces,
        private: PromptPieces | None,
        references: Sequence[Sequence[int]],
        drawn: Sequence[int] = (),
    ) -> None:
        """Take a generation in; it is live from the next step on. Nothing is read yet.

        Args:
            references: tokens of the private rows; an empty one, or one that is no token sequence of this model,
                makes a null row, and one that is too long is cut to its first `reference_tokens` tokens.
            drawn: tokens it has drawn earlier, if it goes on.

        Raises:
            ValueError: the prompts exceed the public sizes or have a token that the model does not, the number is
                taken, or no place is free.
        """
        if number in self._generations or len(self._generations) >= self.places:
            raise ValueError(f"generation {number} is live already, or all {self.places} places are taken")
        self._sizes.check_holds(public, private)
        self._model.check_knows((*public.tokens, *(private.tokens if private else ())))
        kept = Generation.cut(references, self._sizes, self._model.vocabulary) if private else []
        self._generations[number] = Generation(public.tokens, private, kept, list(drawn))

    @torch.inference_mode()
    def leave(self, number: int) -> None:
        """A generation has ended, a public fact: its place is free, and so are the slots of its rows."""
        del self._generations[number]
        self._public.leave([number])
        self._private.leave([number])

    @torch.inference_mode()
    def let_go(self, number: int) -> None:
        """The private rows of a generation are not needed any more, a public fact; its public row goes on."""
        self._generations[number].private = None
        self._generations[number].references = []
        self._private.leave([number])

    @torch.inference_mode()
    def public_logits(self) -> Tensor:
        """Return float32 [L, V]."""
        return self._of_public(self._model.logits)

    def public_hidden(self) -> Tensor:
        """Return float32 [L, D], the last hidden states of the public rows, after the final norm."""
        return self._of_public(lambda hidden: hidden).clone()

    @torch.inference_mode()
    def private_logits(self, candidates: Tensor | None = None) -> RowLogits:
        """Logits of every row of every live generation.

        Args:
            candidates: int64 [L, K], chosen without looking at any private row; fill shorter sets up with any token
                id. None stands for the whole vocabulary in order.
        """
        if candidates is not None and (candidates.dim() != 2 or candidates.shape[0] != len(self.numbers)):
            raise ValueError(f"candidates must be [{len(self.numbers)}, K], not {list(candidates.shape)}")
        index = self._index()
        width = self._model.vocabulary if candidates is None else candidates.shape[1]
        query = _RowQuery(
            width, lambda: self._check_scores(candidates), lambda chunk: self._scores(chunk, index, candidates)
        )
        return RowLogits.of(*self._of_private(query))

    def private_hidden(self) -> RowHidden:
        """Return the last hidden state of every row of every live generation: K is D.

        The device was asked about every pass that makes them before it ran; nothing is computed from them here.
        """
        query = _RowQuery(self._model.width, lambda: None, lambda chunk: chunk.ring.hidden)
        return RowHidden.of(*self._of_private(query))

    def advance(self, tokens: Sequence[int]) -> None:
        """Append one token to each live generation; the rows read it when logits are next asked for.

        Raises:
            ValueError: not one token per generation, or more than `max_new_tokens`.
        """
        numbers = self.numbers
        if len(tokens) != len(numbers):
            raise ValueError(f"{len(numbers)} generations need a token each, not {len(tokens)}")
        token_of = {number: int(token) for number, token in zip(numbers, tokens, strict=True)}
        for number, token in token_of.items():
            if len(self._generations[number].drawn) >= self._sizes.new_tokens:
                raise ValueError(f"max_new_tokens is reached: {self._sizes.max_new_tokens}")
            self._generations[number].drawn.append(token)
        self._public.feed(token_of)
        self._private.feed(token_of)

    @torch.inference_mode()
    def _of_public(self, head: Callable[[Tensor], Tensor]) -> Tensor:
        """`head` of the hidden states of all public rows."""
        return self._gathered(lambda: head(self._public_part(self.numbers)))

    @torch.inference_mode()
    def _of_private(self, query: _RowQuery) -> tuple[Tensor, list[tuple[int, bool]]]:
        """Return the arguments of `RowValues.of`: the values of all rows with a text, and the place of every row."""
        index = self._index()
        with_rows = [number for number in self.numbers if self._generations[number].private is not None]
        gathered = self._gathered(lambda: self._private_part(with_rows, query))
        return gathered, [(index[n], bool(text)) for n in with_rows for text in self._generations[n].references]

    def _index(self) -> dict[int, int]:
        """Return the index of each live generation, from 0."""
        return {number: place for place, number in enumerate(self.numbers)}

    def _gathered(self, compute: Callable[[], Tensor]) -> Tensor:
        """compute(), unless memory runs out."""
        try:
            return compute()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        raise MemoryRanOut(str(self._model.device))

    def _public_pool(self) -> RowPool:
        rows = public_rows_per_chunk(self.places, self._model.device)
        recorder = self._isolation.recorder
        return RowPool(self._model, rows, self._sizes.public_columns, lambda *shape: None, recorder)

    def _private_pool(self) -> RowPool:
        check, recorder = self._isolation.before_pass, self._isolation.recorder
        return RowPool(self._model, self._per_chunk, self._sizes.private_columns, check, recorder)

    def _public_part(self, numbers: Sequence[int]) -> Tensor:
        pool = self._public
        pool.replay()
        if arrivals := [number for number in numbers if number not in pool.members]:
            self._public_reader.read({n: self._generations[n] for n in arrivals}, pool)
        places = pool.places()
        hidden = torch.cat([chunk.ring.hidden for chunk in pool.chunks])
        return hidden[self._tensor([places[number, 0] for number in numbers])]

    def _private_part(self, numbers: Sequence[int], query: _RowQuery) -> Tensor:
        pool = self._private
        pool.replay()
        if arrivals := [number for number in numbers if number not in pool.members]:
            self._private_reader.read({n: self._generations[n] for n in arrivals}, pool)
        places = pool.places()
        if numbers:
            query.check()
        keys = [key for number in numbers for key in self._generations[number].present(number)]
        values = [query.of(chunk) for chunk in pool.chunks]
        if not keys:
            return torch.zeros((0, query.width), device=self._model.device)
        return torch.cat(values)[self._tensor([places[key] for key in keys])]

    def _scores(self, chunk: RowChunk, index: dict[int, int], candidates: Tensor | None) -> Tensor:
        """Return [slots, K]: each row keeps the scores of its generation's candidates.

        Products of public shapes; a product per generation would have as many rows as the generation has units.
        """
        hidden, model = chunk.ring.hidden, self._model
        if candidates is None:
            return model.logits(hidden)
        scoring = language_model.scoring_of(model, candidates)
        of = self._tensor([0 if owner is None else index[owner[0]] for owner in chunk.owners])
        if scoring == "by row":
            return language_model.logits_by_row(model, hidden, candidates[of])
        if scoring == "whole":
            return model.logits(hidden).gather(1, candidates[of])
        scores = language_model.logits_of(model, hidden, candidates.flatten())
        rows = torch.arange(len(hidden), device=model.device)
        return scores.view(len(hidden), *candidates.shape)[rows, of]

    def _check_scores(self, candidates: Tensor | None) -> None:
        """Ask the device about the shape of `_scores`, whether there is a row or not."""
        scoring = language_model.scoring_of(self._model, candidates)
        if candidates is None or scoring == "whole":
            self._isolation.head(self._per_chunk)
            return
        by_row = scoring == "by row"
        check = self._isolation.candidates_by_row if by_row else self._isolation.candidates
        for part in language_model.head_parts(candidates.shape[1] if by_row else candidates.numel()):
            check(self._per_chunk, part.stop - part.start)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._model.device)


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
