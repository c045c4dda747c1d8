"""The set histogram: what sets of bins cost under either noise, which noise is better, who confirms it."""

import math
from fractions import Fraction

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf, tanh

from models_db.values.amounts import Amount
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts import set_histogram
from tasks.mechanisms.counts.noisy_count import (
    SIGMA_GRID,
    NoiseInvalid,
    calibrate_count,
    gaussian_variance,
    laplace_variance,
)
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.mechanisms.counts.set_histogram import (
    MOST_BINS,
    MOST_CONTRIBUTIONS,
    SetHistogram,
    calibrate_set_histogram,
)
from tests.refusals import refusal
from tests.statistical.harness import discrete_gaussian

pytestmark = pytest.mark.dear

NOISES = ("gaussian", "laplace")
RHO, CONTRIBUTIONS = st.integers(10**3, 10**13), st.sampled_from([1, 2, 5, 40, 1000])


def test_the_gaussian_loss_is_the_formula_whatever_the_number_of_bins():
    """k / (2 sigma^2) with k = 5, sigma = 5: 0.1."""
    for bins in (1, 17, MOST_BINS, None):
        assert SetHistogram(bins, 5, "gaussian", Fraction(5)).loss() == Amount(10**11)


def test_the_laplace_loss_is_the_formula_whatever_the_number_of_bins():
    """k = 4 at b = 4: epsilon 1, tanh(1/8) (golden/accounting.json)."""
    for bins in (1, 17, MOST_BINS, None):
        found = SetHistogram(bins, 4, "laplace", Fraction(4))
        assert found.epsilon == 1
        with mp.workdps(40):
            assert found.loss() == Amount(int(mp.ceil(tanh(mpf(1) / 8) * 10**12)))


@pytest.mark.parametrize("noise", NOISES)
@given(rho=RHO, contributions=CONTRIBUTIONS)
def test_a_calibrated_histogram_never_exceeds_its_budget_and_uses_it(noise, rho, contributions):
    found = calibrate_set_histogram(rho, 9, contributions, noise)
    assert (found.bins, found.contributions, found.noise) == (9, contributions, noise)
    assert rho * 0.999 - 1 <= found.loss().rho <= rho
    if found.scale > Fraction(1, SIGMA_GRID):
        quieter = SetHistogram(9, contributions, noise, found.scale - Fraction(1, SIGMA_GRID))
        assert quieter.loss().rho > rho or quieter.loss() == found.loss()


def test_one_bin_a_unit_is_the_noisy_histogram():
    for rho in (10**9, 123_456_789_012):
        one = calibrate_set_histogram(rho, 7, 1, "gaussian")
        assert one.scale == calibrate_histogram(rho, 7).noise.sigma == calibrate_count(rho).sigma
        assert one.loss() == calibrate_histogram(rho, 7).loss()


@given(RHO, CONTRIBUTIONS)
def test_auto_is_the_noise_of_smaller_variance(rho, contributions):
    both = [calibrate_set_histogram(rho, 9, contributions, noise) for noise in NOISES]
    assert calibrate_set_histogram(rho, 9, contributions) == min(both, key=SetHistogram.variance)


def test_which_noise_is_better_where():
    """Half the variance for the Gaussian where rho is small; Laplace only where hardly any noise is left."""
    small = [calibrate_set_histogram(10**10, 9, 5, noise) for noise in NOISES]
    assert small[1].variance() / small[0].variance() == pytest.approx(2, rel=0.01)
    assert calibrate_set_histogram(10**10, 9, 5).noise == "gaussian"
    assert calibrate_set_histogram(10 * 10**12, 9, 5).noise == "gaussian"
    assert calibrate_set_histogram(15 * 10**12, 9, 5).noise == "laplace"


def test_the_facts_say_which_noise_and_what_the_other_would_be():
    assert calibrate_set_histogram(10**11, 9, 5).facts() == {
        "noise": "discrete Gaussian, standard deviation 5 units in each bin (discrete Laplace at this rho: 7.047)"
    }
    assert calibrate_set_histogram(15 * 10**12, 9, 5).facts()["noise"].startswith("discrete Laplace, standard")


@pytest.mark.parametrize("scale", [0.2, 0.7, 1.0, 2.9, 3.0, 40.0])
def test_variances_are_those_of_the_distributions(scale):
    gaussian = discrete_gaussian(0, max(scale, 1 / 3))
    assert gaussian_variance(max(scale, 1 / 3)) == pytest.approx(
        math.fsum(x * x * chance for x, chance in gaussian.items()), rel=1e-6
    )
    fall = math.exp(-1 / scale)
    laplace = math.fsum(x * x * fall ** abs(x) for x in range(-4000, 4001)) * (1 - fall) / (1 + fall)
    assert laplace_variance(scale) == pytest.approx(laplace, rel=1e-9)


