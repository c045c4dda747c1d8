"""Registry of clusterers: one point per unit, exact noise, all rounds paid from one rho (PRIVACY §5).

    anchored   from public points, with shrunk means: the default       `anchored_kmeans`
    lsh_tree   Chang and Kamath's coreset of a hashed tree              `lsh_tree`
    lloyd      Lloyd's rounds from public centres                       `dp_lloyd`

Each consists of rounds of one mechanism, `tasks.mechanisms.vectors.kmeans_rounds`: a clusterer's decisions between its
rounds are functions of its released values. Centres are released; the assignment of units to them is not.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.clustering.anchored_kmeans import AnchoredKMeans
from tasks.analysis.clustering.centres import Centroids
from tasks.analysis.clustering.dp_lloyd import DPLloyd
from tasks.analysis.clustering.lsh_tree import LshTree
from tasks.analysis.clustering.parameters import ClusterSettings, Method
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import Points
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, calibrate_rounds

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
