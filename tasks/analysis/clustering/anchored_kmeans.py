"""K-means started from public anchor points (clusterer `anchored`), with noisy means shrunk by their noise.

1. Anchors: the directions of all public points (a list of topics, the released keywords), up to 1024. One noisy count
   of the units nearest to each. Weighted k-means over the anchors whose count stands out from the noise gives k
   starts: dense regions are split into many, anchors with few units are merged into their neighbours.
2. In each round: a noisy count and a noisy sum of the units nearest to each centre. Centres whose count
   indicates no units are dropped. The other means are shrunk by their known noise
   (`tasks.analysis.clustering.shrinkage`), along the axes in which the public points differ.

The sums are in full dimension at the price of the norm alone; the shrinkage finds the directions that carry signal. So
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
