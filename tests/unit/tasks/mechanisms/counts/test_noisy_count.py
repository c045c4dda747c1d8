"""The noisy count: what it costs, how it is calibrated, who confirms it."""

import math
from fractions import Fraction

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf, ncdf

from models_db.values.amounts import Amount
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts import noisy_count
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID, NoiseInvalid, NoisyCount, calibrate_count
from tests.golden.accounting_oracle import delta_at

COUNTS = st.integers(1, 2**45).map(lambda steps: NoisyCount(Fraction(steps, SIGMA_GRID)))


def test_the_loss_is_the_formula():
    """1 / (2 sigma^2) with sigma = 5: 0.02."""
    assert NoisyCount(Fraction(5)).loss() == Amount(2 * 10**10)


@given(st.integers(1, 10**14))
def test_a_calibrated_count_never_exceeds_its_budget_and_uses_it(rho):
    found = calibrate_count(rho)
    assert found.loss().fits(Amount(rho))
    assert found.loss().rho >= rho * 0.999


@given(st.integers(1, 10**14))
def test_one_grid_step_less_noise_would_not_fit(rho):
    sigma = calibrate_count(rho).sigma - Fraction(1, SIGMA_GRID)
    assert 1 / (2 * sigma**2) * 10**12 > rho


@given(COUNTS)
def test_opendps_map_is_our_loss(count):
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    found = dp.m.make_gaussian(*space, scale=float(count.sigma)).map(1)
    assert Fraction(float(count.sigma)) == count.sigma
    assert found == pytest.approx(float(1 / (2 * count.sigma**2)), rel=1e-12)


def test_the_shipped_sampler_is_the_confirmed_one(monkeypatch):
    asked = []
    monkeypatch.setattr(noisy_count, "check_with_opendp", lambda *arguments: asked.append(arguments) or arguments[0])
    count = NoisyCount(Fraction(123457, SIGMA_GRID))
    assert isinstance(count.draw(10, OS_RANDOM), int)
    assert [arguments[1:] for arguments in asked] == [(1, count.loss())]


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_little_noise_leaves_the_count_alone(rng):
    count = NoisyCount(Fraction(1, 16))
    assert {count.draw(value, rng) for value in (0, 12) for _ in range(20)} == {0, 12}


def test_the_test_mode_repeats_itself_and_has_about_the_scale():
    count = NoisyCount(Fraction(50))
    one, same = DeterministicRandom("a"), DeterministicRandom("a")
    drawn = [count.draw(1000, one) for _ in range(2000)]
    assert drawn == [count.draw(1000, same) for _ in range(2000)]
    mean = sum(drawn) / 2000
    assert abs(mean - 1000) < 6
    assert abs((sum((x - mean) ** 2 for x in drawn) / 2000) ** 0.5 - 50) < 5


@pytest.mark.parametrize(("sigma", "epsilon", "excess"), [(1, 3.25, 0.5), (5, 0.76, 0.025), (20, 0.1975, 0.0015)])
def test_the_continuous_gaussians_curve_is_no_claim_for_the_discrete_one(sigma, epsilon, excess):
    """Its delta is larger at some epsilon (CKS, Theorem 7, against Balle and Wang, Theorem 8); zCDP covers both."""
    weight = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-30 * sigma, 30 * sigma + 2)}
    mass = math.fsum(weight.values())
    discrete = math.fsum(max(weight[x] - math.exp(epsilon) * weight[x - 1], 0) for x in list(weight)[1:]) / mass
    other_side = math.fsum(max(weight[x - 1] - math.exp(epsilon) * weight[x], 0) for x in list(weight)[1:]) / mass
    continuous = float(ncdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * ncdf(-0.5 / sigma - epsilon * sigma))
    worst = max(discrete, other_side)
    assert worst > continuous * (1 + excess)
    assert worst < float(delta_at(mpf(NoisyCount(Fraction(sigma)).loss().rho) / 10**12, mpf(epsilon)))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: NoisyCount(Fraction(0)),
        lambda: NoisyCount(Fraction(-1)),
        lambda: NoisyCount(Fraction(1, 3)),
        lambda: NoisyCount(Fraction(2**32 + 1)),
        lambda: calibrate_count(0),
    ],
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(NoiseInvalid) as refused:
        bad()
    assert refused.value.exit_code == 2
