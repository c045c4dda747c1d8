"""The clusterer `lloyd`: Lloyd's rounds from public centres, noisy counts and noisy sums (Blum et al., 2005).

The first centres are those of k-means on the public points. In each round a centre becomes the noisy sum of the units
nearest to it over their noisy count; one whose count does not exceed its noise stays where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models_db.canonical import Json
from models_db.events import PrivacyEvent
from tasks.insights.centres import Centres
from tasks.insights.clusterer_parts import bins_of, rounds_facts, start_facts
from tasks.insights.coreset import Coreset
from tasks.insights.public_points import spread
from tasks.mechanisms.grid_points import GridPoints, Points, Reals
from tasks.mechanisms.kmeans import KMeansRounds
from tasks.mechanisms.rng import RandomSource

_SEEN = 2.0  # standard deviations of a count's noise


@dataclass(frozen=True)
class DPLloyd:
    """A `Clusterer`.

    Attributes:
        count: k.
        rounds: as many of counts as of sums.
    """

    count: int
    rounds: KMeansRounds

    @property
    def event(self) -> PrivacyEvent:
        """What is charged."""
        return self.rounds.event()

    @property
    def facts(self) -> Mapping[str, str]:
        """Public facts for plans and cards."""
        return {"clusterer": "lloyd", **start_facts(), **rounds_facts(self.count, self.rounds)}

    def draw(self, points: Points, public: Points, rng: RandomSource) -> Json:
        """Released centres, k of them."""
        units, paid = GridPoints.of(points), self.rounds.begin(rng)
        centres, counts = spread(public, self.count), np.ones(self.count)
        for _ in range(self.rounds.sum_rounds):
            bin_of = bins_of(units, centres)
            counts = paid.counts(bin_of, self.count).astype(np.float64)
            sums = paid.sums(units.values, bin_of, self.count)
            seen = counts >= max(_SEEN * float(self.rounds.count_sigma), 1.0)
            centres = np.where(seen[:, None], within_ball(sums / np.maximum(counts, 1.0)[:, None]), centres)
        return Coreset(centres.astype(np.float32), np.maximum(counts, 1.0)).to_json()

    def centres(self, released: Json, public: Points) -> Centres:
        """The centres in what was released."""
        return Centres.of(Coreset.from_json(released), self.count)


def within_ball(vectors: Reals) -> Reals:
    """Released vectors, brought down to length 1 where they are longer: points are no longer than that."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0), np.float64)
