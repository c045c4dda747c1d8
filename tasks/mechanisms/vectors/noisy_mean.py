"""The mean of clipped vectors with discrete Gaussian noise: `NoisyMean` (PRIVACY §4.2, §5).

Every row contributes a vector of integers of L2 norm at most S, S = C/g with C the clip norm and g = 2^-e the grid.
Rows are added exactly, every coordinate gets discrete Gaussian noise of scale sigma (in grid steps), and the sum is
divided by the PUBLIC number n of rows. Private summaries of many documents read them so, at every token or once.

Why a draw costs S^2 / (2 sigma^2). Fix earlier outputs and everything public. Two neighbouring inputs differ by one
unit, which is one row of one sum:

1. the other rows' integers are functions of their own row alone (`tasks.mechanisms.vectors.clipping`), and an absent
   row adds exactly zero, so the sums differ by exactly that row's vector of integers, of norm at most S after all
   rounding;
2. independent discrete Gaussian noise on the integers makes a query of L2 sensitivity S satisfy S^2 / (2 sigma^2)-zCDP
   (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14; OpenDP's map agrees);
3. division by n, a public number, comes after the noise. So neither n nor the number of coordinates is in the loss.

In real numbers: the noise on the mean is sigma g / n, the mean moves by C/n, and rho = (C/n)^2 / (2 (sigma g / n)^2).
Replacing a unit moves the sum by at most 2S: four times rho, which is the 2C/n of the paper.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import Exact, exact, float_below
from tasks.mechanisms.core.opendp import Measurement, check_with_opendp, load_opendp
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import LARGEST_SIGMA, NoiseInvalid, check_sigma, least_sigma, rounded_normal

if TYPE_CHECKING:
    from torch import Tensor

MECHANISM = "noisy_mean"
# Bounds of the integers in `clipping`; with them 2^31 rows cannot overflow what OpenDP adds noise to.
LARGEST_CLIP_STEPS = 2**21
LARGEST_GRID_EXPONENT = 100
# A calibrated clip norm is 2^20 to 2^21 grid steps: truncation moves a row of 2^12 entries by less than 2^8 steps,
# 0.03 % of the norm (measured: 0.001 %).
FINEST_CLIP_STEPS = 2**20


@dataclass(frozen=True)
class NoisyMean:
    """One kind of noisy mean.

    Attributes:
        clip_steps: S, the largest L2 norm of a row, in grid steps.
        sigma_steps: the noise's scale on each coordinate of the sum, in grid steps; a multiple of 2^-20 up to 2^32.
        grid_exponent: e, the grid is 2^-e.
    """

    clip_steps: int
    sigma_steps: Fraction
    grid_exponent: int

    def __post_init__(self) -> None:
        if not 1 <= self.clip_steps <= LARGEST_CLIP_STEPS:
            raise _mean_invalid(f"The clip norm must be 1 to 2^21 grid steps, not {self.clip_steps}.")
        if abs(self.grid_exponent) > LARGEST_GRID_EXPONENT:
            raise _mean_invalid(f"The grid must be 2^-100 to 2^100, not 2^{-self.grid_exponent}.")
        check_sigma(self.sigma_steps)

    @property
    def clip_norm(self) -> Fraction:
        """C, in the vectors' own unit."""
        return self.clip_steps * self._grid

    @property
    def sigma(self) -> Fraction:
        """The noise's scale on each coordinate of the SUM, in the vectors' own unit; on the mean it is sigma / n."""
        return self.sigma_steps * self._grid

    @property
    def _grid(self) -> Fraction:
        return Fraction(2) ** -self.grid_exponent

    def loss(self) -> Amount:
        """Return the charge of one draw, S^2 / (2 sigma^2), rounded up to a whole unit.

        Rounding each draw, not their sum, makes instalments of draws add up to exactly the plan (PRIVACY §6).
        """
        return zcdp.gaussian(self.clip_steps, self.sigma_steps)

    def gdp_mu(self, draws: int) -> float:
        """Return the mu of `draws` draws in Gaussian differential privacy, sqrt(T) S / sigma: a figure for reports.

        Exact for continuous noise (Dong, Roth, Su, arXiv 1905.02383, Theorem 2.7 and Corollary 3.3), and mu^2 / 2 is
        rho. Noise on a grid this fine differs from it by less than any report shows; the claim is rho's.
        """
        return math.sqrt(draws) * float(self.clip_steps / self.sigma_steps)

    def event(self, draws: int = 1) -> PrivacyEvent:
        """`draws` noisy means of the same units in a row; a unit in m groups meets m times as many.

        The stored `GaussianDpEvent` has the same zCDP; its privacy loss distribution is the continuous Gaussian's.
        """
        if draws < 1:
            raise ValueError(f"an event has at least one draw, not {draws}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=draws,
            parameters={
                "clip_steps": self.clip_steps,
                "grid_exponent": self.grid_exponent,
                "sigma_steps": str(self.sigma_steps),
            },
            loss=self.loss() * draws,
            dp_event=zcdp.gaussian_event(float_below(self.sigma_steps / self.clip_steps), draws),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "NoisyMean":
        """Return the mean whose parameters `event` stores.

        Raises:
            KeyError, ValueError, MeanInvalid, NoiseInvalid: they are not a noisy mean's.
        """
        return cls(
            clip_steps=int(event.parameters["clip_steps"]),
            sigma_steps=exact(event.parameters["sigma_steps"]),
            grid_exponent=int(event.parameters["grid_exponent"]),
        )

    def quantised(self, values: "Tensor") -> "Tensor":
        """Return the contribution of each row by itself: float32 [N, D] -> int64 [N, D] of L2 norm at most S.

        Raises:
            TypeError, ValueError: values that are not float32, or more than 2^18 coordinates.
        """
        from tasks.mechanisms.vectors.clipping import clip_vectors  # torch

        return clip_vectors(values, self.clip_steps, self.grid_exponent)

    def draw(self, sums: "Tensor", rng: RandomSource) -> "Tensor":
        """Return the exact sums with noise on every coordinate: int64 [G, D] -> int64 [G, D], about 10 us a coordinate.

        Args:
            sums: `utility_scores.sum_rows` of what `quantised` gives, zeros for a group without rows; below 2^53. A row
                is in one of the G sums.
            rng: the operating system's, through OpenDP; any other source rounds a float normal, which is not
                private, as its kind says.

        Raises:
            TypeError: sums in floating point, which are not exact.
        """
        if sums.is_floating_point():
            raise TypeError(f"noise is added to integers, not to {sums.dtype}")
        exact_sums: list[int] = sums.flatten().tolist()
        if rng.kind == "os":
            noisy = _discrete_gaussians(self)(exact_sums)
        else:
            noisy = [one + rounded_normal(float(self.sigma_steps), rng) for one in exact_sums]
        return sums.new_tensor(noisy).reshape(sums.shape)

    def mean(self, noisy: "Tensor", references: int) -> "Tensor":
        """Return the noisy sums over n, in the vectors' own unit: int64 [G, D] -> float32 [G, D].

        Args:
            noisy: what `draw` gives; dividing exact sums protects nobody.
            references: n, the PUBLIC number of rows that a group is expected to have, however many there are.
        """
        if references < 1:
            raise ValueError(f"a mean is over a public number of rows, at least 1, not {references}")
        return noisy.double().mul_(float(self._grid / references)).float()


def calibrate_mean(rho: int, draws: int, clip_norm: Exact) -> NoisyMean:
    """Return the noisy mean with the least noise whose `draws` draws cost at most `rho` (units of 1e-12).

    The grid is the power of two on which the clip norm is 2^20 to 2^21 steps; what it rounds away from the clip norm is
    less than 2^-20 of it, downwards.

    Args:
        clip_norm: C, in the vectors' own unit.

    Raises:
        NoiseInvalid: a draw would get so little of rho that sigma passes 2^32 grid steps: below 1.2e-7 it may, with
            nothing left of any vector.
        MeanInvalid: no draws, or a clip norm that is not positive or beyond 2^-80 to 2^120.
    """
    norm = exact(clip_norm)
    if draws < 1:
        raise _mean_invalid(f"A mean is drawn at least once, not {draws} times.")
    if norm <= 0:
        raise _mean_invalid(f"The clip norm must be positive, not {norm}.")
    exponent = _grid_exponent(norm)
    steps = math.floor(norm * Fraction(2) ** exponent)
    sigma = least_sigma(rho // draws, steps)
    if sigma > LARGEST_SIGMA:
        raise NoiseInvalid(f"{draws} noisy means for {rho} units of rho would be nothing but noise.")
    mechanism = NoisyMean(steps, sigma, exponent)
    if not (mechanism.loss() * draws).fits(Amount(rho)):
        raise ArithmeticError(f"{draws} draws of {mechanism} cost more than {rho}")
    return mechanism


def _grid_exponent(norm: Fraction) -> int:
    """Return the e with 2^20 <= norm 2^e < 2^21."""
    exponent = FINEST_CLIP_STEPS.bit_length() + norm.denominator.bit_length() - norm.numerator.bit_length()
    # The quotient of two numbers of a and b bits is in (2^(a-b-1), 2^(a-b+1)): e, or one less.
    return exponent if norm * Fraction(2) ** exponent < 2 * FINEST_CLIP_STEPS else exponent - 1


@lru_cache(maxsize=64)
def _discrete_gaussians(mean: NoisyMean) -> Measurement:
    dp = load_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement = dp.m.make_gaussian(*space, scale=float(mean.sigma_steps))
    return check_with_opendp(measurement, float(mean.clip_steps), mean.loss())


def _mean_invalid(message: str) -> UsageError:
    return UsageError(message, "Correct the parameters of the request.", code="MeanInvalid")
