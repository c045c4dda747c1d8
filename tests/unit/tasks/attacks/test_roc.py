"""AUC and TPR by hand, by the definition, and their intervals by how often they hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.attacks.membership_inference import Rate, separation
from tests.refusals import refusal

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=25)


def test_an_auc_by_hand():
    """Of six pairs four are won and one is tied: 4.5 / 6."""
    found = separation([3, 2, 1], [2, 0.5])
    # 3>2, 3>0.5, 2=2, 2>0.5, 1<2, 1>0.5
    assert found.auc == pytest.approx(4.5 / 6)
    assert found.values()["auc"] == "0.7500"


@given(SCORES, SCORES)
def test_the_auc_is_the_share_of_pairs(members, nonmembers):
    pairs = [(a > b) + (a == b) / 2 for a in members for b in nonmembers]
    found = separation(members, nonmembers)
    assert found.auc == pytest.approx(sum(pairs) / len(pairs))
    low, high = found.interval
    assert 0 <= low <= found.auc + 1e-12
    assert found.auc - 1e-12 <= high <= 1


def test_delong_by_hand():
    """Members 3, 2, 1 against 2.5, 0: placements 1, 1/2, 1/2 and 1/3, 1, so S10 = 1/12 and S01 = 2/9."""
    found = separation([3, 2, 1], [2.5, 0])
    assert found.auc == pytest.approx(2 / 3)
    deviation = math.sqrt((1 / 12) / 3 + (2 / 9) / 2)
    half = 1.959963985 * deviation / (2 / 3 * 1 / 3)
    assert found.interval == pytest.approx(tuple(1 / (1 + math.exp(-(math.log(2) + s * half))) for s in (-1, 1)))


def test_a_perfect_attack_on_few_people_proves_little():
    """Three of three disjoint pairs: the exact lower bound is 0.025^(1/3)."""
    found = separation([4, 5, 6], [1, 2, 3])
    assert found.auc == 1
    assert found.interval == pytest.approx((0.025 ** (1 / 3), 1))
    assert not found.above_chance  # 0.29
    assert separation(range(10, 20), range(10)).above_chance


def test_equal_scores_are_chance():
    found = separation([1] * 30, [1] * 30)
    assert found.auc == 0.5
    assert found.interval[0] < 0.5 < found.interval[1]
    assert found.above_chance is False


def test_the_interval_holds_the_truth_as_often_as_stated():
    """Normal scores one apart: AUC = Phi(1/sqrt 2) = 0.7602. Of 400 intervals 20 should miss; 45 is 5.7 deviations."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        low, high = separation(rng.normal(1, 1, 40), rng.normal(0, 1, 60)).interval
        missed += not low <= 0.76025 <= high
    assert missed <= 45


def test_a_rate_by_hand():
    """200 non-members 1 .. 200: at FPR 1 % two may be called members, so the bar is 198."""
    found = separation([198, 198.5, 300], range(1, 201))
    rate = found.rates["tpr_at_1_percent"]
    assert rate == Rate(2, 3)
    assert found.values()["tpr_at_1_percent"] == "0.6667"
    # Clopper-Pearson, 2 of 3.
    assert rate.interval == pytest.approx((0.0943, 0.9916), abs=1e-4)


def test_ties_at_the_bar_are_not_called_members():
    """Ten non-members share the top score: calling them all would be 5 %."""
    found = separation([7, 7, 8], [7] * 10 + [0] * 190)
    assert found.rates["tpr_at_1_percent"] == Rate(1, 3)


@pytest.mark.parametrize(("nonmembers", "one", "tenth"), [(99, False, False), (100, True, False), (1000, True, True)])
def test_a_rate_needs_as_many_nonmembers_as_its_inverse(nonmembers, one, tenth):
    found = separation([1, 2], [0] * nonmembers)
    assert (found.rates["tpr_at_1_percent"] is not None) is one
    assert (found.rates["tpr_at_0_1_percent"] is not None) is tenth
    assert (found.values()["tpr_at_0_1_percent_low"] is not None) is tenth


@pytest.mark.parametrize("sides", [([], [1]), ([1], []), ([], [])])
def test_without_one_of_each_nothing_is_measured(sides):
    found = separation(*sides)
    assert found.auc is None
    assert set(found.values().values()) <= {None, 0, 1}
    assert found.above_chance is None
    assert "not measurable" in found.line()


def test_one_of_each_is_measured_and_proves_nothing():
    found = separation([2], [1])
    assert found.auc == 1
    assert found.interval == pytest.approx((0.025, 1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_cannot_be_compared_is_refused(bad):
    with refusal("ScoreNotFinite"):
        separation([1, bad], [0])
