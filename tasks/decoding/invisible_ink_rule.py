"""InvisibleInk's rule: candidates of the public row, clipped mean difference of the private ones, one exact draw."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from tasks.decoding.candidates import CandidateSet
from tasks.decoding.loop import BudgetMeter, Step
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.utility_scores import Variant


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
