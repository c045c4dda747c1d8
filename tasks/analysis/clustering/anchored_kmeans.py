"""The clusterer `anchored`: clusters start from public points, and noisy means move as far as their noise allows.

1. Anchors: the directions of all public points (a list of topics, the released keywords), up to 1024. One noisy count
   of how many units are nearest to each. Weighted k-means over those that the count tells from empty ones gives k
   starts: dense regions are split into many, starved anchors are merged into their neighbours.
2. In each round: a noisy count and a noisy sum of the units nearest to each centre. Centres whose count says that
   nobody is there are dropped. The other means are shrunk by what is known of their noise
   (`tasks.analysis.clustering.shrinkage`), along the axes in which the public points differ.

The sums are in full dimension at the price of the norm alone; the shrinkage finds the directions in which they pay. So
there is no dimension to choose, and with many units the centres are plain means.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models_db.values.canonical_json import Json
from tasks.analysis.clustering.anchors import anchors_of, axes_of, directions_of, spread
from tasks.analysis.clustering.coreset import Coreset, k_means
from tasks.analysis.clustering.shared import IterativeClusterer, bins_of, rounds_facts, start_facts
from tasks.analysis.clustering.shrinkage import NoisyMeans
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import GridPoints, Points, Reals
from tasks.mechanisms.vectors.kmeans_rounds import Rounds

_SEEN = 2.0
"""An anchor counts as inhabited from this many standard deviations of its count's noise on."""

_KEPT = 1.0
"""A centre is kept from this many on, and from one unit on."""


@dataclass(frozen=True)
class AnchoredKMeans(IterativeClusterer):
    """A `Clusterer`; one count round for the anchors, one count and one sum round for each round of means."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "anchored", **start_facts(), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Released centres, at most k of them."""
        units, paid = GridPoints.of(points), self.rounds.begin(rng)
        centres = self._starts(units, public, paid)
        sizes, axes = np.ones(len(centres)), axes_of(public)
        for _ in range(self.rounds.sum_rounds):
            centres, sizes = self._moved(units, centres, axes, paid)
        return Coreset(centres.astype(np.float32), sizes).to_json()

    def _starts(self, units: GridPoints, public: Points, paid: Rounds) -> Reals:
        anchors = anchors_of(public, self.count)
        counts = paid.counts(bins_of(units, anchors), len(anchors)).astype(np.float64)
        sigma = float(self.rounds.count_sigma)
        inhabited = np.where(counts >= _SEEN * sigma, counts, 0.0)
        if (inhabited > 0).sum() < self.count:  # too few are told from empty ones: they all take part
            inhabited = np.maximum(counts, sigma / 10)
        starts = directions_of(k_means(anchors, inhabited, self.count, "anchors"))
        return starts if len(starts) else spread(public, self.count)

    def _moved(self, units: GridPoints, centres: Reals, axes: Reals, paid: Rounds) -> tuple[Reals, Reals]:
        bin_of = bins_of(units, centres)
        counts = paid.counts(bin_of, len(centres)).astype(np.float64)
        sums = paid.sums(units.values, bin_of, len(centres))
        kept = counts >= max(_KEPT * float(self.rounds.count_sigma), 1.0)
        if not kept.any():
            return centres, np.maximum(counts, 1.0)
        means = NoisyMeans(sums[kept], counts[kept], self.rounds.sum_sigma)
        return means.shrunk(centres[kept], axes), counts[kept]
