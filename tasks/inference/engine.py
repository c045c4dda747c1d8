"""Given G generations, each with a public prompt and R private rows: the next-token logits of every row.

    session = Engine(model).start(public, private, references, ...)
    while drawing:
        scores = session.public_logits()              # [G, V]: candidates are chosen from these alone
        rows = session.private_logits(candidates)     # [rows, K]: of those candidates
        session.advance(tokens)                       # [G]: what was drawn

Row isolation (PRIVACY §4.2 point 1): public rows have passes of their own; private rows are read in chunks of one
public shape, filled up with null rows. More private rows than expected make more chunks, never another shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.isolation import IsolationCheck
from tasks.inference.language_model import LanguageModel
from tasks.inference.plan import Sizes, rows_per_chunk
from tasks.inference.prompts import PromptPieces
from tasks.inference.rows import RowBatch
from tasks.inference.session import Chunk, Session

Reference = Sequence[int]


@dataclass(frozen=True)
class Row:
    """A private row: its generation, and its tokens after the shared prefix; none for a null row."""

    generation: int
    segment: tuple[int, ...]


class Engine:
    """A model, ready to decode many generations at once.

    Args:
        model: the language model.
        chunk_rows: private rows per pass, a multiple of a prefill pass's rows; chosen from public numbers if not given.
    """

    def __init__(self, model: LanguageModel, chunk_rows: int | None = None) -> None:
        self.model = model
        self.isolation = IsolationCheck(model)
        self._chunk_rows = chunk_rows

    @torch.inference_mode()
    def start(
        self,
        public: Sequence[PromptPieces],
        private: Sequence[PromptPieces],
        references: Sequence[Sequence[Reference]],
        *,
        nominal_references: int,
        max_reference_tokens: int,
        max_new_tokens: int,
    ) -> Session:
        """Read the prompts of G generations.

        Args:
            public, private: one prompt per generation; equal ones are read once.
            references: [generation][row][token], tokens of the private texts; an empty one makes a null row, one
                that is too long is cut to its first `max_reference_tokens` tokens.
            nominal_references: the public number of references per generation (decides the chunk size).

        Raises:
            ContextTooLong: the public sizes exceed the model's positions.
            RowsNotIsolated: this device cannot keep rows apart.
        """
        if not len(public) == len(private) == len(references):
            raise ValueError(f"{len(public)}, {len(private)}, {len(references)} differ: one of each per generation")
        if not public or min(max_reference_tokens, max_new_tokens) < 1:
            raise ValueError("at least one generation, reference token and new token are needed")
        if not all(pieces.prefix and pieces.suffix for pieces in private):
            raise ValueError("a private prompt needs public tokens before and after the reference")
        sizes = Sizes.of(public, private, max_reference_tokens, max_new_tokens)
        sizes.check_fits(self.model)
        rows = _laid_out(private, references, max_reference_tokens, self.model.vocabulary)
        per_chunk = self._chunk_rows or rows_per_chunk(len(public), nominal_references, self.model.device)
        return self._session([pieces.tokens for pieces in public], sizes, rows, private, per_chunk)

    @torch.inference_mode()
    def start_plain(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Session:
        """Read G prompts that have no private rows: the model alone, or (on public data) a text as its prompt.

        Raises:
            ContextTooLong: the longest prompt and the new tokens exceed the model's positions.
        """
        sizes = Sizes(max(map(len, prompts)), 0, 0, max_new_tokens - 1)
        sizes.check_fits(self.model)
        return self._session(prompts, sizes, [], [], per_chunk=0)

    def _session(
        self,
        prompts: Sequence[Sequence[int]],
        sizes: Sizes,
        rows: Sequence[Row],
        private: Sequence[PromptPieces],
        per_chunk: int,
    ) -> Session:
        if not all(prompts):
            raise ValueError("every prompt needs a token")
        public, hidden = self._public_rows(prompts, sizes)
        chunks = self._chunks(rows, [pieces.prefix for pieces in private], sizes, per_chunk)
        return Session(
            self.model,
            self.isolation,
            public,
            hidden,
            chunks,
            generation=self._tensor([row.generation for row in rows]),
            present=self._tensor([len(row.segment) > 0 for row in rows]).bool(),
        )

    def _public_rows(self, prompts: Sequence[Sequence[int]], sizes: Sizes) -> tuple[RowBatch, Tensor]:
        distinct = _distinct(prompts)
        first = RowBatch(self.model, len(distinct), sizes.public_prompt)
        hidden = first.read(distinct, sizes.public_prompt)
        batch = RowBatch(self.model, len(prompts), sizes.public_columns)
        chosen = [distinct.index(tuple(prompt)) for prompt in prompts]
        batch.begin_with(first, chosen)
        return batch, hidden[chosen]

    def _chunks(
        self, rows: Sequence[Row], prefixes: Sequence[Sequence[int]], sizes: Sizes, per_chunk: int
    ) -> list[Chunk]:
        """Read all private rows: the shared prefixes once, then every row's own segment."""
        if not rows:
            return []
        distinct = _distinct(prefixes)
        shared = RowBatch(self.model, len(distinct), sizes.prefix)
        shared.read(distinct, sizes.prefix)
        which = [distinct.index(tuple(prefix)) for prefix in prefixes]
        return [
            self._chunk(rows, members, shared, which, sizes, per_chunk) for members in _longest_first(rows, per_chunk)
        ]

    def _chunk(
        self,
        rows: Sequence[Row],
        members: Sequence[int],
        shared: RowBatch,
        which: Sequence[int],
        sizes: Sizes,
        per_chunk: int,
    ) -> Chunk:
        nulls = per_chunk - len(members)
        placed = [rows[member] for member in members] + [Row(0, ())] * nulls
        batch = RowBatch(self.model, per_chunk, sizes.private_columns, self.isolation.before_pass)
        batch.begin_with(shared, [which[row.generation] for row in placed])
        hidden = batch.read_long([row.segment for row in placed], sizes.segment)
        return Chunk(batch, self._tensor(members), self._tensor([row.generation for row in placed]), hidden)

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.model.device)


def _laid_out(
    private: Sequence[PromptPieces],
    references: Sequence[Sequence[Reference]],
    max_reference_tokens: int,
    vocabulary: int,
) -> list[Row]:
    """One row per reference, in order. A reference that is no token sequence of this model makes a null row."""

    def segment(reference: Reference, pieces: PromptPieces) -> tuple[int, ...]:
        kept = tuple(reference[:max_reference_tokens])
        usable = kept and all(0 <= token < vocabulary for token in kept)
        return kept + pieces.suffix if usable else ()

    return [
        Row(generation, segment(reference, private[generation]))
        for generation, batch in enumerate(references)
        for reference in batch
    ]


def _longest_first(rows: Sequence[Row], per_chunk: int) -> list[list[int]]:
    """Row numbers of each chunk: generations stay together, and within a chunk similar lengths stand together."""
    numbers = range(len(rows))
    chunks = [numbers[first : first + per_chunk] for first in numbers[::per_chunk]]
    return [sorted(chunk, key=lambda number: -len(rows[number].segment)) for chunk in chunks]


def _distinct(sequences: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(tuple(sequence) for sequence in sequences))
