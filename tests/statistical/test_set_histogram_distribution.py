"""The set histogram's noise: the stated distribution in every bin, by itself; 30 % more or less is rejected."""

from fractions import Fraction

import pytest

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tests.statistical.harness import (
    P_THRESHOLD,
    SCALE_ERROR,
    discrete_gaussian,
    discrete_laplace,
    p_value,
    two_sample_p_value,
)

pytestmark = pytest.mark.statistical

TRIALS = 5000
STATED = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}
HISTOGRAMS = [
    SetHistogram(TRIALS, 5, "gaussian", Fraction(1, 2)),
    SetHistogram(TRIALS, 5, "laplace", Fraction(1, 2)),
    calibrate_set_histogram(10**11, TRIALS, 5, "gaussian"),
    calibrate_set_histogram(10**11, TRIALS, 5, "laplace"),
    SetHistogram(None, 1, "gaussian", Fraction(40)),
    SetHistogram(None, 1, "laplace", Fraction(40)),
]


@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=lambda one: f"{one.noise} {float(one.scale):.2f}")
def test_the_stated_scale_is_accepted_and_others_are_rejected(histogram: SetHistogram) -> None:
    sample = histogram.draw([1000] * TRIALS, OS_RANDOM)
    scale, stated = float(histogram.scale), STATED[histogram.noise]
    assert p_value(sample, stated(1000, scale)) > P_THRESHOLD
    assert p_value(sample, stated(1000, scale * (1 + SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, stated(1000, scale * (1 - SCALE_ERROR))) < P_THRESHOLD


@pytest.mark.parametrize("noise", STATED)
def test_bins_have_noise_of_their_own(noise: str) -> None:
    """Neighbours in one draw are as far apart as bins of two draws are; with common noise they would be equal."""
    histogram = SetHistogram(2 * TRIALS, 5, "gaussian" if noise == "gaussian" else "laplace", Fraction(4))
    one, other = (histogram.draw([0] * (2 * TRIALS), OS_RANDOM) for _ in range(2))
    within = [left - right for left, right in zip(one[::2], one[1::2], strict=True)]
    between = [left - right for left, right in zip(one[::2], other[1::2], strict=True)]
    assert two_sample_p_value(within, between) > P_THRESHOLD
    assert two_sample_p_value([0] * TRIALS, between) < P_THRESHOLD
    assert two_sample_p_value([left // 2 for left in within], between) < P_THRESHOLD