@pytest.mark.parametrize("contributions", [1, 2, 5, 7])
def test_opendps_maps_are_our_losses(contributions):
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    for scale in (Fraction(5), Fraction(123457, SIGMA_GRID), Fraction(2**31 + 1, 2)):
        gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=float(scale))
        rho = gaussian.map(math.sqrt(contributions)) * 10**12
        assert SetHistogram(None, contributions, "gaussian", scale).loss().rho == pytest.approx(rho, rel=1e-9, abs=1)
        laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(scale))
        found = SetHistogram(None, contributions, "laplace", scale).epsilon
        assert laplace.map(contributions) == pytest.approx(float(found), rel=1e-12)


@pytest.mark.parametrize("noise", NOISES)
def test_the_shipped_sampler_is_the_confirmed_one(noise, monkeypatch):
    """An OpenDP whose scale meant less noise would not be drawn with."""
    make = {"gaussian": "make_gaussian", "laplace": "make_laplace"}[noise]
    real = getattr(dp.m, make)
    monkeypatch.setattr(dp.m, make, lambda *space, scale: real(*space, scale=scale * 0.999999))
    with refusal("OpenDPChargesMore"):
        SetHistogram(3, 5, noise, Fraction(123_459, SIGMA_GRID)).draw([0] * 3, OS_RANDOM)
    monkeypatch.setattr(dp.m, make, real)
    assert len(SetHistogram(3, 5, noise, Fraction(123_461, SIGMA_GRID)).draw([0] * 3, OS_RANDOM)) == 3


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_every_bin_has_noise_of_its_own_also_an_empty_one(noise, rng):
    found = SetHistogram(40, 5, noise, Fraction(50)).draw([0] * 40, rng)
    assert len(found) == 40
    assert all(type(value) is int for value in found)
    assert len(set(found)) > 10
    assert SetHistogram(3, 5, noise, Fraction(1, 64)).draw([4, 0, 2], rng) == [4, 0, 2]


@pytest.mark.parametrize("noise", NOISES)
def test_the_test_mode_repeats_itself_and_has_about_the_scale(noise):
    histogram = SetHistogram(2000, 5, noise, Fraction(50))
    drawn = histogram.draw([1000] * 2000, DeterministicRandom("a"))
    assert drawn == histogram.draw([1000] * 2000, DeterministicRandom("a"))
    mean = sum(drawn) / 2000
    assert abs(mean - 1000) < 8
    spread = math.sqrt(sum((x - mean) ** 2 for x in drawn) / 2000)
    assert spread == pytest.approx(math.sqrt(histogram.variance()), rel=0.1)


def test_tens_of_thousands_of_bins_are_one_call(monkeypatch):
    calls, real = [], set_histogram._measurement
    monkeypatch.setattr(set_histogram, "_measurement", lambda histogram: calls.append(histogram) or real(histogram))
    assert len(calibrate_set_histogram(10**11, 32_000, 5).draw([1] * 32_000, OS_RANDOM)) == 32_000
    assert len(calls) == 1


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, 3, 4], []])
def test_no_bin_of_a_public_set_is_left_out(counts):
    with pytest.raises(ValueError, match="3 bins need a count each"):
        SetHistogram(3, 5, "gaussian", Fraction(5)).draw(counts, OS_RANDOM)


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_of_an_open_set_only_what_is_asked_for_is_drawn(rng):
    histogram = SetHistogram(None, 5, "laplace", Fraction(1, 64))
    assert histogram.draw([4, 0], rng) == [4, 0]
    assert histogram.draw([7], rng) == [7]
    assert histogram.draw([], rng) == []


def test_dp_accounting_is_told_no_more_noise_than_there_is():
    for contributions, scale in ((5, Fraction(5)), (7, Fraction(123457, SIGMA_GRID)), (4, Fraction(3))):
        event = SetHistogram(9, contributions, "gaussian", scale).event(3).dp_event
        told = Fraction(float(event["event"]["noise_multiplier"]))
        assert event["count"] == 3
        assert told**2 * contributions <= scale**2
        assert told**2 * contributions >= scale**2 * (1 - Fraction(1, 10**15))
        event = SetHistogram(9, contributions, "laplace", scale).event(3).dp_event
        assert event["count"] == 3 * contributions
        told = Fraction(float(event["event"]["noise_parameter"]))
        assert 1 / scale <= told <= 1 / scale * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize("bins", [0, -1, MOST_BINS + 1])
def test_a_histogram_has_bins(bins):
    with refusal("BinsInvalid", match=f"not {bins}"):
        calibrate_set_histogram(10**10, bins, 5)


@pytest.mark.parametrize("contributions", [0, -1, MOST_CONTRIBUTIONS + 1])
def test_a_unit_is_in_some_bins(contributions):
    for noise in ("auto", *NOISES):
        with refusal("ContributionsInvalid", match=f"not {contributions}"):
            calibrate_set_histogram(10**10, 9, contributions, noise)


@pytest.mark.parametrize("noise", ["auto", *NOISES])
def test_no_budget_is_no_histogram(noise):
    for rho in (0, -1):
        with pytest.raises(NoiseInvalid):
            calibrate_set_histogram(rho, 3, 5, noise)
