"""The noisy mean: what it costs, how it is calibrated, who confirms it, and that one unit moves a sum by S at most."""

import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import opendp.prelude as dp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import replace_one
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID, NoiseInvalid
from tasks.mechanisms.tokens.utility_scores import sum_rows
from tasks.mechanisms.vectors import noisy_mean
from tasks.mechanisms.vectors.noisy_mean import FINEST_CLIP_STEPS, NoisyMean, calibrate_mean
from tests.golden.accounting_oracle import delta_at
from tests.refusals import refusal

pytestmark = pytest.mark.dear

MEANS = st.builds(
    NoisyMean,
    st.integers(1, 2**21),
    st.integers(1, 2**52).map(lambda steps: Fraction(steps, SIGMA_GRID)),
    st.integers(-100, 100),
)
NORMS = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6, max_denominator=10**9)
SMALL = NoisyMean(2**20, Fraction(1, 16), 20)  # C = 1, hardly any noise


def test_the_loss_is_the_formula():
    """C = 4 in steps of 2^-18, sigma 20 on the sum: (4/20)^2 / 2 = 0.02, and mu = 0.2 a draw."""
    mean = NoisyMean(2**20, Fraction(5 * 2**20), 18)
    assert (mean.clip_norm, mean.sigma) == (4, 20)
    assert mean.loss() == Amount(2 * 10**10)
    assert mean.gdp_mu(1) == pytest.approx(0.2, rel=1e-15)
    assert mean.gdp_mu(100) == pytest.approx(2.0, rel=1e-15)
    assert replace_one(mean.loss()) == Amount(8 * 10**10)


@pytest.mark.parametrize(
    ("clip", "noise", "references", "draws"), [("7.5", "0.4", 30, 60), ("1", "0.05", 8, 1), ("90", "3", 100, 150)]
)
def test_the_charge_is_the_papers_hand_calculation(clip, noise, references, draws):
    """PRIVACY §5 with noise on the MEAN: rho = T C^2 / (2 n^2 s^2), mu = sqrt(T) C / (n s), by mpmath."""
    exponent = 12
    steps = int(Decimal(clip) * 2**exponent)
    sigma = Fraction(noise) * references * 2**exponent
    mean = NoisyMean(steps, Fraction(math.ceil(sigma * SIGMA_GRID), SIGMA_GRID), exponent)
    with mpmath.workdps(40):
        c, s = mpmath.mpf(clip), mpmath.mpf(noise)
        rho = draws * c**2 / (2 * references**2 * s**2)
        mu = mpmath.sqrt(draws) * c / (references * s)
    assert mean.event(draws).loss.rho == pytest.approx(float(rho) * 1e12, rel=1e-9)
    assert mean.gdp_mu(draws) == pytest.approx(float(mu), rel=1e-9)
    assert mean.gdp_mu(draws) ** 2 / 2 == pytest.approx(mean.event(draws).loss.rho / 1e12, rel=1e-9)


@given(MEANS, st.integers(1, 500))
def test_gdp_and_zcdp_say_the_same(mean, draws):
    """rho = mu^2 / 2, but for rounding up a unit for each draw."""
    exact = Fraction(mean.clip_steps) ** 2 / (2 * mean.sigma_steps**2) * draws * 10**12
    assert exact <= mean.event(draws).loss.rho < exact + draws
    assert mean.gdp_mu(draws) ** 2 / 2 * 1e12 == pytest.approx(float(exact), rel=1e-12)


def test_the_zcdp_claim_covers_the_gaussian_curve():
    """Delta of mu-GDP (Dong, Roth, Su, Corollary 2.13) is below what the charged rho says, at every epsilon."""
    mean = NoisyMean(2**20, Fraction(2**21), 18)
    for draws in (1, 16):
        mu = mean.gdp_mu(draws)
        for epsilon in (0.1, 1.0, 4.0):
            curve = mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
            assert float(curve) < float(delta_at(mpf(mean.event(draws).loss.rho) / 10**12, mpf(epsilon)))


@given(st.integers(2 * 10**5, 10**12), st.integers(1, 500), st.integers(0, 499), NORMS)
def test_a_calibrated_mean_never_exceeds_its_budget_and_uses_it(each, draws, more, norm):
    rho = each * draws + more % draws
    found = calibrate_mean(rho, draws, norm)
    assert (found.loss() * draws).fits(Amount(rho))
    assert (found.loss() * draws).rho >= rho * 0.9999 - draws
    assert norm * (1 - Fraction(1, 2**20)) < found.clip_norm <= norm
    assert FINEST_CLIP_STEPS <= found.clip_steps < 2 * FINEST_CLIP_STEPS


@given(st.integers(10**6, 10**14), NORMS)
def test_one_grid_step_less_noise_would_not_fit(rho, norm):
    found = calibrate_mean(rho, 1, norm)
    less = found.sigma_steps - Fraction(1, SIGMA_GRID)
    assert Fraction(found.clip_steps**2) / (2 * less**2) * 10**12 > rho


@given(st.integers(1, 2 * 10**5), NORMS)
def test_too_little_for_a_draw_is_told_and_never_charged_more(each, norm):
    steps = calibrate_mean(10**10, 1, norm).clip_steps
    if Fraction(steps**2, 2 * 2**64) <= Fraction(each, 10**12):
        assert calibrate_mean(each * 7, 7, norm).loss().rho <= each
    else:
        with pytest.raises(NoiseInvalid, match="nothing but noise"):
            calibrate_mean(each * 7, 7, norm)


