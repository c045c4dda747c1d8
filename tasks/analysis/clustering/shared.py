"""Common base of clusterers: rounds, bins, public facts."""

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
    """Base of clusterers: pays for rounds and reads released points as centres.

    Attributes:
        count: k.
        rounds: of counts and of sums; each clusterer has its own number of both.
    """

    count: int
    rounds: KMeansRounds

    @property
    def event(self) -> PrivacyEvent:
        """The event of all rounds together."""
        return self.rounds.event()

    def centres(self, released: Json, public: Points) -> Centroids:
        """Return at most k centres of the released points."""
        return Centroids.of(Coreset.from_json(released), self.count)


def bins_of(units: GridPoints, centres: Reals) -> Places:
    """Return the centre at which each unit is counted, int64 [n]; a unit whose point is not finite is in no bin."""
    return np.where(units.usable, units.nearest(centres), NO_BIN)


def start_facts() -> Mapping[str, str]:
    """Return the public facts of the built-in topics, from which a clusterer may start."""
    return {"public topics": f"{len(PUBLIC_TOPICS)}, SHA-256 {digest()}"}


def rounds_facts(count: int, rounds: KMeansRounds) -> Mapping[str, str]:
    """Return the public facts of a clustering and its noise."""
    return {
        "clusters k": str(count),
        "count rounds": str(rounds.count_rounds),
        "noise of a cluster's count": f"{float(rounds.count_sigma):.4g}",
        "sum rounds": str(rounds.sum_rounds),
        "noise of a sum's coordinate": f"{rounds.sum_sigma:.4g}",
        "norm of a unit's point": f"{float(rounds.vectors.clip_norm):.4g}",
    }


def within_ball(vectors: Reals) -> Reals:
    """Scale released vectors down to length 1 if they are longer: no point is."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0), np.float64)
