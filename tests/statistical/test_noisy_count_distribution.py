"""The noisy count's noise: the discrete Gaussian of the stated sigma, with 30 % more or less rejected."""

from fractions import Fraction

import pytest

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tests.statistical.harness import P_THRESHOLD, SCALE_ERROR, discrete_gaussian, p_value

pytestmark = pytest.mark.statistical

TRIALS = 5000
COUNTS = [NoisyCount(Fraction(1, 2)), calibrate_count(10**10), NoisyCount(Fraction(40))]


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: f"{float(count.sigma):.2f}")
def test_the_stated_sigma_is_accepted_and_others_are_rejected(count):
    sample = [count.draw(1000, OS_RANDOM) for _ in range(TRIALS)]
    sigma = float(count.sigma)
    assert p_value(sample, discrete_gaussian(1000, sigma)) > P_THRESHOLD
    assert p_value(sample, discrete_gaussian(1000, sigma * (1 + SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, discrete_gaussian(1000, sigma * (1 - SCALE_ERROR))) < P_THRESHOLD


def test_the_noise_is_centred_on_the_count():
    count = NoisyCount(Fraction(2))
    sample = [count.draw(-3, OS_RANDOM) for _ in range(TRIALS)]
    assert p_value(sample, discrete_gaussian(-3, 2.0)) > P_THRESHOLD
    assert p_value(sample, discrete_gaussian(-2, 2.0)) < P_THRESHOLD
