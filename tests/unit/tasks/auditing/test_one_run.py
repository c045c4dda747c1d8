"""The bound on epsilon from one release: exact at its ends, and right as often as it says."""

import math
import random

import pytest
from scipy.stats import binom

from tasks.auditing.one_run import one_run_bound


@pytest.mark.parametrize("chance", [0.25, 0.5])
def test_the_bound_is_the_epsilon_that_makes_the_count_as_rare_as_the_failure(chance: float) -> None:
    bound = one_run_bound(36, 40, chance, slack=0.01, confidence=0.95)
    odds = math.exp(bound.epsilon) * chance / (1 - chance)
    assert binom.sf(35, 40, odds / (1 + odds)) == pytest.approx(0.04)
    assert bound.p_value == pytest.approx(binom.sf(35, 40, chance))


def test_nothing_is_proved_by_nothing_or_by_chance() -> None:
    assert one_run_bound(0, 0, 0.5, 0.0).epsilon == 0
    assert one_run_bound(0, 0, 0.5, 0.0).p_value == 1
    assert one_run_bound(20, 40, 0.5, 0.0).epsilon == 0
    assert one_run_bound(40, 40, 0.5, slack=0.05).epsilon == 0  # delta alone could have done it


def test_a_likelier_read_proves_less() -> None:
    assert one_run_bound(36, 40, 0.25, 0.0).epsilon > one_run_bound(36, 40, 0.5, 0.0).epsilon > 0


@pytest.mark.parametrize("right", [-1, 5])
def test_impossible_counts_are_errors(right: int) -> None:
    with pytest.raises(ValueError, match="right at chance"):
        one_run_bound(right, 4, 0.5, 0.0)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_guesses_about_randomised_response_stay_below_its_epsilon(epsilon: float) -> None:
    """Every guess is right with the largest probability that epsilon allows: 2,000 audits, 5 % of them may fail."""
    source, right = random.Random(3), math.exp(epsilon) / (1 + math.exp(epsilon))
    counts = [sum(source.random() < right for _ in range(50)) for _ in range(2000)]
    failed = sum(one_run_bound(count, 50, 0.5, 0.0).epsilon > epsilon for count in counts)
    assert 0 < failed <= 130  # mean 100 at most; above 130 with probability 0.002
