"""Shared steps of the systems' rules: candidates, their rows' logits, exact sums over rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from tasks.decoding.loop import Step
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import Candidates

# So many logits are clipped at a time: int64 copies of many whole vocabularies would need gigabytes.
LOGITS_AT_ONCE = 2**22


Contribution: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Logits float32 [N, K] and the generation of each row int64 [N] -> int64 [N, K], each row by itself."""


@dataclass(frozen=True)
class CandidateSet:
    """The tokens that may be drawn at one step, L live generations.

    Attributes:
        candidates: int64 and bool [L, K], from public logits alone.
        public: float32 [L, K], the candidates' public logits; -inf where there is no candidate.
        vocabulary: V.
    """

    candidates: Candidates
    public: Tensor
    vocabulary: int

    @classmethod
    def of(cls, step: Step, top_k: int | None, draw: IntegerTableMechanism) -> "CandidateSet":
        """Return the top-k+ of `draw` (PRIVACY §4.1): None, 0, or k of at least V, is the whole vocabulary."""
        candidates = utility_scores.candidates(step.public, top_k, draw)
        return cls(candidates, candidates.of_public(step.public), step.public.shape[1])

    def rows(self, step: Step) -> RowLogits:
        """Return the candidates' logits in every row; the draw must have been admitted."""
        whole = self.candidates.tokens.shape[1] == self.vocabulary
        rows = step.private(None if whole else self.candidates.tokens)
        values, generation = rows.values[rows.valid], rows.generation[rows.valid]
        if whole:  # they come in the vocabulary's order, which need not be the candidates'
            values = self.candidates.of_rows(values, generation)
        return RowLogits(values, generation, torch.ones_like(generation, dtype=torch.bool))

    def part(self, some: Sequence[int]) -> "CandidateSet":
        """Return the candidates of some of the generations, by live index."""
        chosen = list(some)
        subset = Candidates(self.candidates.tokens[chosen], self.candidates.allowed[chosen])
        return CandidateSet(subset, self.public[chosen], self.vocabulary)

    def sums(self, rows: RowLogits, contribution: Contribution) -> Tensor:
        """Return exact sums of the rows' contributions: -> int64 [L, K]."""
        total = torch.zeros_like(self.candidates.tokens)
        height = max(1, LOGITS_AT_ONCE // total.shape[1])
        for start in range(0, len(rows.values), height):
            some = slice(start, start + height)
            generation = rows.generation[some]
            total += utility_scores.sum_rows(contribution(rows.values[some], generation), generation, len(total))
        return total

    def sums_over_allowed(self, rows: RowLogits, contribution: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return `sums` of contributions that depend on a row's logits and on its candidates, bool [N, K]."""
        return self.sums(rows, lambda logits, generation: contribution(logits, self.candidates.allowed[generation]))
