"""Which released keywords describe which cluster: a noisy histogram over clusters x keywords (URANIA, Algorithm 1).

Every unit that takes part is in one cluster and chooses at most m keywords, so it adds 1 to at most m bins of all
clusters together (`set_histogram`). Empty clusters have bins like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NOISE_ALONE = 1.0
"""A keyword whose count is not above this many standard deviations of the noise is likelier to be noise than not."""
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

    def best(self, noisy: Sequence[int], cluster: int, most: int, deviation: float, named: Sequence[str]) -> list[str]:
        """The most frequent keywords of a cluster, by noisy counts; equal ones in the order of the set.

        Args:
            noisy: of all bins.
            deviation: of the noise, in units.
            named: the keywords, at most as many as there are bins for.
        """
        own = noisy[cluster * self.keywords : cluster * self.keywords + len(named)]
        ranked = sorted(range(len(own)), key=lambda number: (-own[number], number))[:most]
        told = [number for number in ranked if own[number] > NOISE_ALONE * deviation]
        return [named[number] for number in (told if len(told) >= FEWEST else ranked[:FEWEST])]
