"""Bins of clusters x keywords: what a unit adds, and what is read off noisy counts."""

from fractions import Fraction

import numpy as np

from tasks.systems.urania.stages import ChosenKeywords, in_turn, supported
from tasks.values.results import SupportRule

BINS = ChosenKeywords(clusters=3, keywords=4)
NAMED = ["apple", "pear", "plum"]
RULE = SupportRule(10, Fraction(1, 10))


def test_a_unit_adds_one_to_each_keyword_it_chose_in_its_own_cluster() -> None:
    counts = BINS.counts(np.array([0, 2, 2, -1]), [(0, 1), (1,), (1, 1, 2), (0, 1, 2)])
    assert counts == [1, 1, 0, 0, *[0, 0, 0, 0], 0, 2, 1, 0]


def test_one_unit_moves_at_most_as_many_bins_as_it_chose() -> None:
    clusters, chosen = np.array([0, 1, 2, 1]), [(0,), (1, 2), (3, 0, 1), (2, 2, 2)]
    whole = np.array(BINS.counts(clusters, chosen))
    for gone in range(4):
        rest = np.array(BINS.counts(np.delete(clusters, gone), [c for n, c in enumerate(chosen) if n != gone]))
        moved = whole - rest
        assert moved.min() >= 0
        assert moved.max() == 1
        assert moved.sum() == len(set(chosen[gone]))


def test_no_unit_at_all_gives_every_bin_nothing() -> None:
    assert BINS.counts(np.zeros(0, np.int64), []) == [0] * 12


def test_the_table_leaves_out_bins_that_no_keyword_has() -> None:
    noisy = list(range(12))
    assert BINS.table(noisy, 3).tolist() == [[0, 1, 2], [4, 5, 6], [8, 9, 10]]


def chosen(counts: list[float], ranking: list[float], size: int, named: list[str] = NAMED) -> list[str]:
    return [named[number] for number in supported(np.array(counts), np.array(ranking), size, RULE, named)]


def test_keywords_are_in_the_order_of_their_evidence_and_equal_ones_in_that_of_the_set() -> None:
    assert chosen([20, 20, 20], [7, 9, 7], 100) == ["pear", "apple", "plum"]


def test_a_keyword_needs_the_count_and_the_share() -> None:
    assert chosen([9, 10, 11], [3, 2, 1], 50) == ["pear", "plum"], "a count of 10, whatever the share"
    assert chosen([19, 20, 21], [3, 2, 1], 200) == ["pear", "plum"], "a tenth of 200"
    assert chosen([9, 9, 9], [3, 2, 1], -5) == []
    assert chosen([10, -3, 0], [3, 2, 1], -5) == ["apple"]


def test_a_word_and_its_plural_are_one_keyword() -> None:
    assert chosen([20, 30, 20], [1, 2, 3], 100, ["game", "games", "chess"]) == ["chess", "games"]


def test_a_keyword_set_without_keywords_describes_nothing() -> None:
    assert chosen([], [], 100, []) == []


def test_words_near_clusters_are_taken_in_turn_and_once() -> None:
    closeness = np.array([[0.9, 0.8, 0.1, 0.0], [0.7, 0.2, 0.6, 0.1]])
    assert in_turn(closeness, 4) == [0, 1, 2, 3]
    assert in_turn(closeness[::-1], 3) == [0, 2, 1]
    assert in_turn(closeness, 0) == []
