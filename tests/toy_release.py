"""A release whose law is known: binary draws of several batches, each of which depends on all earlier ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ToyRelease:
    """Every outcome of a release, a row of bits, with and without a unit.

    Draws go round the batches. A draw's public law and the sign of what the unit does to it depend on how many ones
    all batches have drawn so far: the batches steer one another, as the entry of one text steers the last bits of
    others (decision 0017).

    Attributes:
        batches, draws: N batches, of so many draws each.
        eta: the range by which a unit moves the logarithms of a draw: eta^2/8 of rho each.
        without: the probability of each outcome without the unit.
        ratios: [N, outcomes], by what the probability is multiplied if the unit is in a batch.
    """

    batches: int
    draws: int
    eta: float
    without: Floats
    ratios: Floats

    @classmethod
    def of(cls, batches: int, draws: int, eta: float) -> "ToyRelease":
        """Return all 2^(batches * draws) outcomes."""
        outcomes = list(product((0, 1), repeat=batches * draws))
        without, ratios = np.ones(len(outcomes)), np.ones((batches, len(outcomes)))
        for number, bits in enumerate(outcomes):
            for draw, bit in enumerate(bits):
                batch, ones = draw % batches, sum(bits[: draw - draw % batches])
                absent, present = (probability(batch, ones, shift)[bit] for shift in (0.0, eta))
                without[number] *= absent
                ratios[batch, number] *= present / absent
        return cls(batches, draws, eta, without, ratios)

    @property
    def rho(self) -> int:
        """zCDP of all draws of one batch, in units of 1e-12, rounded up."""
        return math.ceil(self.draws * self.eta**2 / 8 * 1e12)

    def allocated(self) -> Floats:
        """Return the probability of each outcome with a unit that is in one batch, each as likely as another."""
        return self.placed([(place,) for place in range(self.batches)])

    def placed(self, places: Sequence[tuple[int, ...]]) -> Floats:
        """Return the same for a unit that is in all batches of one of `places`, each as likely as another."""
        laws: Floats = np.mean([self.ratios[list(place)].prod(axis=0) for place in places], axis=0)
        return self.without * laws


def probability(batch: int, ones: int, shift: float) -> tuple[float, float]:
    """Return the probabilities of 0 and 1 of a batch's draw after so many ones, the unit moving it by `shift`."""
    odd = ones % 2
    base = 0.5 + 0.2 * (odd if batch % 2 else -odd)
    weight = base * math.exp(shift if (odd + batch) % 2 else -shift)
    one = weight / (weight + 1 - base)
    return 1 - one, one


def least_epsilon(one: Floats, other: Floats, delta: float) -> float:
    """Return the least epsilon with one <= e^epsilon other + delta for every set of outcomes, to 1e-12, from below."""
    low, high = 0.0, 64.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        exceeds = np.maximum(one - math.exp(middle) * other, 0).sum() > delta
        low, high = (middle, high) if exceeds else (low, middle)
    return low
