"""The hashed tree: what is counted, what becomes a leaf, and that a leaf's weight is the tree's own count."""

import numpy as np

from tasks.accounting.zcdp import rho_of
from tasks.analysis.clustering.clusterers import LshTree
from tasks.analysis.clustering.coreset import Coreset
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.kmeans_rounds import Rounds, calibrate_rounds

WIDTH = 8
MUCH = 10**18
PUBLIC = np.zeros((0, WIDTH), np.float32)


def points_of(rows: int) -> np.ndarray:
    drawn = np.random.default_rng(1).normal(size=(rows, WIDTH))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def tree_of(depth: int, count: int = 4, rho: int = MUCH) -> LshTree:
    return LshTree(count, calibrate_rounds(rho, depth + 1, 1, "0.3"))


def asked_bins(monkeypatch) -> list[tuple[str, int]]:
    """Every round that is made, with its number of bins."""
    made, counts, sums = [], Rounds.counts, Rounds.sums

    def noted_counts(self, bin_of, bins):
        made.append(("count", bins))
        return counts(self, bin_of, bins)

    def noted_sums(self, points, bin_of, bins):
        made.append(("sum", bins))
        return sums(self, points, bin_of, bins)

    monkeypatch.setattr(Rounds, "counts", noted_counts)
    monkeypatch.setattr(Rounds, "sums", noted_sums)
    return made


def test_leaves_are_cells_between_planes_with_their_counts_and_means():
    """With hardly any noise: 2^3 cells of three planes, as numpy has them."""
    points = points_of(4000)
    coreset = Coreset.from_json(tree_of(3, 100).draw(points, PUBLIC, OS_RANDOM))
    sides = points @ HashStream("planes of a tree").directions(3, WIDTH).T >= 0
    cells = [points[(sides == cell).all(axis=1)] for cell in np.unique(sides, axis=0)]
    assert sorted(coreset.weights) == sorted(len(cell) for cell in cells)
    for cell in cells:
        place = int(np.argmin(np.abs(coreset.weights - len(cell))))
        assert np.abs(coreset.points[place] - cell.mean(axis=0)).max() < 1e-3


def test_both_children_are_counted_and_small_ones_pruned(monkeypatch):
    """All units on one side: the empty child is asked for, counted, and gone on the next level."""
    made = asked_bins(monkeypatch)
    point = points_of(1)
    coreset = Coreset.from_json(tree_of(4).draw(np.repeat(point, 900, axis=0), PUBLIC, OS_RANDOM))
    assert made == [("count", 1), *[("count", 2)] * 4, ("sum", 1)]
    assert coreset.weights.tolist() == [900]
    assert np.abs(coreset.points - point).max() < 1e-3


def test_every_level_is_counted_also_when_nothing_is_left(monkeypatch):
    made = asked_bins(monkeypatch)
    coreset = Coreset.from_json(tree_of(5).draw(PUBLIC, PUBLIC, OS_RANDOM))
    assert [kind for kind, _ in made] == ["count"] * 6 + ["sum"]
    assert len(coreset.weights) == 0


def test_nodes_that_are_too_small_to_be_split_are_leaves():
    """A leaf of fewer units than the noise on its mean is worth is never made."""
    tree = tree_of(12, 4, rho_of("4", "1e-6"))
    coreset = Coreset.from_json(tree.draw(points_of(3000), PUBLIC, OS_RANDOM))
    assert 4 < len(coreset.weights) < 200
    assert coreset.weights.min() >= min(tree.rounds.sum_sigma * WIDTH**0.5, 3000 / 8) - 5 * float(
        tree.rounds.count_sigma
    )


def test_a_level_has_a_public_number_of_nodes_at_most(monkeypatch):
    monkeypatch.setattr("tasks.analysis.clustering.clusterers.MOST_NODES", 8)
    made = asked_bins(monkeypatch)
    tree_of(6, 1000).draw(points_of(5000), PUBLIC, OS_RANDOM)
    assert max(bins for kind, bins in made if kind == "count") <= 8


def test_released_means_are_no_longer_than_points_are():
    coreset = Coreset.from_json(tree_of(6, 64, rho_of("0.2", "1e-6")).draw(points_of(500), PUBLIC, OS_RANDOM))
    assert (np.linalg.norm(coreset.points, axis=1) <= 1 + 1e-6).all()
    assert (coreset.weights >= 1).all()
