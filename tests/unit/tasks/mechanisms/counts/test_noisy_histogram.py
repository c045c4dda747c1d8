"""The noisy histogram: one unit in one bin costs what one count costs."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import NoiseInvalid, NoisyCount
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.counts.set_histogram import MOST_BINS
from tests.refusals import refusal


def test_the_loss_is_the_formula_whatever_the_number_of_bins():
    """1 / (2 sigma^2) with sigma = 5: 0.02."""
    for bins in (1, 17, MOST_BINS):
        assert NoisyHistogram(bins, NoisyCount(Fraction(5))).loss() == Amount(2 * 10**10)


@given(st.integers(1, 10**14), st.integers(1, 64))
def test_a_calibrated_histogram_never_exceeds_its_budget_and_uses_it(rho, bins):
    found = calibrate_histogram(rho, bins)
    assert found.bins == bins
    assert rho * 0.999 <= found.loss().rho <= rho


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_every_bin_has_noise_of_its_own_also_an_empty_one(rng):
    found = NoisyHistogram(40, NoisyCount(Fraction(50))).draw([0] * 40, rng)
    assert len(found) == 40
    assert len(set(found)) > 10
    assert NoisyHistogram(3, NoisyCount(Fraction(1, 16))).draw([4, 0, 2], rng) == [4, 0, 2]


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, 3, 4], []])
def test_no_bin_is_left_out(counts):
    with pytest.raises(ValueError, match="3 bins need a count each"):
        NoisyHistogram(3, NoisyCount(Fraction(5))).draw(counts, OS_RANDOM)


@pytest.mark.parametrize("bins", [0, -1, MOST_BINS + 1])
def test_a_histogram_has_bins(bins):
    with refusal("BinsInvalid", match=f"not {bins}"):
        calibrate_histogram(10**10, bins)


def test_no_budget_is_no_histogram():
    with pytest.raises(NoiseInvalid):
        calibrate_histogram(0, 3)
