"""AdaPMixED's rule: rows mixed into a Renyi ball around the public distribution. NOT PRIVATE: floats, no fixed bound.

As far as its summaries tell (the paper's own code is not public), in this order at each step:

1. screening: the mean of all rows at a small weight, with Gaussian noise on every candidate; where its divergence from
   the public distribution exceeds a threshold, the step is expensive and the token is public;
2. mixing: each row gets the largest weight lambda_i for which lambda_i p_i + (1 - lambda_i) p_pub stays within the
   symmetric Renyi divergence `order * radius` of p_pub (bisection from below, so that it never lies outside);
3. the token is drawn from the mean of the mixtures, over the rows that are present;
4. the loss is the largest symmetric Renyi divergence between that mean and the same without one of its rows.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasks.decoding.loop import Step
from tasks.decoding.sampling_rule import CandidateSet
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import public_sampler

BISECTIONS = 30
_TINY = 1e-30


@dataclass
class _Spent:
    loss: float = 0.0
    mixed: int = 0


@dataclass(frozen=True)
class AdaPMixedRule:
    """AdaPMixED's sampling rule; parameters as in `AdaPMixedParameters`."""

    temperature: float
    references: int
    top_k: int
    order: float
    radius: float
    weight: float
    noise: float
    threshold: float
    rng: RandomSource
    _spent: defaultdict[int, _Spent] = field(default_factory=lambda: defaultdict(_Spent))

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation."""
        choice = CandidateSet.of(step, self.top_k, public_sampler(1))
        public = _softmax(choice.public.double() / self.temperature)
        rows = choice.rows(step)
        tokens = []
        for index, number in enumerate(step.numbers):
            usable = choice.candidates.allowed[index]
            own = rows.values[rows.generation == index].double().masked_fill(~usable, -math.inf)
            mean = self._mean(public[index], _softmax(own / self.temperature), self._spent[number])
            tokens.append(int(choice.candidates.tokens[index, self._draw(mean)]))
        return tokens

    def facts(self, number: int) -> Mapping[str, float]:
        """`renyi_loss`: the data-dependent loss, NOT a guarantee; `private_tokens`: steps that passed the screening."""
        spent = self._spent[number]
        return {"renyi_loss": spent.loss, "private_tokens": float(spent.mixed)}

    def kept(self, number: int) -> Sequence[float]:
        """Loss and mixtures so far."""
        spent = self._spent[number]
        return spent.loss, spent.mixed

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Restore the state of a generation."""
        loss, mixed = kept
        self._spent[number] = _Spent(float(loss), int(mixed))

    def _mean(self, public: Tensor, rows: Tensor, spent: _Spent) -> Tensor:
        """Return the distribution that the token is drawn from: float64 [K]."""
        if not len(rows):
            return public
        # The Gaussian noise of the screening has a fixed price: L2 sensitivity sqrt(2) weight / s.
        spent.loss += self.order * (math.sqrt(2) * self.weight / self.references / self.noise) ** 2 / 2
        if self._screened_out(public, rows):
            return public
        mixed = self._mixed(public, rows)
        mean = mixed.mean(0)
        spent.mixed += 1
        spent.loss += self._loss(mean, mixed, public)
        return mean

    def _screened_out(self, public: Tensor, rows: Tensor) -> bool:
        mean = (self.weight * rows + (1 - self.weight) * public).mean(0)
        noisy = (mean + self.noise * self._normal(len(mean)).to(mean.device)).clamp_min(_TINY)
        return float(divergence(self.order, noisy / noisy.sum(), public)) > self.threshold

    def _mixed(self, public: Tensor, rows: Tensor) -> Tensor:
        """Return each row with its largest weight inside the ball: [N, K] -> [N, K]."""
        inside, outside = torch.zeros_like(rows[:, :1]), torch.ones_like(rows[:, :1])
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            fits = symmetric(self.order, middle * rows + (1 - middle) * public, public) <= self.order * self.radius
            inside, outside = torch.where(fits[:, None], middle, inside), torch.where(fits[:, None], outside, middle)
        return inside * rows + (1 - inside) * public

    def _loss(self, mean: Tensor, mixed: Tensor, public: Tensor) -> float:
        """Return the largest divergence from the mean without one row; a single row is compared with the public one."""
        others = len(mixed) - 1
        without = (mean * len(mixed) - mixed) / others if others else public[None]
        return float(symmetric(self.order, without.clamp_min(_TINY), mean).max())

    def _normal(self, size: int) -> Tensor:
        """Standard normal numbers by Box-Muller, from this release's source."""
        drawn = torch.frombuffer(bytearray(self.rng.random_bytes(16 * size)), dtype=torch.int64).view(2, size)
        uniform = ((drawn >> 11) & (2**53 - 1)).double() / 2**53
        return (-2 * torch.log1p(-uniform[0])).sqrt() * torch.cos(2 * math.pi * uniform[1])

    def _draw(self, probabilities: Tensor) -> int:
        """Draw by an inverse CDF in floats, which is not private."""
        sums = probabilities.cumsum(0)
        place = self.rng.uniform_below(2**53) / 2**53 * float(sums[-1])
        return min(int(torch.searchsorted(sums, place, right=True)), int(probabilities.nonzero()[-1]))


def divergence(order: float, first: Tensor, second: Tensor) -> Tensor:
    """Return the Renyi divergence of distributions in the last dimension; where `second` is zero, so is `first`."""
    common = (second > 0).expand_as(first)
    ratio = torch.where(common, first.clamp_min(_TINY).log() - second.clamp_min(_TINY).log(), 0.0)
    weights = second.clamp_min(_TINY).log().expand_as(first).masked_fill(~common, -math.inf)
    return torch.logsumexp(weights + order * ratio, -1) / (order - 1)


def symmetric(order: float, first: Tensor, second: Tensor) -> Tensor:
    """Return the larger of both directions."""
    return torch.maximum(divergence(order, first, second), divergence(order, second.expand_as(first), first))


def _softmax(logits: Tensor) -> Tensor:
    return logits.nan_to_num(nan=-math.inf, posinf=-math.inf).softmax(-1).nan_to_num(nan=0.0)
