"""Candidates are kept with the stated probabilities, each by a coin of its own; a tenth more or less is rejected."""

from fractions import Fraction
from math import comb

import pytest

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.partition_selection import PartitionSelection
from tests.statistical.harness import P_THRESHOLD, miss_probability, p_value

pytestmark = pytest.mark.statistical

SELECTION = PartitionSelection(Fraction(1), Fraction(0.03), 2)
TRIALS = 20_000
NAMES = [f"{number:05}" for number in range(TRIALS)]
UNITS = [SELECTION.units_for(probability) for probability in (0.1, 0.3, 0.5, 0.7)]


def kept(units: int) -> dict[int, float]:
    """Whether a candidate of so many units is kept."""
    chance = SELECTION.probability(units)
    return {0: 1 - chance, 1: chance}


@pytest.mark.parametrize("units", UNITS)
def test_the_stated_probability_is_accepted_and_others_are_rejected(units: int) -> None:
    found = set(SELECTION.keep(dict.fromkeys(NAMES, units), OS_RANDOM))
    sample = [int(name in found) for name in NAMES]
    assert p_value(sample, kept(units)) > P_THRESHOLD
    for error in (0.9, 1.1):
        chance = SELECTION.probability(units) * error
        assert p_value(sample, {0: 1 - chance, 1: chance}) < P_THRESHOLD or chance < 0.2


def test_one_unit_more_or_less_would_be_seen() -> None:
    """The power of the test above, computed: a count off by one is missed less than once in a million runs."""
    for units in UNITS:
        for other in (units - 1, units + 1):
            assert miss_probability(kept(other), kept(units), TRIALS) < 1e-6


def test_every_candidate_has_a_coin_of_its_own() -> None:
    """How many of three with the same count are kept is binomial; with one coin for all it would be none or three."""
    units = SELECTION.units_for(0.3)
    chance, trials = SELECTION.probability(units), TRIALS // 3
    found = set(SELECTION.keep(dict.fromkeys(NAMES, units), OS_RANDOM))
    threes = [NAMES[3 * turn : 3 * turn + 3] for turn in range(trials)]
    sample = [sum(name in found for name in three) for three in threes]
    binomial = {j: comb(3, j) * chance**j * (1 - chance) ** (3 - j) for j in range(4)}
    assert p_value(sample, binomial) > P_THRESHOLD
    assert p_value([3 * (three[0] in found) for three in threes], binomial) < P_THRESHOLD
