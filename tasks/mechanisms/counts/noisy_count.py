"""Discrete noise on integers: `NoisyCount` with Gaussian noise through OpenDP, and Laplace noise (PRIVACY §2, §5).

Discretised Gaussian noise on integers, through OpenDP: `NoisyCount` (PRIVACY §2, §5). A count of units is an integer,
adding or removing one unit moves it by at most 1, and the noise is drawn on the integers, so rho = 1 / (2 sigma^2)
exactly (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 4).

Discrete Laplace noise on integers: P(x) ~ exp(-|x| / b), of which each of k moved coordinates is 1/b-DP. Canonne,
Kamath, Steinke, arXiv 2004.00010, section 5.2, have the sampler that OpenDP uses; it is exact.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from models_db.errors import UsageError
from models_db.values.amounts import RHO_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import exact, float_below
from tasks.mechanisms.core.opendp import Measurement, check_with_opendp, load_opendp
from tasks.mechanisms.core.rng import RandomSource

MECHANISM = "noisy_count"
SENSITIVITY = 1
# Sigma lies on a grid of 2^-20, where every value up to 2^32 is a double: OpenDP gets exactly what is charged
# for.
SIGMA_GRID = 2**20
LARGEST_SIGMA = 2**32


@dataclass(frozen=True)
class NoisyCount:
    """A count of units with discrete Gaussian noise.

    Attributes:
        sigma: the noise's scale parameter, a multiple of 2^-20 up to 2^32.
    """

    sigma: Fraction

    def __post_init__(self) -> None:
        check_sigma(self.sigma)

    def loss(self) -> Amount:
        """Return the charge of one count, 1 / (2 sigma^2), rounded up."""
        return zcdp.gaussian(SENSITIVITY, self.sigma)

    def event(self, counts: int = 1) -> PrivacyEvent:
        """`counts` noisy counts of the same units.

        The stored `GaussianDpEvent` has the same zCDP. Its privacy loss distribution is the continuous Gaussian's,
        whose delta can be smaller than ours (3 % at sigma 5, 0.2 % at sigma 20): a figure for reports, not a claim.
        """
        if counts < 1:
            raise ValueError(f"an event has at least one count, not {counts}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=counts,
            parameters={"sigma": str(self.sigma), "sensitivity": SENSITIVITY},
            loss=self.loss() * counts,
            dp_event=zcdp.gaussian_event(float_below(self.sigma), counts),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "NoisyCount":
        """Return the count whose parameters `event` stores.

        Raises:
            KeyError, ValueError, NoiseInvalid: they are not a noisy count's.
        """
        return cls(exact(event.parameters["sigma"]))

    def draw(self, count: int, rng: RandomSource) -> int:
        """`count` plus discrete Gaussian noise; it may be negative.

        Args:
            count: the true count, below 2^53.
            rng: the operating system's, through OpenDP; any other source rounds a float normal, which is not
                private, as its kind says.
        """
        if rng.kind == "os":
            return int(_discrete_gaussian(self)(count))
        return count + rounded_normal(float(self.sigma), rng)


def calibrate_count(rho: int) -> NoisyCount:
    """Return the noisy count with the smallest sigma that costs at most `rho` (units of 1e-12), within 0.1 %.

    Raises:
        NoiseInvalid: rho is not positive, or so small that sigma would pass 2^32.

    >>> count = calibrate_count(30556595197)
    >>> count.sigma
    Fraction(4241627, 1048576)
    >>> count.loss().fits(Amount(30556595197))
    True
    """
    mechanism = NoisyCount(least_sigma(rho, SENSITIVITY))
    if not mechanism.loss().fits(Amount(rho)):
        raise ArithmeticError(f"{mechanism} costs more than {rho}")
    return mechanism


def least_sigma(rho: int, sensitivity: int) -> Fraction:
    """Return the smallest sigma on the grid with sensitivity^2 / (2 sigma^2) at most `rho` (units of 1e-12).

    Raises:
        NoiseInvalid: rho is not positive.
    """
    return least_scale(rho, sensitivity**2)


def least_scale(rho: int, square: int) -> Fraction:
    """`least_sigma` for an L2 sensitivity that is the root of `square`.

    Raises:
        NoiseInvalid: rho is not positive.
    """
    if rho < 1:
        raise NoiseInvalid(f"Noise needs a positive rho, not {rho} units.")
    # sigma^2 >= s^2 / (2 rho), in grid steps, rounded up.
    square = math.ceil(Fraction(RHO_UNIT * SIGMA_GRID**2 * square, 2 * rho))
    return Fraction(math.isqrt(square - 1) + 1, SIGMA_GRID)


def check_sigma(sigma: Fraction) -> None:
    """Refuse a scale that is not exactly a double, or too large.

    Raises:
        NoiseInvalid: it is no multiple of 2^-20 in (0, 2^32].
    """
    if not 0 < sigma <= LARGEST_SIGMA or (sigma * SIGMA_GRID).denominator != 1:
        raise NoiseInvalid(f"Sigma must be a multiple of 2^-20 up to 2^32, not {sigma}.")


@lru_cache(maxsize=64)
def _discrete_gaussian(count: NoisyCount) -> Measurement:
    dp = load_opendp()
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    measurement = dp.m.make_gaussian(*space, scale=float(count.sigma))
    return check_with_opendp(measurement, SENSITIVITY, count.loss())


def gaussian_variance(sigma: float) -> float:
    """Return the variance of discrete Gaussian noise: sigma^2 to the last digit from 3 on, less below."""
    if sigma >= 3:
        return sigma**2
    weights = [(x, math.exp(-((x / sigma) ** 2) / 2)) for x in range(-40, 41)]
    return math.fsum(x * x * weight for x, weight in weights) / math.fsum(weight for _, weight in weights)


def rounded_normal(sigma: float, rng: RandomSource) -> int:
    """Return the test mode's sampler, for a repeatable pipeline: Box-Muller in floats, NOT PRIVATE."""
    radius = math.sqrt(-2 * math.log((1 + rng.uniform_below(2**53)) / 2**53))
    return round(sigma * radius * math.cos(2 * math.pi * rng.uniform_below(2**53) / 2**53))


