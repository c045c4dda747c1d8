"""Bins of clusters x keywords: what a unit adds, and what is read off noisy counts."""

import numpy as np

from tasks.insights.cluster_keywords import FEWEST, ChosenKeywords

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


def test_the_most_frequent_come_first_and_equal_ones_in_the_order_of_the_set() -> None:
    noisy = [0] * 4 + [7, 9, 7, 99] + [0] * 4
    assert BINS.best(noisy, 1, 3, 1.0, NAMED) == ["pear", "apple", "plum"]
    assert BINS.best(noisy, 1, 1, 1.0, NAMED) == ["pear"]


def test_what_may_be_noise_alone_is_left_out_unless_little_else_is_there() -> None:
    named = [f"word {number}" for number in range(6)]
    bins = ChosenKeywords(1, 6)
    assert bins.best([9, 8, 7, 2, -3, 1], 0, 6, 3.0, named) == ["word 0", "word 1", "word 2"]
    assert bins.best([9, -1, 2, 0, -3, 1], 0, 6, 3.0, named) == ["word 0", "word 2", "word 5"]
    assert len(bins.best([-9] * 6, 0, 6, 3.0, named)) == FEWEST


def test_a_keyword_set_without_keywords_describes_nothing() -> None:
    assert BINS.best([5] * 12, 0, 10, 1.0, []) == []
