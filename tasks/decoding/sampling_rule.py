"""InvisibleInk's sampling rule, and the steps that the rules of other systems share with it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from tasks.decoding.loop import BudgetMeter, Step
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import Candidates, Variant

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


@dataclass
class _Tally:
    draws: int = 0
    candidates: int = 0
    from_expansion: int = 0


@dataclass(frozen=True)
class InvisibleInkRule:
    """InvisibleInk's sampling rule (PRIVACY §4.1), the same for every generation of a release.

    Attributes:
        draw: clip norm, references, temperature.
        top_k: k; None or 0 for the whole vocabulary.
        variant: quantity that is clipped.
        meter: pays for the draws.
    """

    draw: IntegerTableMechanism
    top_k: int | None
    variant: Variant
    rng: RandomSource
    meter: BudgetMeter
    _tallies: defaultdict[int, _Tally] = field(default_factory=lambda: defaultdict(_Tally))

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation."""
        self.meter.admit(max(step.positions))
        choice = CandidateSet.of(step, self.top_k, self.draw)
        sums = choice.sums(choice.rows(step), partial(self._clipped, choice))
        scores = utility_scores.utilities(self.draw, choice.candidates.of_public(step.public), sums)
        tokens = utility_scores.draw_tokens(self.draw, choice.candidates, scores, self.rng)
        self._count(step, choice, tokens)
        return tokens

    def facts(self, number: int) -> Mapping[str, float]:
        """Return `draws`, `effective_k` (mean number of candidates), and `from_expansion` (draws beyond the top k).

        All are functions of the released tokens and of the public logits along them.
        """
        tally = self._tallies[number]
        return {
            "draws": float(tally.draws),
            "effective_k": tally.candidates / max(1, tally.draws),
            "from_expansion": float(tally.from_expansion),
        }

    def kept(self, number: int) -> Sequence[float]:
        """Return the tallies of its facts."""
        tally = self._tallies[number]
        return tally.draws, tally.candidates, tally.from_expansion

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Tallies go on."""
        self._tallies[number] = _Tally(*map(int, kept))

    def _clipped(self, choice: CandidateSet, logits: Tensor, generation: Tensor) -> Tensor:
        return utility_scores.clip_rows(self.draw, logits, choice.public, generation, self.variant)

    def _count(self, step: Step, choice: CandidateSet, tokens: list[int]) -> None:
        widths = choice.candidates.allowed.sum(1)
        figures = torch.stack((widths, self._outside(step.public, choice.public, tokens)), 1)
        for number, (width, beyond) in zip(step.numbers, figures.tolist(), strict=True):
            tally = self._tallies[number]
            tally.draws, tally.candidates = tally.draws + 1, tally.candidates + width
            tally.from_expansion += beyond

    def _outside(self, public: Tensor, chosen: Tensor, tokens: list[int]) -> Tensor:
        """Return 1 for each token that is below the k-th largest public logit: int64 [L]."""
        drawn = torch.tensor(tokens, device=public.device)
        if not self.top_k or self.top_k > chosen.shape[1] or self.top_k >= public.shape[1]:
            return torch.zeros_like(drawn)  # the whole vocabulary, or a constraint that leaves fewer than k
        # Candidates stand in descending order.
        return (public.gather(1, drawn[:, None])[:, 0] < chosen[:, self.top_k - 1]).long()
