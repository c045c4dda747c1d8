"""Keywords of clusters: a noisy histogram over clusters x released keywords (URANIA, Algorithm 1).

Every unit that takes part is in one cluster and chooses at most m keywords, so it adds 1 to at most m bins of all
clusters together (`set_histogram`). Empty clusters have bins like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OF_THE_BEST = 0.2
"""Least share of the cluster's best keyword, in believed units; keywords below it describe the cluster poorly."""
FEWEST = 3
"""Keywords that are used even below that share, so that a description has some."""


@dataclass(frozen=True)
class ChosenKeywords:
    """Bins of clusters x keywords; a keyword set smaller than planned leaves the last bins empty.

    Attributes:
        clusters, keywords: largest numbers of both, public.
    """

    clusters: int
    keywords: int

    @property
    def bins(self) -> int:
        """Number of bins."""
        return self.clusters * self.keywords

    def counts(self, cluster_of: NDArray[np.int64], chosen: Sequence[Sequence[int]]) -> list[int]:
        """Count the units of each cluster that chose each keyword. PRIVATE: for the mechanism alone.

        Args:
            cluster_of: int64 [n], -1 for a unit in none.
            chosen: for each unit the numbers of its keywords; a repeated one counts once.
        """
        table = np.zeros((self.clusters, self.keywords), np.int64)
        for cluster, keywords in zip(cluster_of.tolist(), chosen, strict=True):
            if cluster >= 0:
                table[cluster, sorted(set(keywords))] += 1
        counts: list[int] = table.ravel().tolist()
        return counts

    def table(self, noisy: Sequence[int], named: int) -> NDArray[np.float64]:
        """Return noisy counts of all bins as float64 [clusters, named], without bins beyond the keywords."""
        return np.array(noisy, np.float64).reshape(self.clusters, self.keywords)[:, :named]


def best(believed: NDArray[np.float64], most: int, named: Sequence[str]) -> list[str]:
    """Return the keywords of one cluster with most believed units; equal ones in the order of the set.

    Args:
        believed: float64 [keywords], how many units are believed to have chosen each.
        named: the keywords.
    """
    if not named:
        return []
    ranked = sorted(range(len(named)), key=lambda number: (-believed[number], number))[:most]
    strong = [number for number in ranked if believed[number] >= OF_THE_BEST * max(believed[ranked[0]], 0.0)]
    return [named[number] for number in (strong if len(strong) >= FEWEST else ranked[:FEWEST])]
