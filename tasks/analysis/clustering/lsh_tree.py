"""Noisy tree of hashed points with k-means on its leaves (clusterer `lsh_tree`; Chang and Kamath, 2021; PRIVACY §5).

Every level splits by one public plane through the origin (SimHash): two children for each node that is large enough.
All children are counted with noise, those without units included. A child with too small a count is pruned, and its
units take no further part; one that cannot be split further is a leaf. A leaf's weight is the count that the tree has
already paid for; a fresh count would be one more round. The noisy sum of each leaf over its weight is a point of the
coreset, on which k-means is free.

A leaf must be large enough for its noisy mean to be useful: sigma sqrt(d) units, or half an average cluster where
that is less. A node is split from three times that size on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json
from tasks.analysis.clustering.coreset import Coreset
from tasks.analysis.clustering.shared import IterativeClusterer, rounds_facts, within_ball
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import GridPoints, Places, Points, Reals
from tasks.mechanisms.vectors.kmeans_rounds import NO_BIN, Rounds

_SPLIT = 3
MOST_NODES = 2**12
"""Most nodes of one level: the largest are split, the others are leaves."""


@dataclass(frozen=True)
class LshTree(IterativeClusterer):
    """A `Clusterer`; a count round for each level, the root's included, and one sum round."""

    @property
    def depth(self) -> int:
        """Number of splits from the root to a leaf."""
        return self.rounds.count_rounds - 1

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "lsh_tree", "depth of the tree": str(self.depth), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Draw the leaves: noisy means with their noisy counts."""
        units, rounds = GridPoints.of(points), self.rounds.begin(rng)
        planes = HashStream("planes of a tree").directions(self.depth, points.shape[1])
        tree = _Tree.rooted(units, rounds)
        least = self._least_count(tree.counts[0], points.shape[1])
        for side in units.sides(planes).T:
            tree = tree.grown(side, least, rounds)
        leaf_of, weights = tree.all_leaves()
        # A sum round is paid for, and a tree without leaves is an output like any other.
        sums = rounds.sums(units.values, leaf_of, max(len(weights), 1))[: len(weights)]
        return Coreset(within_ball(sums / weights[:, None]).astype(np.float32), weights).to_json()

    def _least_count(self, units: float, width: int) -> float:
        """Return the smallest noisy count of a node."""
        worth = min(self.rounds.sum_sigma * math.sqrt(width), units / (2 * self.count))
        return max(worth, float(self.rounds.count_sigma), 1.0)


@dataclass(frozen=True)
class _Tree:
    """A tree while it grows.

    Attributes:
        node_of: int64 [n], the open node that a unit is in, or -1.
        counts: the open nodes' noisy counts, float64 [open].
        leaf_of: int64 [n], the leaf that a unit is in, or -1.
        weights: the leaves' noisy counts, float64 [leaves].
    """

    node_of: Places
    counts: Reals
    leaf_of: Places
    weights: Reals

    @classmethod
    def rooted(cls, units: GridPoints, rounds: Rounds) -> "_Tree":
        """Build the tree of one node with all units."""
        node_of = np.where(units.usable, 0, NO_BIN)
        no_leaf = np.full(len(units), NO_BIN)
        return cls(node_of, rounds.counts(node_of, 1).astype(np.float64), no_leaf, np.zeros(0))

    def grown(self, side: NDArray[np.bool_], least: float, rounds: Rounds) -> "_Tree":
        """Return the tree with one level more; each level is counted, even if no node is left to be split."""
        split = self._split(least)
        closed = self._with_leaves(~split & (self.counts >= 1.0))
        parent = _renumber_nodes(self.node_of, split)
        child_of = np.where(parent == NO_BIN, NO_BIN, 2 * parent + side)
        counts = rounds.counts(child_of, max(2 * int(split.sum()), 1)).astype(np.float64)[: 2 * int(split.sum())]
        large = counts >= least
        return _Tree(_renumber_nodes(child_of, large), counts[large], closed.leaf_of, closed.weights)

    def all_leaves(self) -> tuple[Places, Reals]:
        """Return the leaves, open nodes included: int64 [n] and their noisy counts."""
        closed = self._with_leaves(self.counts >= 1.0)
        return closed.leaf_of, closed.weights

    def _split(self, least: float) -> NDArray[np.bool_]:
        split = self.counts >= _SPLIT * least
        if split.sum() > MOST_NODES // 2:
            split &= self.counts >= np.sort(self.counts)[-(MOST_NODES // 2)]
        return split

    def _with_leaves(self, closed: NDArray[np.bool_]) -> "_Tree":
        place = _renumber_nodes(self.node_of, closed)
        leaf_of = np.where(place == NO_BIN, self.leaf_of, place + len(self.weights))
        return _Tree(self.node_of, self.counts, leaf_of, np.concatenate([self.weights, self.counts[closed]]))


def _renumber_nodes(node_of: Places, kept: NDArray[np.bool_]) -> Places:
    """Return the node of each unit after dropping nodes, renumbered from 0; -1 for units of dropped nodes."""
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, NO_BIN), NO_BIN)
    return np.asarray(numbers[node_of], np.int64)
