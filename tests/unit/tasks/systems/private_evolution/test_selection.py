"""What stays after a round and what is reworded follows from noisy counts alone."""

from collections import Counter

import pytest

from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.systems.private_evolution.run import Lineage, choose

RNG = DeterministicRandom("tests")


def test_by_rank_the_highest_counts_are_taken_and_equal_ones_in_their_public_order() -> None:
    assert choose([3, 9, -4, 9, 5], "rank", 3, 0, RNG) == [1, 3, 4]
    assert choose([-2, -1, -2], "rank", 2, 0, RNG) == [1, 0]
    assert choose([1, 2], "rank", 7, 0, RNG) == [1, 0]


def test_samples_are_in_proportion_to_positive_counts() -> None:
    drawn = Counter(choose([-50, 10, 0, 30], "sample", 20_000, 0, OS_RANDOM))
    assert set(drawn) == {1, 3}
    assert drawn[3] / 20_000 == pytest.approx(0.75, abs=0.03)  # nine standard deviations


def test_counts_up_to_the_threshold_are_none() -> None:
    assert set(choose([4, 5, 6], "sample", 1000, 5, RNG)) == {2}


@pytest.mark.parametrize("noisy", [[-3, -1, -8, -2], [0, 0, 0, 0], [5, 5, 5, 5]])
def test_where_no_count_is_above_it_every_candidate_is_as_likely(noisy: list[int]) -> None:
    drawn = Counter(choose(noisy, "sample", 20_000, 5, OS_RANDOM))
    assert all(drawn[number] / 20_000 == pytest.approx(0.25, abs=0.03) for number in range(4))


def test_selected_texts_stay_and_are_reworded_in_turn() -> None:
    assert Lineage.of([7, 2, 5], 8) == Lineage((7, 2, 5), (7, 2, 5, 7, 2))
    assert Lineage.of([7, 2], 2) == Lineage((7, 2), ())
    assert Lineage.of([0], 1) == Lineage((0,), ())


def test_what_is_drawn_again_is_reworded_first() -> None:
    assert Lineage.of([4, 1, 4, 4], 4) == Lineage((4, 1), (4, 4))
    assert Lineage.of([4, 1, 4], 7) == Lineage((4, 1), (4, 4, 1, 4, 4))
