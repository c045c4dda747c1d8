"""Private Lloyd k-means from public centres (clusterer `lloyd`): noisy counts and noisy sums (Blum et al., 2005).

The first centres are those of k-means on the public points. In each round a centre becomes the noisy sum of the units
nearest to it over their noisy count; one whose count does not exceed its noise stays where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models_db.values.canonical_json import Json
from tasks.analysis.clustering.anchors import spread
from tasks.analysis.clustering.coreset import Coreset
from tasks.analysis.clustering.shared import IterativeClusterer, bins_of, rounds_facts, start_facts, within_ball
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import GridPoints, Points

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
