"""Selection by noisy counts: what it costs, against an independent sum of the noise's tail, and what it releases."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from models_db.errors import AlmonerError
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount
from tasks.accounting.rounding import charge_rounded_up
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.partition_selection import calibrate_selection
from tasks.mechanisms.counts.threshold_selection import (
    LEAST_TAIL,
    MOST_THRESHOLD,
    GaussianSelection,
    calibrate_gaussian_selection,
    tail_bound,
)
from tasks.mechanisms.registry import recompute
from tests.refusals import refusal

SIGMAS = [Fraction(1, 4), Fraction(1, 2), Fraction(3, 2), Fraction(5), Fraction(31, 2), Fraction(200)]


def tail(sigma: Fraction, least: int) -> mpf:
    """P(Z >= least) of the discrete Gaussian, summed term by term: the oracle."""
    square = 2 * mpf(sigma.numerator) ** 2 / mpf(sigma.denominator) ** 2
    reach = int(30 * sigma) + 30
    terms = [mp.exp(-(mpf(x) ** 2) / square) for x in range(-reach, reach + 1)]
    return mp.fsum(terms[reach + least :]) / mp.fsum(terms)


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
@pytest.mark.parametrize("deviations", [1, 2, 4, 6])
def test_the_failure_covers_the_tail_and_is_near_it(sigma, deviations):
    threshold = int(sigma * deviations + Fraction(3, 2)) + 1
    selection = GaussianSelection(sigma, threshold, 5)
    with mp.workdps(50):
        true = 1 - (1 - tail(sigma, threshold - 1)) ** 5
        assert mpf(selection.failure.numerator) / selection.failure.denominator >= true
        if sigma >= 5:
            assert float(selection.failure) < 1.15 * float(5 * tail(sigma, threshold - 1))


def test_the_loss_is_the_formula():
    """5 / (2 sigma^2) at sigma 5, and 5/2 erfc(29.5 / (5 sqrt 2)) at a threshold of 31."""
    loss = GaussianSelection(Fraction(5), 31, 5).loss()
    assert loss.rho == RHO_UNIT // 10
    with mp.workdps(50):
        assert loss.delta == int(mp.ceil(mpf(5) / 2 * mp.erfc(mpf(59) / 10 / mp.sqrt(2)) * DELTA_UNIT))


@given(st.integers(10**3, 10**14), st.integers(1, 10**17), st.integers(1, 60))
def test_calibration_takes_the_lowest_threshold_that_is_paid(rho, delta, k):
    amount = Amount(rho, delta)
    try:
        selection = calibrate_gaussian_selection(amount, k)
    except AlmonerError as refused:
        if refused.code != "ThresholdUnaffordable":
            raise
        assume(False)
    assert selection.loss().fits(amount)
    assert recompute(selection.event()) == selection.loss()
    try:
        lower = GaussianSelection(selection.sigma, selection.threshold - 1, k)
    except AlmonerError as refused:
        if refused.code != "ThresholdInvalid":
            raise
        return
    assert lower.loss().delta > delta


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("rho", [10**9, 10**10, 10**11, 10**12])
def test_it_needs_half_the_units_of_the_geometric_selection_or_fewer(rho, k):
    amount = Amount(rho, 10**10)
    gaussian, geometric = calibrate_gaussian_selection(amount, k), calibrate_selection(amount, k)
    assert 1.5 * gaussian.even_count() < geometric.even_count()


def test_what_many_name_is_released_with_a_number_near_theirs():
    selection = calibrate_gaussian_selection(Amount(10**11, 10**9), 2)
    released = selection.release({"tea": 500, "pottery": 400, "rare": 1}, OS_RANDOM)
    assert list(released) == ["pottery", "tea"]
    assert abs(released["tea"] - 500) < 12 * selection.sigma
    assert all(isinstance(number, int) for number in released.values())


def test_the_order_of_reading_does_not_show():
    selection = GaussianSelection(Fraction(1), 10, 2)
    names = [f"word {number}" for number in range(20)]
    forwards = selection.release(dict.fromkeys(names, 12), DeterministicRandom("a"))
    backwards = selection.release(dict.fromkeys(reversed(names), 12), DeterministicRandom("a"))
    assert list(forwards.items()) == list(backwards.items())


def test_a_candidate_is_released_as_likely_as_not_at_the_threshold():
    selection = GaussianSelection(Fraction(5), 31, 1)
    trials = [len(selection.release({"tea": selection.even_count()}, OS_RANDOM)) for _ in range(2000)]
    assert 0.45 < sum(trials) / 2000 < 0.65


def test_nobody_s_candidate_is_refused():
    with pytest.raises(ValueError, match="one unit at least"):
        GaussianSelection(Fraction(1), 10, 2).release({"tea": 3, "nobody": 0}, OS_RANDOM)
    assert GaussianSelection(Fraction(1), 10, 2).release({}, OS_RANDOM) == {}


@pytest.mark.parametrize("threshold", [-1, 0, 2, 16, MOST_THRESHOLD + 1])
def test_thresholds_without_a_proof_are_refused(threshold):
    with refusal("ThresholdInvalid"):
        GaussianSelection(Fraction(15), threshold, 5)


@pytest.mark.parametrize(
    ("amount", "k", "error"),
    [
        (Amount(0, 10**10), 5, "NoiseInvalid"),
        (Amount(10**11, 0), 5, "ThresholdUnaffordable"),
        (Amount(10**11, 10**10), 0, "ContributionsInvalid"),
        (Amount(10**11, 10**10), 2**17, "ContributionsInvalid"),
    ],
)
def test_what_cannot_be_bought_is_named(amount, k, error):
    with refusal(error):
        calibrate_gaussian_selection(amount, k)


@pytest.mark.parametrize("least", [2**10, 2**20, 2**52])
def test_a_tail_that_no_charge_can_show_has_few_digits(least: int) -> None:
    """A damaged event may name any threshold beside any noise; its loss is computed before it is refused."""
    assert tail_bound(Fraction(1), least) == LEAST_TAIL
    assert charge_rounded_up(Fraction(0), 10**3 * LEAST_TAIL).delta == 1
    assert tail_bound(Fraction(1), 30) > LEAST_TAIL
