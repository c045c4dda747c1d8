"""Rounds of noisy counts and sums: what they cost, how they are calibrated, and that a unit moves one bin at most."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import replace_one
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, binned_sums, calibrate_rounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tests.refusals import refusal

QUIET = KMeansRounds(3, Fraction(1, 64), 2, NoisyMean(2**20, Fraction(1, 16), 20))  # hardly any noise
SIGMAS = st.integers(1, 2**40).map(lambda steps: Fraction(steps, SIGMA_GRID))
ROUNDS = st.builds(
    KMeansRounds,
    st.integers(1, 1000),
    SIGMAS,
    st.integers(1, 1000),
    st.builds(NoisyMean, st.integers(1, 2**21), SIGMAS, st.integers(-100, 100)),
)


def test_the_loss_is_the_formula():
    """Five counts at sigma 10, two sums of vectors up to 1 at sigma 20: 5/200 + 2/800 = 0.0275."""
    rounds = KMeansRounds(5, Fraction(10), 2, NoisyMean(2**20, Fraction(20 * 2**20), 20))
    assert rounds.loss() == Amount(27_500_000_000)
    assert replace_one(rounds.loss()) == Amount(110_000_000_000)
    assert rounds.sum_sigma == 20


@given(ROUNDS)
def test_the_charge_is_the_sum_of_all_rounds_by_mpmath(rounds):
    with mpmath.workdps(60):
        sigma_c, sigma_s = (
            mpmath.mpf(s.numerator) / s.denominator for s in (rounds.count_sigma, rounds.vectors.sigma_steps)
        )
        rho = rounds.count_rounds / (2 * sigma_c**2) + rounds.sum_rounds * rounds.vectors.clip_steps**2 / (
            2 * sigma_s**2
        )
        units = rho * 10**12
        assert units <= rounds.loss().rho + mpmath.mpf(10) ** -30
        assert rounds.loss().rho < units + rounds.count_rounds + rounds.sum_rounds


@given(ROUNDS)
def test_the_stored_gaussian_costs_as_much(rounds):
    event = rounds.event()
    multiplier = float(event.dp_event["event"]["noise_multiplier"])
    assert 1 / (2 * multiplier**2) * 1e12 == pytest.approx(event.loss.rho, rel=1e-9, abs=2001)
    assert event.dp_event["count"] == 1


@given(st.integers(10**7, 10**13), st.integers(1, 40), st.integers(1, 10), st.fractions("0.05", "0.95"))
def test_calibrated_rounds_never_exceed_their_budget_and_use_it(rho, counts, sums, share):
    rounds = calibrate_rounds(rho, counts, sums, share)
    assert rounds.loss().fits(Amount(rho))
    assert rounds.loss().rho >= rho * 0.999 - counts - sums - 1
    assert (rounds.one_hot.loss() * counts).rho == pytest.approx(float(rho * share), rel=1e-3)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: calibrate_rounds(10**10, 0, 1, "0.5"), "RoundsInvalid"),
        (lambda: calibrate_rounds(10**10, 1, 0, "0.5"), "RoundsInvalid"),
        (lambda: calibrate_rounds(10**10, 1001, 1, "0.5"), "RoundsInvalid"),
        (lambda: calibrate_rounds(10**10, 1, 1, "0"), "RoundsInvalid"),
        (lambda: calibrate_rounds(10**10, 1, 1, "1"), "RoundsInvalid"),
        (lambda: calibrate_rounds(10**10, 1, 1, "0.5", 0), "MeanInvalid"),
        (lambda: calibrate_rounds(0, 1, 1, "0.5"), "NoiseInvalid"),
        (lambda: calibrate_rounds(1000, 1, 1, "0.5"), "NoiseInvalid"),
        (lambda: KMeansRounds(0, Fraction(1), 1, QUIET.vectors), "RoundsInvalid"),
        (lambda: KMeansRounds(1, Fraction(1, 3), 1, QUIET.vectors), "NoiseInvalid"),
    ],
)
def test_parameters_out_of_range_are_refused(bad, error):
    with refusal(error) as refused:
        bad()
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("rng", [OS_RANDOM, DeterministicRandom("a")])
def test_little_noise_leaves_counts_and_sums_alone(rng):
    rounds = QUIET.begin(rng)
    points = np.array([[0.5, 0.0], [0.25, -0.5], [0.5, 0.5], [30.0, 40.0], [np.nan, 0.0]], np.float32)
    bin_of = np.array([0, 0, -1, 2, 2])
    assert rounds.counts(bin_of, 4).tolist() == [2, 0, 2, 0]
    found = rounds.sums(points, bin_of, 4)
    assert found.dtype == np.float64
    assert found == pytest.approx(np.array([[0.75, -0.5], [0, 0], [0.6, 0.8], [0, 0]]), abs=1e-5)


def test_no_round_more_than_is_paid():
    rounds = QUIET.begin(OS_RANDOM)
    bin_of, points = np.array([0, 1]), np.eye(2, dtype=np.float32)
    for _ in range(3):
        rounds.counts(bin_of, 2)
    with refusal("RoundsExhausted", match="count rounds"):
        rounds.counts(bin_of, 2)
    rounds.sums(points, bin_of, 2)
    rounds.sums(points, bin_of, 2)
    with refusal("RoundsExhausted", match="sum rounds"):
        rounds.sums(points, bin_of, 2)


def test_every_bin_has_noise_of_its_own_also_without_units():
    paid = calibrate_rounds(10**10, 1, 1, "0.5")
    rounds = paid.begin(OS_RANDOM)
    none = np.zeros(0, np.int64)
    counts = rounds.counts(none, 400)
    sums = rounds.sums(np.zeros((0, 30), np.float32), none, 40)
    assert len(set(counts.tolist())) > 30
    assert counts.std() == pytest.approx(float(paid.count_sigma), rel=0.25)
    assert len(set(sums.flatten().tolist())) > 1190  # two of 1,200 draws are alike now and then
    assert sums.std() == pytest.approx(paid.sum_sigma, rel=0.25)


@pytest.mark.parametrize("bin_of", [[0, 2], [-2, 0]])
def test_a_bin_that_there_is_not_costs_nothing(bin_of):
    rounds = QUIET.begin(OS_RANDOM)
    with pytest.raises(ValueError, match="one of 2 bins"):
        rounds.counts(np.array(bin_of), 2)
    with pytest.raises(ValueError, match="one of 2 bins"):
        rounds.sums(np.eye(2, dtype=np.float32), np.array(bin_of), 2)
    with pytest.raises(ValueError, match="3 bins for points"):
        rounds.sums(np.eye(2, dtype=np.float32), np.array([0, 0, 0]), 2)
    assert rounds.sums(np.eye(2, dtype=np.float32), np.array([0, 1]), 2).shape == (2, 2)


@settings(max_examples=60)
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=6), st.data())
def test_one_unit_moves_one_bin_by_the_clip_norm_at_most(rows, data):
    """The sensitivity, with and without any one unit; the others may stand in any order."""
    points = np.array(rows, np.float32)
    bin_of = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=len(rows), max_size=len(rows))))
    gone = data.draw(st.integers(0, len(rows) - 1))
    rest = data.draw(st.permutations([row for row in range(len(rows)) if row != gone]))
    clip = QUIET.vectors.quantised
    moved = binned_sums(clip, points, bin_of, 3) - binned_sums(clip, points[rest], bin_of[rest], 3)
    assert (moved.astype(object) ** 2).sum() <= QUIET.vectors.clip_steps**2
    assert not moved[[place for place in range(3) if place != bin_of[gone]]].any()


def test_sums_do_not_depend_on_how_many_rows_are_clipped_at_once(monkeypatch):
    points = np.random.default_rng(1).normal(size=(100, 5)).astype(np.float32)
    bin_of = np.arange(100) % 4 - 1
    whole = binned_sums(QUIET.vectors.quantised, points, bin_of, 3)
    monkeypatch.setattr("tasks.mechanisms.vectors.kmeans_rounds._ROWS_AT_ONCE", 7)
    assert np.array_equal(binned_sums(QUIET.vectors.quantised, points, bin_of, 3), whole)
    by_hand = QUIET.vectors.quantised(torch.from_numpy(points[bin_of == 1])).sum(0)
    assert whole[1].tolist() == by_hand.tolist()
