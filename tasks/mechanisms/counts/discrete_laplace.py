"""Discrete Laplace noise on integers: P(x) ~ exp(-|x| / b), of which each of k moved coordinates is 1/b-DP.

Canonne, Kamath, Steinke, arXiv 2004.00010, section 5.2, have the sampler that OpenDP uses; it is exact.
"""

import math
from fractions import Fraction

from tasks.accounting import conversions
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import LARGEST_SIGMA, SIGMA_GRID, NoiseInvalid


def least_laplace_scale(rho: int, coordinates: int) -> Fraction:
    """Return the smallest b on the grid with k (1/b) tanh(1/(2b)) at most `rho` (units of 1e-12), k = `coordinates`.

    Raises:
        NoiseInvalid: rho is not positive, or so small that b would pass 2^32.
    """

    def affordable(steps: int) -> bool:
        scale = Fraction(steps, SIGMA_GRID)
        return conversions.independent_coordinates(coordinates / scale, coordinates).rho <= rho

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
