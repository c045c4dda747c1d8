"""Bins of clusters x keywords: what a unit adds, and what is read off noisy counts."""

import numpy as np

from tasks.insights.urania.cluster_keywords import FEWEST, ChosenKeywords, best

BINS = ChosenKeywords(clusters=3, keywords=4)
NAMED = ["apple", "pear", "plum"]


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


def test_the_most_frequent_come_first_and_equal_ones_in_the_order_of_the_set() -> None:
    believed = np.array([7.0, 9.0, 7.0])
    assert best(believed, 3, NAMED) == ["pear", "apple", "plum"]
    assert best(believed, 1, NAMED) == ["pear"]


def test_what_says_little_is_left_out_unless_little_else_is_there() -> None:
    named = [f"word {number}" for number in range(6)]
    assert best(np.array([9.0, 8, 7, 1.5, -3, 1]), 6, named) == ["word 0", "word 1", "word 2"]
    assert best(np.array([9.0, -1, 1, 0, -3, 0.5]), 6, named) == ["word 0", "word 2", "word 5"]
    assert len(best(np.array([-9.0] * 6), 6, named)) == FEWEST


def test_a_keyword_set_without_keywords_describes_nothing() -> None:
    assert best(np.zeros(0), 10, []) == []