@pytest.mark.parametrize("norm", [1, "0.5", "2.5", Decimal("37.5"), Fraction(1, 3), 2**20, Fraction(1, 2**20)])
def test_the_grid_makes_a_million_steps_of_any_clip_norm(norm):
    found = calibrate_mean(10**10, 1, norm)
    assert FINEST_CLIP_STEPS <= found.clip_steps < 2 * FINEST_CLIP_STEPS
    assert float(found.clip_norm) == pytest.approx(float(Fraction(norm)), rel=1e-6)


@given(MEANS)
def test_opendps_map_is_our_loss(mean):
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    found = dp.m.make_gaussian(*space, scale=float(mean.sigma_steps)).map(float(mean.clip_steps))
    assert Fraction(float(mean.sigma_steps)) == mean.sigma_steps
    assert found == pytest.approx(float(Fraction(mean.clip_steps) ** 2 / (2 * mean.sigma_steps**2)), rel=1e-12)


def test_the_shipped_sampler_is_the_confirmed_one(monkeypatch):
    asked = []
    monkeypatch.setattr(noisy_mean, "check_with_opendp", lambda *arguments: asked.append(arguments) or arguments[0])
    mean = NoisyMean(2**20 + 5, Fraction(123457, SIGMA_GRID), 20)
    assert mean.draw(torch.zeros(2, 3, dtype=torch.int64), OS_RANDOM).shape == (2, 3)
    assert [arguments[1:] for arguments in asked] == [(2**20 + 5, mean.loss())]


@settings(max_examples=100)
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=5), st.data())
def test_one_row_moves_one_sum_by_the_clip_norm_at_most(rows, data):
    """The sensitivity: everything between values and noise, with and without any one row."""
    values = torch.tensor(rows, dtype=torch.float32)
    group = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows))))
    gone = data.draw(st.integers(0, len(rows) - 1))
    rest = [row for row in range(len(rows)) if row != gone]
    whole = sum_rows(SMALL.quantised(values), group, 2)
    less = sum_rows(SMALL.quantised(values[rest]), group[rest], 2)
    moved = (whole - less).tolist()
    assert sum(entry**2 for entry in moved[int(group[gone])]) <= SMALL.clip_steps**2
    assert moved[1 - int(group[gone])] == [0, 0, 0]


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_little_noise_leaves_the_sums_alone_and_n_divides_them(rng):
    values = torch.tensor([[0.5, 0.0], [0.25, -0.5], [30.0, 40.0]])
    sums = sum_rows(SMALL.quantised(values), torch.tensor([0, 0, 2]), 3)
    noisy = SMALL.draw(sums, rng)
    assert torch.equal(noisy, sums)
    mean = SMALL.mean(noisy, 4)
    assert mean.dtype == torch.float32
    assert torch.allclose(mean, torch.tensor([[0.1875, -0.125], [0.0, 0.0], [0.15, 0.2]]), atol=1e-6)


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_every_coordinate_has_noise_of_its_own_also_without_rows(rng):
    mean = calibrate_mean(10**10, 1, 1)
    found = mean.draw(torch.zeros(3, 40, dtype=torch.int64), rng)
    assert found.dtype == torch.int64
    assert len(set(found.flatten().tolist())) == 120


def test_the_test_mode_repeats_itself_and_has_about_the_scale():
    mean = NoisyMean(2**20, Fraction(50), 20)
    sums = torch.full((2, 1000), 1000)
    drawn = mean.draw(sums, DeterministicRandom("a"))
    assert torch.equal(drawn, mean.draw(sums, DeterministicRandom("a")))
    assert abs(float(drawn.double().mean()) - 1000) < 6
    assert abs(float(drawn.double().std()) - 50) < 5


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: NoisyMean(0, Fraction(1), 20), "MeanInvalid"),
        (lambda: NoisyMean(2**21 + 1, Fraction(1), 20), "MeanInvalid"),
        (lambda: NoisyMean(2**20, Fraction(1), 101), "MeanInvalid"),
        (lambda: NoisyMean(2**20, Fraction(0), 20), "NoiseInvalid"),
        (lambda: NoisyMean(2**20, Fraction(1, 3), 20), "NoiseInvalid"),
        (lambda: calibrate_mean(10**10, 0, 1), "MeanInvalid"),
        (lambda: calibrate_mean(10**10, 1, 0), "MeanInvalid"),
        (lambda: calibrate_mean(10**10, 1, -1), "MeanInvalid"),
        (lambda: calibrate_mean(10**10, 1, 2**130), "MeanInvalid"),
        (lambda: calibrate_mean(9, 10, 1), "NoiseInvalid"),
        (lambda: calibrate_mean(0, 1, 1), "NoiseInvalid"),
        (lambda: calibrate_mean(1000, 1, 1), "NoiseInvalid"),
    ],
)
def test_parameters_out_of_range_are_refused(bad, error):
    with refusal(error) as refused:
        bad()
    assert refused.value.exit_code == 2


def test_what_protects_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one draw"):
        SMALL.event(0)
    with pytest.raises(ValueError, match="public number of rows"):
        SMALL.mean(torch.zeros(1, 2, dtype=torch.int64), 0)
    with pytest.raises(TypeError, match="integers"):
        SMALL.draw(torch.zeros(1, 2), OS_RANDOM)
