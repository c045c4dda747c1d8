"""Released centres, and which of them a unit belongs to."""

from dataclasses import dataclass

import numpy as np

from tasks.analysis.clustering.coreset import Coreset
from tasks.mechanisms.vectors.fixed_point import GridPoints, Places, Points


@dataclass(frozen=True)
class Centroids:
    """Centres of clusters, in the order of their numbers.

    Attributes:
        vectors: float32 [c, d], c at least 1.
    """

    vectors: Points

    @classmethod
    def of(cls, coreset: Coreset, count: int) -> "Centroids":
        """At most `count` centres of what was released; the origin, where that is nothing at all."""
        found = coreset.centres(count)
        return cls(found if len(found) else np.zeros((1, coreset.points.shape[1]), np.float32))

    def __len__(self) -> int:
        return len(self.vectors)

    def assign(self, points: Points) -> Places:
        """The nearest centre of each point: float32 [n, d] -> int64 [n], the first of equally near ones.

        A row's answer is exact in integers and so depends on that row and the centres alone, bit for bit. Points are
        brought down to length 1; a row that is not finite is where the origin is.
        """
        return GridPoints.of(points).nearest(self.vectors.astype(np.float64))
