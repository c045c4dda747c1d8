"""The noise of rounds: the stated sigma on every count and coordinate of a sum; 30 % more or less are rejected."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tests.statistical.harness import P_THRESHOLD, SCALE_ERROR, discrete_gaussian, p_value

pytestmark = pytest.mark.statistical

BINS, WIDTH = 5000, 2
SIGMAS = [Fraction(1, 2), Fraction(5), Fraction(40)]


def judged(sample: list[int], centre: int, sigma: float) -> None:
    assert p_value(sample, discrete_gaussian(centre, sigma)) > P_THRESHOLD
    assert p_value(sample, discrete_gaussian(centre, sigma * (1 + SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, discrete_gaussian(centre, sigma * (1 - SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, discrete_gaussian(centre + math.ceil(sigma / 2), sigma)) < P_THRESHOLD


@pytest.mark.parametrize("sigma", SIGMAS, ids=lambda sigma: f"{float(sigma):.2f}")
@pytest.mark.parametrize("units", [0, 3])
def test_every_bin_has_the_stated_noise(sigma, units):
    """Bins of three units, and empty ones."""
    rounds = KMeansRounds(1, sigma, 1, NoisyMean(1, sigma, 0)).begin(OS_RANDOM)
    bin_of = np.repeat(np.arange(BINS), units)
    judged(rounds.counts(bin_of, BINS).tolist(), units, float(sigma))
    points = np.tile(np.array([0.0, 1.0], np.float32), (len(bin_of), 1))
    sums = rounds.sums(points, bin_of, BINS).astype(np.int64)
    for column, centre in enumerate((0, units)):
        judged(sums[:, column].tolist(), centre, float(sigma))


def test_bins_and_coordinates_draw_their_noise_apart():
    """Sums and differences of two have variance 2 sigma^2; shared noise would give 4 sigma^2 and zero."""
    rounds = KMeansRounds(1, Fraction(40), 1, NoisyMean(1, Fraction(40), 0)).begin(OS_RANDOM)
    none = np.zeros(0, np.int64)
    counts = rounds.counts(none, BINS)
    sums = rounds.sums(np.zeros((0, WIDTH), np.float32), none, BINS).astype(np.int64)
    pairs = [(counts[1:], counts[:-1]), (sums[:, 0], sums[:, 1]), (sums[1:, 0], sums[:-1, 1]), (counts, sums[:, 0])]
    for first, second in pairs:
        for combined in (first - second, first + second):
            judged(combined.tolist(), 0, 40 * math.sqrt(2))
