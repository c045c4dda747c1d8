"""What the clusterers share."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.clustering.centres import Centroids
from tasks.analysis.clustering.coreset import Coreset
from tasks.mechanisms.vectors.fixed_point import GridPoints, Places, Points, Reals
from tasks.mechanisms.vectors.kmeans_rounds import NO_BIN, KMeansRounds
from tasks.text.public_topics import PUBLIC_TOPICS, digest


@dataclass(frozen=True)
class IterativeClusterer:
    """What is the same in all of them: rounds are paid for, and released points are read as centres.

    Attributes:
        count: k.
        rounds: of counts and of sums; how many of each a clusterer takes is its own.
    """

    count: int
    rounds: KMeansRounds

    @property
    def event(self) -> PrivacyEvent:
        """What is charged."""
        return self.rounds.event()

    def centres(self, released: Json, public: Points) -> Centroids:
        """At most k centres of what was released."""
        return Centroids.of(Coreset.from_json(released), self.count)


def bins_of(units: GridPoints, centres: Reals) -> Places:
    """Which centre each unit is counted at, int64 [n]; a unit whose point is not finite is in no bin."""
    return np.where(units.usable, units.nearest(centres), NO_BIN)


def start_facts() -> Mapping[str, str]:
    """What a clusterer that starts from public points depends on beside the release's own keywords."""
    return {"public topics": f"{len(PUBLIC_TOPICS)}, SHA-256 {digest()}"}


def rounds_facts(count: int, rounds: KMeansRounds) -> Mapping[str, str]:
    """Public facts of a clustering."""
    return {
        "clusters k": str(count),
        "count rounds": str(rounds.count_rounds),
        "noise of a cluster's count": f"{float(rounds.count_sigma):.4g}",
        "sum rounds": str(rounds.sum_rounds),
        "noise of a sum's coordinate": f"{rounds.sum_sigma:.4g}",
        "norm of a unit's point": f"{float(rounds.vectors.clip_norm):.4g}",
    }


def within_ball(vectors: Reals) -> Reals:
    """Released vectors, brought down to length 1 where they are longer: points are no longer than that."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0), np.float64)
