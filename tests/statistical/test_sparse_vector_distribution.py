"""The noise of the sparse vector: discrete Laplace of the stated scales, with 30 % more or less rejected."""

import math
from fractions import Fraction

import pytest

from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom, RandomSource
from tasks.mechanisms.tokens.sparse_vector import LEAST_NOISE_RATIO, NORM, SparseVector
from tests.statistical.harness import P_THRESHOLD, SCALE_ERROR, p_value

pytestmark = pytest.mark.statistical
CONCERNS = ("tasks/mechanisms/core", "tasks/mechanisms/tokens")

TRIALS = 10_000
TESTS = SparseVector(Fraction(6), 8)
THRESHOLD = Fraction(1, 2)
CENTRE = 4 * NORM  # a distance of a half, at s = 8
CELLS = 24


def cells(scale: float) -> dict[int, float]:
    """Probabilities of CELLS equal cells of a continuous Laplace variable of scale 6 where the scale is `scale`.

    Noise in units of 2^-30 is continuous for any test that one could afford.
    """

    def below(quantile: float) -> float:
        reach = math.copysign(math.log1p(-abs(2 * quantile - 1)), quantile - 0.5) * 6 / scale
        return 0.5 + math.copysign(-math.expm1(-abs(reach)), reach) / 2

    edges = [0.0, *(below(n / CELLS) for n in range(1, CELLS)), 1.0]
    return {n: edges[n + 1] - edges[n] for n in range(CELLS)}


def cell(noise: float) -> int:
    """In which of the cells some noise lies, in units of M."""
    mass = 0.5 + math.copysign(-math.expm1(-abs(noise) / 6), noise) / 2
    return min(CELLS - 1, int(mass * CELLS))


def thresholds(rng: RandomSource) -> list[int]:
    return [cell((TESTS.begin(THRESHOLD, rng) - CENTRE) / NORM) for _ in range(TRIALS)]


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("laplace")], ids=lambda rng: rng.kind)
def test_the_threshold_has_noise_of_scale_sigma(rng: RandomSource) -> None:
    sample = thresholds(rng)
    assert p_value(sample, cells(6)) > P_THRESHOLD
    for wrong in (6 * (1 + SCALE_ERROR), 6 * (1 - SCALE_ERROR)):
        assert p_value(sample, cells(wrong)) < P_THRESHOLD


def frequency_below(distance: float, tests: SparseVector = TESTS) -> float:
    """How often a distance (in units of M) is below a fixed threshold of 4 M."""
    return sum(tests.below(round(distance * NORM), CENTRE, OS_RANDOM) for _ in range(TRIALS)) / TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("tests", [TESTS, SparseVector(Fraction(6), 8, LEAST_NOISE_RATIO)], ids=["paper", "calibrated"])
@pytest.mark.parametrize("nearer", [-15.0, -4.0, 0.0, 6.0, 20.0])
def test_a_test_has_noise_of_that_many_times_sigma(nearer: float, tests: SparseVector) -> None:
    """P(below) is the Laplace distribution function of scale a sigma; those of half and of twice that are far off."""

    def stated(scale: float) -> float:
        return 0.5 + math.copysign(-math.expm1(-abs(nearer) / scale), nearer) / 2

    scale = 6 * float(tests.test_ratio)
    seen = frequency_below(4 - nearer, tests)
    margin = 5 * math.sqrt(0.25 / TRIALS)
    assert abs(seen - stated(scale)) < margin
    if nearer:
        for wrong in (scale * 0.5, scale * 2):
            assert abs(seen - stated(wrong)) > margin


@pytest.mark.slow
def test_noise_is_symmetric_about_the_distance() -> None:
    assert abs(frequency_below(4) - 0.5) < 5 * math.sqrt(0.25 / TRIALS)
