"""G generations being decoded side by side: public rows in one batch, private rows in chunks of one shape."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.isolation import IsolationCheck
from tasks.inference.language_model import LanguageModel
from tasks.inference.rows import RowBatch

# Candidate sets are filled up to a multiple of this, so that the head is used in few shapes.
_CANDIDATES_STEP = 256


@dataclass(frozen=True)
class RowLogits:
    """Logits of the private rows of all unfinished generations, in the order their references were given.

    Attributes:
        values: float32 [rows, K]; zeros where not valid.
        generation: int64 [rows], which generation a row belongs to.
        valid: bool [rows], false for a null row (no text) and for one whose logits are not finite: its contribution
            must be zero (PRIVACY §3).
    """

    values: Tensor
    generation: Tensor
    valid: Tensor


@dataclass(eq=False)
class Chunk:
    """One fixed-shape batch of private rows.

    Attributes:
        batch: the rows, null rows included.
        members: int64 [n], the numbers of the private rows in its first n places.
        generation: int64 [rows], whose candidates a place is scored on; 0 for a null row.
        hidden: float32 [rows, D], the last hidden states.
    """

    batch: RowBatch
    members: Tensor
    generation: Tensor
    hidden: Tensor


class Session:
    """What `Engine.start` returns. The caller draws; the session only computes.

    Args:
        public, public_hidden: the public rows, one per generation, and their last hidden states.
        chunks: the private rows.
        generation: int64 [rows], the generation of each private row.
        present: bool [rows], false for null rows.
    """

    def __init__(
        self,
        model: LanguageModel,
        isolation: IsolationCheck,
        public: RowBatch,
        public_hidden: Tensor,
        chunks: Sequence[Chunk],
        generation: Tensor,
        present: Tensor,
    ) -> None:
        self._model, self._isolation = model, isolation
        self._public, self._public_hidden = public, public_hidden
        self._chunks = list(chunks)
        self._generation, self._present = generation, present
        self._running = torch.ones(public.rows, dtype=torch.bool, device=model.device)
        self._for_public: Tensor | None = None
        self._for_private: Tensor | None = None

    @property
    def generations(self) -> int:
        """G, finished ones included."""
        return self._public.rows

    @torch.inference_mode()
    def public_logits(self) -> Tensor:
        """float32 [G, V]. A finished generation's row has no meaning."""
        self._read_public()
        return self._model.logits(self._public_hidden)

    @torch.inference_mode()
    def private_logits(self, candidates: Tensor | None = None) -> RowLogits:
        """Logits of every row of every unfinished generation.

        Args:
            candidates: int64 [G, K], chosen without looking at any private row; fill shorter sets up with any token
                id. None stands for the whole vocabulary in order.
        """
        if candidates is not None and (candidates.dim() != 2 or candidates.shape[0] != self.generations):
            raise ValueError(f"candidates must be [{self.generations}, K], not {list(candidates.shape)}")
        self._read_private()
        width = self._model.vocabulary if candidates is None else candidates.shape[1]
        values = torch.zeros((len(self._generation), width), device=self._model.device)
        for chunk in self._chunks:
            values[chunk.members] = self._score(chunk, candidates)[: len(chunk.members)]
        kept = self._running[self._generation]
        values, valid = values[kept], self._present[kept] & values[kept].isfinite().all(1)
        return RowLogits(values.masked_fill_(~valid[:, None], 0.0), self._generation[kept], valid)

    def advance(self, tokens: Tensor) -> None:
        """Append one token per generation, int64 [G]; a finished generation's is ignored.

        The passes themselves run when logits are next asked for; asking beyond `max_new_tokens` is a ValueError.
        """
        if tokens.shape != (self.generations,):
            raise ValueError(f"tokens must be [{self.generations}], not {list(tokens.shape)}")
        self._read_public()
        self._read_private()
        self._for_public = self._for_private = tokens.to(self._model.device)

    @torch.inference_mode()
    def finish(self, generation: int) -> None:
        """Mark a generation as ended, a public fact; a chunk that serves only ended ones is let go."""
        self._running[generation] = False
        self._chunks = [chunk for chunk in self._chunks if self._running[self._generation[chunk.members]].any()]

    @torch.inference_mode()
    def _read_public(self) -> None:
        if self._for_public is not None:
            self._public_hidden = self._public.step(self._for_public)
            self._for_public = None

    @torch.inference_mode()
    def _read_private(self) -> None:
        if self._for_private is not None:
            for chunk in self._chunks:
                chunk.hidden = chunk.batch.step(self._for_private[chunk.generation])
            self._for_private = None

    def _score(self, chunk: Chunk, candidates: Tensor | None) -> Tensor:
        """[rows, K]: all rows meet the candidates of all generations, and each keeps its own generation's.

        One product of public shape; a product per generation would have as many rows as the generation has units.
        """
        if candidates is None:
            return self._model.logits(chunk.hidden)
        flat = candidates.flatten()
        filled = torch.nn.functional.pad(flat, (0, -len(flat) % _CANDIDATES_STEP))
        self._isolation.candidates(chunk.batch.rows, len(filled))
        scores = self._model.logits_of(chunk.hidden, filled)[:, : len(flat)]
        return scores.view(chunk.batch.rows, *candidates.shape)[torch.arange(chunk.batch.rows), chunk.generation]
