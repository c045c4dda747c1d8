"""The auditor audited: exact intervals, honest confidence, and events chosen on other trials."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.auditing.epsilon_lower_bound import (
    DistinguishingEvent,
    clopper_pearson_lower,
    clopper_pearson_upper,
    epsilon_lower_bound,
)


def tail(hits: int, trials: int, probability: Fraction) -> Fraction:
    """P(at least `hits` of `trials`), exactly."""
    return sum(
        (math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(hits, trials + 1)),
        Fraction(0),
    )


@given(st.integers(1, 60), st.data(), st.sampled_from([0.001, 0.05, 0.3]))
def test_clopper_pearson_by_its_definition(trials, data, failure):
    """At the lower bound, `hits` or more happen with exactly the failure probability."""
    hits = data.draw(st.integers(1, trials))
    bound = clopper_pearson_lower(hits, trials, failure)
    assert float(tail(hits, trials, Fraction(bound))) == pytest.approx(failure, rel=1e-9)
    assert clopper_pearson_upper(trials - hits, trials, failure) == 1 - bound


def test_clopper_pearson_at_the_ends():
    assert clopper_pearson_lower(0, 10, 0.05) == 0
    assert clopper_pearson_upper(10, 10, 0.05) == 1
    assert clopper_pearson_upper(0, 10, 0.05) == pytest.approx(1 - 0.05**0.1)  # the "rule of three"


def randomised_response(epsilon: float, trials: int, rng: np.random.Generator):
    heads = 1 / (1 + math.exp(-epsilon))
    return rng.random(trials) < heads, rng.random(trials) < 1 - heads


def test_the_bound_is_below_the_truth_as_often_as_stated():
    """400 audits of randomised response at confidence 0.9: at most 40 expected above, 70 is five deviations."""
    rng = np.random.default_rng(7)
    above = 0
    for _ in range(400):
        above += epsilon_lower_bound(*randomised_response(1.0, 400, rng), 0.0, 0.9).epsilon > 1.0
    assert above <= 70


def test_the_bound_comes_close_with_enough_trials():
    found = epsilon_lower_bound(*randomised_response(1.0, 200_000, np.random.default_rng(8)), 0.0, 0.999)
    assert 0.95 < found.epsilon < 1.0
    assert found.trials == (100_000, 100_000)
    assert found.confidence == 0.999


def test_delta_is_forgiven():
    """An event of probability delta on one input only proves nothing at that delta."""
    rng = np.random.default_rng(9)
    leaky, other = (rng.random(20_000) < 0.01).astype(int) * 7, np.zeros(20_000)
    assert epsilon_lower_bound(leaky, other, 0.0, 0.99).epsilon > 1
    assert epsilon_lower_bound(leaky, other, 0.02, 0.99).epsilon == 0


def test_equal_inputs_prove_nothing():
    rng = np.random.default_rng(10)
    found = epsilon_lower_bound(rng.normal(size=5000), rng.normal(size=5000), 0.0, 0.999)
    assert found.epsilon < 0.1


@pytest.mark.parametrize("shift", [3, -3])
def test_the_direction_and_the_order_do_not_matter(shift):
    rng = np.random.default_rng(11)
    one, two = rng.normal(size=5000), rng.normal(size=5000) + shift
    assert epsilon_lower_bound(one, two, 1e-3, 0.99).epsilon > 2
    assert epsilon_lower_bound(two, one, 1e-3, 0.99).epsilon > 2


def test_the_event_is_judged_on_other_trials_than_it_was_chosen_on():
    """Even trials all differ, odd ones are all alike: what they choose, the judges do not confirm."""
    chosen = np.tile([1.0, 5.0], 1000)
    other = np.tile([0.0, 5.0], 1000)
    assert epsilon_lower_bound(chosen, other, 0.0, 0.99).epsilon == 0


def test_an_atom_is_found_between_two_tails():
    rng = np.random.default_rng(12)
    one = np.where(rng.random(20_000) < 0.3, 0.0, rng.normal(size=20_000))
    two = rng.normal(size=20_000)
    found = epsilon_lower_bound(one, two, 0.0, 0.99)
    assert found.event == DistinguishingEvent("equal", 0.0, swapped=False)
    assert found.epsilon > 3


@pytest.mark.parametrize(
    "bad", [([1] * 3, [1] * 9, 0.0, 0.9), ([1] * 9, [1] * 9, 1.0, 0.9), ([1] * 9, [1] * 9, 0.0, 1.0)]
)
def test_impossible_audits_are_refused(bad):
    with pytest.raises(ValueError):
        epsilon_lower_bound(*bad)
