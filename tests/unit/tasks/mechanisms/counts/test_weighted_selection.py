"""Selection by noisy sums of weights: what a unit can add, what it costs against an independent sum, and the rounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from models_db.errors import AlmonerError
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.threshold_selection import (
    MOST_WEIGHTED_CONTRIBUTIONS,
    MOST_WEIGHTED_THRESHOLD,
    WEIGHT_STEPS,
    SelectionInRounds,
    WeightedSelection,
    calibrate_gaussian_selection,
    calibrate_rounds,
    calibrate_weighted_selection,
    weight_of,
)
from tasks.mechanisms.registry import recompute
from tests.refusals import refusal

QUIET = WeightedSelection(Fraction(WEIGHT_STEPS, 2), 10 * WEIGHT_STEPS, 4)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=1), max_size=20), st.integers(1, 10))
def test_a_unit_moves_the_sums_by_at_most_one_in_l2(named: list[str], k: int) -> None:
    selection = WeightedSelection(Fraction(WEIGHT_STEPS), 10 * WEIGHT_STEPS, k)
    others = [["a"], ["b", "c"]]
    before, after = selection.weigh(others), selection.weigh([*others, named])
    moved = [after[name] - before.get(name, 0) for name in after]
    assert sum(change**2 for change in moved) <= WEIGHT_STEPS**2
    assert all(change >= 0 for change in moved)
    if named:
        assert sum(change**2 for change in moved) > 0.999 * WEIGHT_STEPS**2


def test_a_unit_counts_more_where_it_names_less() -> None:
    assert QUIET.weigh([["tea"]]) == {"tea": WEIGHT_STEPS}
    assert QUIET.weigh([["a", "b", "c", "d", "e"], ["a"]]) == {
        "a": WEIGHT_STEPS + WEIGHT_STEPS // 2, "b": WEIGHT_STEPS // 2, "c": WEIGHT_STEPS // 2, "d": WEIGHT_STEPS // 2,
    }  # fmt: skip


def tail(sigma: int, least: int) -> float:
    """P(Z >= least) of the discrete Gaussian, summed term by term: the oracle."""
    terms = np.exp(-((np.arange(16 * sigma + 1) / sigma) ** 2) / 2)
    return float(terms[least:].sum() / (2 * terms.sum() - 1))


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("sigma", [WEIGHT_STEPS // 8, WEIGHT_STEPS // 2])
def test_the_failure_covers_the_tail_of_every_number_of_candidates(k: int, sigma: int) -> None:
    selection = WeightedSelection(Fraction(sigma), WEIGHT_STEPS + 3 * sigma, k)
    sums = [tail(sigma, selection.threshold - weight_of(named)) for named in range(1, k + 1)]
    true = max(1 - (1 - each) ** named for named, each in enumerate(sums, 1))
    assert true <= float(selection.failure) < 1.2 * true


def test_the_loss_is_the_formula() -> None:
    """G^2 / (2 sigma^2) at sigma 2 G, and the worst of one candidate of weight G and two of G / sqrt(2)."""
    selection = WeightedSelection(Fraction(2 * WEIGHT_STEPS), 12 * WEIGHT_STEPS, 2)
    assert selection.loss().rho == RHO_UNIT // 8
    with mp.workdps(50):
        both = [
            mpf(named)
            / 2
            * mp.erfc((12 * WEIGHT_STEPS - weight_of(named) - mpf(1) / 2) / (2 * WEIGHT_STEPS) / mp.sqrt(2))
            for named in (1, 2)
        ]
        assert selection.loss().delta == int(mp.ceil(max(both) * DELTA_UNIT))


@settings(max_examples=20)
@given(st.integers(10**6, 10**14), st.integers(1, 10**17), st.integers(1, 12))
def test_calibration_takes_the_lowest_threshold_that_is_paid(rho: int, delta: int, k: int) -> None:
    amount = Amount(rho, delta)
    try:
        selection = calibrate_weighted_selection(amount, k)
    except AlmonerError as refused:
        if refused.code != "ThresholdUnaffordable":
            raise
        assume(False)
    assert selection.loss().fits(amount)
    assert recompute(selection.event()) == selection.loss()
    try:
        lower = WeightedSelection(selection.sigma, selection.threshold - 1, k)
    except AlmonerError as refused:
        if refused.code != "WeightThresholdInvalid":
            raise
        return
    assert lower.loss().delta > delta


@settings(max_examples=20)
@given(st.integers(10**6, 10**13), st.integers(10**3, 10**17), st.integers(1, 12))
def test_rounds_cost_no_more_than_they_are_given(rho: int, delta: int, k: int) -> None:
    try:
        rounds = calibrate_rounds(Amount(rho, delta), k).rounds
    except AlmonerError as refused:
        if refused.code != "ThresholdUnaffordable":
            raise
        assume(False)
    spent = [each.loss() for each in rounds]
    assert sum(each.rho for each in spent) <= rho
    assert sum(each.delta for each in spent) <= delta
    assert rounds[0].sigma > rounds[1].sigma


def test_candidates_of_the_second_place_are_released_in_the_second_round() -> None:
    """Each unit has two candidates that all share, and only one of them counts in a round."""
    rounds = calibrate_rounds(Amount(10**12, 10**12), 1)
    units = [["first", "second", f"own {number}"] for number in range(400)]
    assert list(rounds.release(units, OS_RANDOM)) == ["first", "second"]
    assert list(rounds.rounds[1].release(rounds.rounds[1].weigh(units), OS_RANDOM)) == ["first"]


def test_a_round_that_releases_nothing_frees_nothing() -> None:
    first = WeightedSelection(Fraction(WEIGHT_STEPS), 1000 * WEIGHT_STEPS, 1)
    second = WeightedSelection(Fraction(WEIGHT_STEPS), 30 * WEIGHT_STEPS, 1)
    units = [["first", "second"]] * 100
    assert list(SelectionInRounds((first, second)).release(units, OS_RANDOM)) == ["first"]


def test_units_of_one_candidate_need_fewer_than_by_counts() -> None:
    """At the same rho and delta, 5 candidates a unit: a third, and as many as by counts where all name four."""
    amount = Amount(18 * 10**10, 10**11)
    weighted, counts = calibrate_weighted_selection(amount, 5), calibrate_gaussian_selection(amount, 5)
    assert weighted.threshold / WEIGHT_STEPS < 0.55 * counts.threshold
    assert weighted.even_count() <= counts.even_count()
    assert weighted.even_count() == math.ceil(weighted.threshold / weight_of(4))


def test_what_is_released_has_a_sum_near_its_own() -> None:
    units = [["tea"]] * 100 + [["tea", "pottery"]] * 200 + [["rare"]]
    released = QUIET.release(QUIET.weigh(units), OS_RANDOM)
    assert list(released) == ["pottery", "tea"]
    assert abs(released["tea"] - 100 * WEIGHT_STEPS - 200 * weight_of(2)) < 12 * QUIET.sigma
    assert all(isinstance(weight, int) for weight in released.values())


def test_the_order_of_reading_does_not_show() -> None:
    units = [[f"word {number}", "all"] for number in range(20) for _ in range(15)]
    forwards, backwards = (
        SelectionInRounds((QUIET, QUIET)).release(some, DeterministicRandom("a")) for some in (units, units[::-1])
    )
    assert list(forwards.items()) == list(backwards.items())


def test_nobody_s_candidate_is_refused() -> None:
    with pytest.raises(ValueError, match="one unit at least"):
        QUIET.release({"tea": WEIGHT_STEPS, "nobody": 0}, OS_RANDOM)
    assert QUIET.release({}, OS_RANDOM) == {}
    assert QUIET.weigh([[], []]) == {}


@pytest.mark.parametrize("threshold", [-1, 0, WEIGHT_STEPS, 2 * WEIGHT_STEPS, MOST_WEIGHTED_THRESHOLD + 1])
def test_thresholds_without_a_proof_are_refused(threshold: int) -> None:
    with refusal("WeightThresholdInvalid"):
        WeightedSelection(Fraction(WEIGHT_STEPS), threshold, 5)


@pytest.mark.parametrize(
    ("amount", "k", "error"),
    [
        (Amount(0, 10**10), 5, "NoiseInvalid"),
        (Amount(10, 10**10), 5, "NoiseInvalid"),
        (Amount(10**11, 0), 5, "ThresholdUnaffordable"),
        (Amount(10**11, 10**10), 0, "CandidatesInvalid"),
        (Amount(10**11, 10**10), MOST_WEIGHTED_CONTRIBUTIONS + 1, "CandidatesInvalid"),
    ],
)
def test_what_cannot_be_bought_is_named(amount: Amount, k: int, error: str) -> None:
    with refusal(error):
        calibrate_weighted_selection(amount, k)
    with refusal(error):
        calibrate_rounds(amount, k)


@pytest.mark.parametrize("k", [0, MOST_WEIGHTED_CONTRIBUTIONS + 1])
def test_a_unit_names_one_candidate_at_least(k: int) -> None:
    with refusal("CandidatesInvalid"):
        WeightedSelection(Fraction(WEIGHT_STEPS), 10 * WEIGHT_STEPS, k)
