"""Which released keywords describe which cluster: a noisy histogram over clusters x keywords (URANIA, Algorithm 1).

Every unit that takes part is in one cluster and chooses at most m keywords, so it adds 1 to at most m bins of all
clusters together (`set_histogram`). Empty clusters have bins like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OF_THE_BEST = 0.2
"""A keyword of which fewer units are believed than this share of the cluster's best says little about the cluster."""
FEWEST = 3
"""So many are taken all the same: a description needs something."""


@dataclass(frozen=True)
class ChosenKeywords:
    """Bins of clusters x keywords; a keyword set that came out smaller than was planned leaves the last ones empty.

    Attributes:
        clusters, keywords: how many there are at most, public numbers.
    """

    clusters: int
    keywords: int

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return self.clusters * self.keywords

    def counts(self, cluster_of: NDArray[np.int64], chosen: Sequence[Sequence[int]]) -> list[int]:
        """How many units of each cluster chose each keyword. PRIVATE: for the mechanism alone.

        Args:
            cluster_of: int64 [n], -1 for a unit in none.
            chosen: for each unit the numbers of its keywords; one that it names twice counts once.
        """
        found = np.zeros((self.clusters, self.keywords), np.int64)
        for cluster, keywords in zip(cluster_of.tolist(), chosen, strict=True):
            if cluster >= 0:
                found[cluster, sorted(set(keywords))] += 1
        counts: list[int] = found.ravel().tolist()
        return counts

    def table(self, noisy: Sequence[int], named: int) -> NDArray[np.float64]:
        """Noisy counts of all bins as float64 [clusters, named], without bins that no keyword has."""
        return np.array(noisy, np.float64).reshape(self.clusters, self.keywords)[:, :named]


def best(believed: NDArray[np.float64], most: int, named: Sequence[str]) -> list[str]:
    """The keywords of one cluster of which most units are believed; equal ones in the order of the set.

    Args:
        believed: float64 [keywords], how many units are believed to have chosen each.
        named: the keywords.
    """
    if not named:
        return []
    ranked = sorted(range(len(named)), key=lambda number: (-believed[number], number))[:most]
    told = [number for number in ranked if believed[number] >= OF_THE_BEST * max(believed[ranked[0]], 0.0)]
    return [named[number] for number in (told if len(told) >= FEWEST else ranked[:FEWEST])]
