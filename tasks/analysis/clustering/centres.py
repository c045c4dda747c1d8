"""Released cluster centres, and the assignment of units to them."""

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
        """Build at most `count` centres from the released points; the origin, where there are none."""
        centres = coreset.centres(count)
        return cls(centres if len(centres) else np.zeros((1, coreset.points.shape[1]), np.float32))

    def __len__(self) -> int:
        return len(self.vectors)

    def assign(self, points: Points) -> Places:
        """Return the nearest centre of each point: float32 [n, d] -> int64 [n], the first of equally near ones.

        A row's result is exact in integers and so depends on that row and the centres alone, bit for bit. Points are
        scaled down to length 1; a row that is not finite counts as the origin.
        """
        return GridPoints.of(points).nearest(self.vectors.astype(np.float64))
