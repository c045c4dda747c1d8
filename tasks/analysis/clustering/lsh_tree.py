"""The clusterer `lsh_tree`: a noisy tree of hashed points, k-means on its leaves (Chang and Kamath, 2021; PRIVACY §5).

Every level splits by one public plane through the origin (SimHash): two children for each node that is large enough.
All children are counted with noise, those without units included. A child with too small a count is pruned, its units
take no further part; one that cannot be split further is a leaf. A leaf's weight is the count that the tree has already
paid for, a fresh one would be one more round. The noisy sum of each leaf over its weight is a point of the coreset, on
which k-means is free.

A leaf must be large enough for its noisy mean to be worth having: sigma sqrt(d) units, or half an average cluster where
that is less. A node is split from three times that on.
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
"""Of one level: the largest are split, the others are leaves."""


@dataclass(frozen=True)
class LshTree(IterativeClusterer):
    """A `Clusterer`; a count round for each level, the root's included, and one sum round."""

    @property
    def depth(self) -> int:
        """How many times the tree splits."""
        return self.rounds.count_rounds - 1

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "lsh_tree", "depth of the tree": str(self.depth), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """The leaves: noisy means with their noisy counts."""
        units, paid = GridPoints.of(points), self.rounds.begin(rng)
        planes = HashStream("planes of a tree").directions(self.depth, points.shape[1])
        tree = _Tree.rooted(units, paid)
        least = self._least(tree.counts[0], points.shape[1])
        for side in units.sides(planes).T:
            tree = tree.grown(side, least, paid)
        leaf_of, weights = tree.all_leaves()
        # A sum round is paid for, and a tree without leaves is an output like any other.
        sums = paid.sums(units.values, leaf_of, max(len(weights), 1))[: len(weights)]
        return Coreset(within_ball(sums / weights[:, None]).astype(np.float32), weights).to_json()

    def _least(self, units: float, width: int) -> float:
        """The smallest noisy count that a node may have."""
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
    def rooted(cls, units: GridPoints, paid: Rounds) -> "_Tree":
        """All units in one node."""
        node_of = np.where(units.usable, 0, NO_BIN)
        nothing = np.full(len(units), NO_BIN)
        return cls(node_of, paid.counts(node_of, 1).astype(np.float64), nothing, np.zeros(0))

    def grown(self, side: NDArray[np.bool_], least: float, paid: Rounds) -> "_Tree":
        """One level more; each is counted, also where no node is left to be split."""
        split = self._split(least)
        closed = self._with_leaves(~split & (self.counts >= 1.0))
        parent = _renumbered(self.node_of, split)
        child_of = np.where(parent == NO_BIN, NO_BIN, 2 * parent + side)
        counts = paid.counts(child_of, max(2 * int(split.sum()), 1)).astype(np.float64)[: 2 * int(split.sum())]
        large = counts >= least
        return _Tree(_renumbered(child_of, large), counts[large], closed.leaf_of, closed.weights)

    def all_leaves(self) -> tuple[Places, Reals]:
        """With the nodes that are still open."""
        closed = self._with_leaves(self.counts >= 1.0)
        return closed.leaf_of, closed.weights

    def _split(self, least: float) -> NDArray[np.bool_]:
        split = self.counts >= _SPLIT * least
        if split.sum() > MOST_NODES // 2:
            split &= self.counts >= np.sort(self.counts)[-(MOST_NODES // 2)]
        return split

    def _with_leaves(self, closed: NDArray[np.bool_]) -> "_Tree":
        place = _renumbered(self.node_of, closed)
        leaf_of = np.where(place == NO_BIN, self.leaf_of, place + len(self.weights))
        return _Tree(self.node_of, self.counts, leaf_of, np.concatenate([self.weights, self.counts[closed]]))


def _renumbered(node_of: Places, kept: NDArray[np.bool_]) -> Places:
    """Where units are when only some nodes are kept, numbered again from 0; -1 for units of the others."""
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, NO_BIN), NO_BIN)
    return np.asarray(numbers[node_of], np.int64)
