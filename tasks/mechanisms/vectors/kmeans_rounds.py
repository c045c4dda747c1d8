"""Noisy counts and sums over bins of units, round after round: `KMeansRounds`, the core of the clusterers.

A round lays the units into disjoint bins, each unit in one of them or in none. A count round releases how many units
each bin has, a sum round the sum of their vectors; where a bin begins and ends, what a vector is, and what the next
round asks may depend on all earlier outputs. Lloyd's iterations are such rounds, and so are the levels of a tree
(PRIVACY §5). Every bin of a round gets noise, empty ones included: an omitted bin would reveal that it is empty.

Why c count rounds and s sum rounds cost c / (2 sigma_c^2) + s S^2 / (2 sigma_s^2). Fix the outputs of earlier rounds
and everything public. Then:

1. what bin a unit is in, and which vector it adds, are functions of that unit alone; an absent unit is in no bin. So
   neighbouring inputs differ in at most one bin, by 1 in its count or by one row's integers in its sum;
2. those integers have L2 norm at most S after all rounding, each row by itself, and are added exactly
   (`tasks.mechanisms.vectors.clipping`). All counts of a round together move by at most 1 in L2, all sums by at most S,
   however many bins there are;
3. independent discrete Gaussian noise on every count makes the round 1 / (2 sigma_c^2)-zCDP, on every coordinate of
   every sum S^2 / (2 sigma_s^2)-zCDP (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14; OpenDP's map agrees);
4. rho adds up over rounds, each of which may be chosen by the outputs of all before it (Bun, Steinke, arXiv
   1605.02065, Lemma 2.3). How many rounds of each kind there are is public and fixed: `Rounds` makes no more.

Whatever is computed from the outputs, weights and centres, is post-processing. Each round is rounded up to a whole
unit. Replacing a unit moves two counts, or two sums, or one sum by up to 2S: the general four times rho covers it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from models_db.errors import Refused, UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import Exact, exact, float_below
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean

if TYPE_CHECKING:
    from torch import Tensor

MECHANISM = "kmeans"
MOST_ROUNDS = 1000
NO_BIN = -1
"""The bin of a unit that is in none."""

_ROWS_AT_ONCE = 2**13  # rows are clipped by themselves and added exactly: any number gives the same bits
_ROOT_BITS = 80

Points = NDArray[np.float32]
Bins = NDArray[np.int64]


@dataclass(frozen=True)
class KMeansRounds:
    """Rounds of private k-means and their noise.

    Attributes:
        count_rounds, sum_rounds: 1 to 1000 each.
        count_sigma: the noise's scale on every count; a multiple of 2^-20 up to 2^32.
        vectors: the clip norm of a unit's vector and the noise on every coordinate of a sum, as of a noisy mean.
    """

    count_rounds: int
    count_sigma: Fraction
    sum_rounds: int
    vectors: NoisyMean

    def __post_init__(self) -> None:
        for rounds in (self.count_rounds, self.sum_rounds):
            if not 1 <= rounds <= MOST_ROUNDS:
                raise _rounds_invalid(f"Clustering has 1 to {MOST_ROUNDS} rounds of a kind, not {rounds}.")
        _ = self.one_hot  # checks the scale

    @property
    def one_hot(self) -> NoisyMean:
        """Counts as sums of vectors with a single 1."""
        return NoisyMean(clip_steps=1, sigma_steps=self.count_sigma, grid_exponent=0)

    @property
    def sum_sigma(self) -> float:
        """The noise's scale on every coordinate of a sum, in the vectors' own unit."""
        return float(self.vectors.sigma)

    def loss(self) -> Amount:
        """Return the charge of all rounds, each rounded up to a whole unit."""
        return self.one_hot.loss() * self.count_rounds + self.vectors.loss() * self.sum_rounds

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` clusterings of the same units.

        The stored `GaussianDpEvent` is one Gaussian mechanism with the mu of all rounds, sqrt(2 rho): what they
        compose to in Gaussian differential privacy (Dong, Roth, Su, arXiv 1905.02383, Corollary 3.3).
        """
        if count < 1:
            raise ValueError(f"an event has at least one clustering, not {count}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=count,
            parameters={
                "count_rounds": self.count_rounds,
                "count_sigma": str(self.count_sigma),
                "sum_rounds": self.sum_rounds,
                "clip_steps": self.vectors.clip_steps,
                "grid_exponent": self.vectors.grid_exponent,
                "sum_sigma_steps": str(self.vectors.sigma_steps),
            },
            loss=self.loss() * count,
            dp_event=zcdp.gaussian_event(self._noise_multiplier(), count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "KMeansRounds":
        """Return the rounds whose parameters `event` stores.

        Raises:
            KeyError, ValueError, RoundsInvalid, MeanInvalid, NoiseInvalid: they are not a clustering's.
        """
        parameters = event.parameters
        steps, exponent = int(parameters["clip_steps"]), int(parameters["grid_exponent"])
        return cls(
            count_rounds=int(parameters["count_rounds"]),
            count_sigma=exact(parameters["count_sigma"]),
            sum_rounds=int(parameters["sum_rounds"]),
            vectors=NoisyMean(steps, exact(parameters["sum_sigma_steps"]), exponent),
        )

    def begin(self, rng: RandomSource) -> "Rounds":
        """Return the rounds that one charge pays for."""
        return Rounds(self, rng)

    def _noise_multiplier(self) -> float:
        """1 / sqrt(mu^2), mu^2 = c / sigma_c^2 + s S^2 / sigma_s^2, rounded down."""
        counts = self.count_rounds / self.count_sigma**2
        sums = self.sum_rounds * (self.vectors.clip_steps / self.vectors.sigma_steps) ** 2
        square = 2 ** (2 * _ROOT_BITS) / (counts + sums)
        return float_below(Fraction(math.isqrt(math.floor(square)), 2**_ROOT_BITS))


def calibrate_rounds(
    rho: int, count_rounds: int, sum_rounds: int, count_share: Exact, clip_norm: Exact = 1
) -> KMeansRounds:
    """Return the least noise whose rounds cost at most `rho` (units of 1e-12) together.

    Args:
        count_share: what the counts get of it, all rounds together; above 0 and below 1.
        clip_norm: R, in the vectors' own unit.

    Raises:
        NoiseInvalid: a round would get so little of rho that its sigma passes 2^32 (sums: 2^32 steps of a grid on which
            R is 2^20 or more): nothing but noise.
        RoundsInvalid, MeanInvalid: no such number of rounds, share or clip norm.
    """
    share = exact(count_share)
    if not 0 < share < 1:
        raise _rounds_invalid(f"The counts' share of the budget must be between 0 and 1, not {count_share}.")
    if not (1 <= count_rounds <= MOST_ROUNDS and 1 <= sum_rounds <= MOST_ROUNDS):
        raise _rounds_invalid(
            f"Clustering has 1 to {MOST_ROUNDS} rounds of a kind, not {count_rounds} and {sum_rounds}."
        )
    for_counts = math.floor(rho * share)
    counts = calibrate_count(for_counts // count_rounds)
    mechanism = KMeansRounds(
        count_rounds, counts.sigma, sum_rounds, calibrate_mean(rho - for_counts, sum_rounds, clip_norm)
    )
    if not mechanism.loss().fits(Amount(rho)):
        raise ArithmeticError(f"{mechanism} costs more than {rho}")
    return mechanism


class Rounds:
    """Rounds that are paid for, and no more of them: the only way to counts and sums with noise.

    Attributes:
        paid: how many there are of each kind, and how noisy.
    """

    def __init__(self, paid: KMeansRounds, rng: RandomSource) -> None:
        self.paid = paid
        self._rng = rng
        self._left = {"count": paid.count_rounds, "sum": paid.sum_rounds}

    def counts(self, bin_of: Bins, bins: int) -> NDArray[np.int64]:
        """Return the noisy number of units in each bin, int64 [bins]; some may be negative.

        Args:
            bin_of: int64 [n], for each unit 0 to bins - 1, or -1 if it is in no bin.
            bins: how many there are, a function of earlier outputs and public facts.

        Raises:
            RoundsExhausted: all count rounds are used up.
            ValueError: a bin that there is not.
        """
        _require_bins(bin_of, bins)
        self._use("count")
        exact_counts = np.bincount(bin_of[bin_of != NO_BIN], minlength=bins)
        return self._noisy(self.paid.one_hot, exact_counts[:, None])[:, 0]

    def sums(self, points: Points, bin_of: Bins, bins: int) -> NDArray[np.float64]:
        """Return the noisy sum of the vectors in each bin, float64 [bins, d], in the vectors' own unit.

        Args:
            points: float32 [n, d], a row a unit, a function of that unit, of earlier outputs and of public facts; it is
                clipped here, and a row that is not finite adds nothing.
            bin_of, bins: as for `counts`.

        Raises:
            RoundsExhausted: all sum rounds are used up.
            ValueError: a bin that there is not, or not a bin for each row.
        """
        if points.shape != (len(bin_of), points.shape[-1]):
            raise ValueError(f"{len(bin_of)} bins for points of shape {points.shape}")
        _require_bins(bin_of, bins)
        self._use("sum")
        noisy = self._noisy(self.paid.vectors, binned_sums(self.paid.vectors.quantised, points, bin_of, bins))
        return np.ldexp(noisy.astype(np.float64), -self.paid.vectors.grid_exponent)

    def _use(self, kind: str) -> None:
        if not self._left[kind]:
            raise Refused(
                f"All {kind} rounds of this clustering are used up.",
                "Nothing more was drawn. Report this: the clusterer exceeds its plan.",
                {"kind": kind},
                code="RoundsExhausted",
            )
        self._left[kind] -= 1

    def _noisy(self, noise: NoisyMean, exact_sums: NDArray[np.int64]) -> NDArray[np.int64]:
        import torch

        drawn: NDArray[np.int64] = noise.draw(torch.from_numpy(exact_sums.astype(np.int64)), self._rng).numpy()
        return drawn


def binned_sums(clip: "Callable[[Tensor], Tensor]", points: Points, bin_of: Bins, bins: int) -> NDArray[np.int64]:
    """Return the exact sums of clipped rows, WITHOUT noise: int64 [bins, d].

    Args:
        clip: float32 [m, d] -> int64 [m, d], each row by itself.
    """
    import torch

    sums = torch.zeros((bins, points.shape[1]), dtype=torch.int64)
    inside = np.flatnonzero(bin_of != NO_BIN)
    for start in range(0, len(inside), _ROWS_AT_ONCE):
        rows = inside[start : start + _ROWS_AT_ONCE]
        sums.index_add_(0, torch.from_numpy(bin_of[rows]), clip(torch.from_numpy(points[rows])))
    totals: NDArray[np.int64] = sums.numpy()
    return totals


def _require_bins(bin_of: Bins, bins: int) -> None:
    if bins < 1 or (bin_of < NO_BIN).any() or (bin_of >= bins).any():
        raise ValueError(f"units must be in one of {bins} bins, or in none")


def _rounds_invalid(message: str) -> UsageError:
    return UsageError(message, "Correct the parameters of the request.", code="RoundsInvalid")
