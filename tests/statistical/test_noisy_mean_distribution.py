"""The noisy mean's noise: the stated sigma on every coordinate, each for itself; 30 % more or less are rejected."""

import math
from collections.abc import Mapping
from fractions import Fraction

import pytest
import torch
from scipy.special import ndtr

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tests.statistical.harness import P_THRESHOLD, SCALE_ERROR, discrete_gaussian, p_value

pytestmark = pytest.mark.statistical

TRIALS, WIDTH = 2500, 2
SMALL = [Fraction(1, 2), Fraction(5), Fraction(40)]
CELLS = 8  # a standard deviation


def drawn(mean: NoisyMean, centre: int) -> torch.Tensor:
    """int64 [TRIALS, WIDTH]."""
    return mean.draw(torch.full((TRIALS, WIDTH), centre), OS_RANDOM)


def normal(sigma: float, unit: float) -> Mapping[int, float]:
    """How often N(0, sigma^2), divided by `unit` and rounded down, is each integer within 8 sigma."""
    reach = math.ceil(8 * sigma / unit)
    edges = [float(ndtr(x * unit / sigma)) for x in range(-reach, reach + 1)]
    return {x: edges[x + reach + 1] - edges[x + reach] for x in range(-reach, reach)}


@pytest.mark.parametrize("sigma", SMALL, ids=lambda sigma: f"{float(sigma):.2f}")
def test_the_stated_sigma_is_accepted_on_every_coordinate_and_others_are_rejected(sigma):
    sample = drawn(NoisyMean(2**20, sigma, 20), 1000).flatten().tolist()
    stated = float(sigma)
    assert p_value(sample, discrete_gaussian(1000, stated)) > P_THRESHOLD
    assert p_value(sample, discrete_gaussian(1000, stated * (1 + SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, discrete_gaussian(1000, stated * (1 - SCALE_ERROR))) < P_THRESHOLD
    assert p_value(sample, discrete_gaussian(1000 + math.ceil(stated / 2), stated)) < P_THRESHOLD


@pytest.mark.parametrize(("rho", "norm", "references"), [(10**10, "1", 8), (178 * 10**10, "37.5", 100)])
def test_the_noise_on_the_mean_is_what_a_reader_calculates(rho, norm, references):
    """C / (n sqrt(2 rho)), in the vectors' own unit."""
    mean = calibrate_mean(rho, 1, norm)
    found = mean.mean(drawn(mean, 0), references).double().flatten()
    stated = float(norm) / (references * math.sqrt(2 * rho / 1e12))
    assert float(mean.sigma) / references == pytest.approx(stated, rel=1e-6)
    cells = (found / stated * CELLS).floor().to(torch.int64).tolist()
    assert p_value(cells, normal(1, 1 / CELLS)) > P_THRESHOLD
    assert p_value(cells, normal(1 + SCALE_ERROR, 1 / CELLS)) < P_THRESHOLD
    assert p_value(cells, normal(1 - SCALE_ERROR, 1 / CELLS)) < P_THRESHOLD


def test_coordinates_draw_their_noise_apart():
    """Sums and differences of two have variance 2 sigma^2; shared noise would give 4 sigma^2 and zero."""
    noise = drawn(NoisyMean(2**20, Fraction(40), 20), 0)
    both = 40 * math.sqrt(2)
    for combined in (noise[:, 0] - noise[:, 1], noise[:, 0] + noise[:, 1], noise[1:, 0] - noise[:-1, 1]):
        sample = combined.tolist()
        assert p_value(sample, discrete_gaussian(0, both)) > P_THRESHOLD
        assert p_value(sample, discrete_gaussian(0, both * (1 + SCALE_ERROR))) < P_THRESHOLD
        assert p_value(sample, discrete_gaussian(0, both * (1 - SCALE_ERROR))) < P_THRESHOLD


def test_shared_noise_would_be_rejected():
    noise = drawn(NoisyMean(2**20, Fraction(40), 20), 0)[:, 0]
    assert p_value((noise + noise).tolist(), discrete_gaussian(0, 40 * math.sqrt(2))) < P_THRESHOLD