class NoiseInvalid(UsageError):
    """A noise scale, or the budget for it, is out of range."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Ask for a larger epsilon, fewer draws, or a larger part of the budget for this.")


def least_laplace_scale(rho: int, coordinates: int) -> Fraction:
    """Return the smallest b on the grid with k (1/b) tanh(1/(2b)) at most `rho` (units of 1e-12), k = `coordinates`.

    Raises:
        NoiseInvalid: rho is not positive, or so small that b would pass 2^32.
    """

    def affordable(steps: int) -> bool:
        scale = Fraction(steps, SIGMA_GRID)
        return zcdp.independent_coordinates(coordinates / scale, coordinates).rho <= rho

    least, most = 1, LARGEST_SIGMA * SIGMA_GRID
    if not affordable(most):
        raise NoiseInvalid(f"Noise of a scale up to 2^32 needs a larger rho than {rho} units.")
    while least < most:  # the loss falls as the scale grows
        middle = (least + most) // 2
        least, most = (least, middle) if affordable(middle) else (middle + 1, most)
    return Fraction(least, SIGMA_GRID)


def laplace_variance(scale: float) -> float:
    """2 q / (1 - q)^2 with q = exp(-1/b)."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def rounded_laplace(scale: float, rng: RandomSource) -> int:
    """Return the test mode's sampler, for a repeatable pipeline: an inverse CDF in rounded floats, NOT PRIVATE."""
    place = (rng.uniform_below(2**53) + 0.5) / 2**53 - 0.5
    return round(-math.copysign(scale, place) * math.log1p(-2 * abs(place)))
