"""Clusterers by name (`lloyd`, `anchored`, `lsh_tree`): one point per unit, exact noise, all rounds paid from one rho.

Private Lloyd k-means from public centres (clusterer `lloyd`): noisy counts and noisy sums (Blum et al., 2005). The
first centres are those of k-means on the public points. In each round a centre becomes the noisy sum of the units
nearest to it over their noisy count; one whose count does not exceed its noise stays where it was.

K-means started from public anchor points (clusterer `anchored`), with noisy means shrunk by their noise.

1. Anchors: the directions of all public points (a list of topics, the released keywords), up to 1024. One noisy count
   of the units nearest to each. Weighted k-means over the anchors whose count stands out from the noise gives k
   starts: dense regions are split into many, anchors with few units are merged into their neighbours.
2. In each round: a noisy count and a noisy sum of the units nearest to each centre. Centres whose count
   indicates no units are dropped. The other means are shrunk by their known noise
   (`tasks.analysis.clustering.coreset`), along the axes in which the public points differ.

The sums are in full dimension at the price of the norm alone; the shrinkage finds the directions that carry signal. So
there is no dimension to choose, and with many units the centres are plain means.

Noisy tree of hashed points with k-means on its leaves (clusterer `lsh_tree`; Chang and Kamath, 2021; PRIVACY §5). Every
level splits by one public plane through the origin (SimHash): two children for each node that is large enough. All
children are counted with noise, those without units included. A child with too small a count is pruned, and its units
take no further part; one that cannot be split further is a leaf. A leaf's weight is the count that the tree has already
paid for; a fresh count would be one more round. The noisy sum of each leaf over its weight is a point of the coreset,
on which k-means is free.

A leaf must be large enough for its noisy mean to be useful: sigma sqrt(d) units, or half an average cluster where
that is less. A node is split from three times that size on.

Registry of clusterers: one point per unit, exact noise, all rounds paid from one rho (PRIVACY §5).

    anchored   from public points, with shrunk means: the default       `AnchoredKMeans`
    lsh_tree   Chang and Kamath's coreset of a hashed tree              `LshTree`
    lloyd      Lloyd's rounds from public centres                       `DPLloyd`

Each consists of rounds of one mechanism, `tasks.mechanisms.vectors.kmeans_rounds`: a clusterer's decisions between its
rounds are functions of its released values. Centres are released; the assignment of units to them is not.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.clustering.coreset import (
    Centroids,
    Coreset,
    IterativeClusterer,
    NoisyMeans,
    anchors_of,
    axes_of,
    bins_of,
    directions_of,
    k_means,
    rounds_facts,
    spread,
    start_facts,
    within_ball,
)
from tasks.analysis.clustering.parameters import ClusterSettings, Method
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import GridPoints, Places, Points, Reals
from tasks.mechanisms.vectors.kmeans_rounds import NO_BIN, KMeansRounds, Rounds, calibrate_rounds

_LEAST_DEVIATIONS = 2.0  # standard deviations of a count's noise


@dataclass(frozen=True)
class DPLloyd(IterativeClusterer):
    """A `Clusterer` with as many count rounds as sum rounds."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "lloyd", **start_facts(), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Draw the released centres, k of them."""
        units, rounds = GridPoints.of(points), self.rounds.begin(rng)
        centres, counts = spread(public, self.count), np.ones(self.count)
        for _ in range(self.rounds.sum_rounds):
            bin_of = bins_of(units, centres)
            counts = rounds.counts(bin_of, self.count).astype(np.float64)
            sums = rounds.sums(units.values, bin_of, self.count)
            occupied = counts >= max(_LEAST_DEVIATIONS * float(self.rounds.count_sigma), 1.0)
            centres = np.where(occupied[:, None], within_ball(sums / np.maximum(counts, 1.0)[:, None]), centres)
        return Coreset(centres.astype(np.float32), np.maximum(counts, 1.0)).to_json()


_OCCUPIED_DEVIATIONS = 2.0
"""An anchor counts as occupied from this many standard deviations of its count's noise on."""

_KEPT_DEVIATIONS = 1.0
"""A centre is kept from this many standard deviations on, and from one unit on."""


@dataclass(frozen=True)
class AnchoredKMeans(IterativeClusterer):
    """A `Clusterer`; one count round for the anchors, one count and one sum round for each round of means."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "anchored", **start_facts(), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Draw the released centres, at most k of them."""
        units, rounds = GridPoints.of(points), self.rounds.begin(rng)
        centres = self._starts(units, public, rounds)
        sizes, axes = np.ones(len(centres)), axes_of(public)
        for _ in range(self.rounds.sum_rounds):
            centres, sizes = self._refine_centres(units, centres, axes, rounds)
        return Coreset(centres.astype(np.float32), sizes).to_json()

    def _starts(self, units: GridPoints, public: Points, rounds: Rounds) -> Reals:
        anchors = anchors_of(public, self.count)
        counts = rounds.counts(bins_of(units, anchors), len(anchors)).astype(np.float64)
        sigma = float(self.rounds.count_sigma)
        occupied = np.where(counts >= _OCCUPIED_DEVIATIONS * sigma, counts, 0.0)
        if (occupied > 0).sum() < self.count:  # too few stand out from the noise: all take part
            occupied = np.maximum(counts, sigma / 10)
        starts = directions_of(k_means(anchors, occupied, self.count, "anchors"))
        return starts if len(starts) else spread(public, self.count)

    def _refine_centres(self, units: GridPoints, centres: Reals, axes: Reals, rounds: Rounds) -> tuple[Reals, Reals]:
        bin_of = bins_of(units, centres)
        counts = rounds.counts(bin_of, len(centres)).astype(np.float64)
        sums = rounds.sums(units.values, bin_of, len(centres))
        kept = counts >= max(_KEPT_DEVIATIONS * float(self.rounds.count_sigma), 1.0)
        if not kept.any():
            return centres, np.maximum(counts, 1.0)
        means = NoisyMeans(sums[kept], counts[kept], self.rounds.sum_sigma)
        return means.shrunk(centres[kept], axes), counts[kept]


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


__all__ = ["Centroids", "Clusterer", "clusterer_for"]


class Clusterer(Protocol):
    """Mechanism that releases centres of units' points."""

    @property
    def event(self) -> PrivacyEvent:
        """The event that `draw` is charged."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Draw from the mechanism: the result is noisy, and public from then on.

        Args:
            points: float32 [n, d], one row per unit, a function of that unit alone; n may be 0. Rows longer than 1
                are scaled down to length 1, a row that is not finite takes no part.
            public: float32 [m, d], public or released points; any number, none included.
        """

    def centres(self, released: Json, public: Points) -> Centroids:
        """Return 1 to k centres from the result of `draw`, with the same public points: no charge, deterministic."""


def clusterer_for(settings: ClusterSettings, rho: int) -> Clusterer:
    """Return the clusterer with the least noise that costs at most `rho` (units of 1e-12).

    Raises:
        NoiseInvalid: rho is so small that only noise would be drawn; nothing has been spent.
    """
    count_rounds = {"anchored": 1 + settings.rounds, "lsh_tree": 1 + settings.depth, "lloyd": settings.rounds}
    rounds = calibrate_rounds(rho, count_rounds[settings.method], settings.rounds, settings.count_share)
    return _MAKERS[settings.method](settings.count, rounds)


_MAKERS: Mapping[Method, Callable[[int, KMeansRounds], Clusterer]] = {
    "anchored": AnchoredKMeans,
    "lsh_tree": LshTree,
    "lloyd": DPLloyd,
}
