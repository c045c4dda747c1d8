"""Keywords of clusters: a noisy histogram over clusters x released keywords (URANIA, Algorithm 1).

Every unit that takes part is in one cluster and chooses at most m keywords, so it adds 1 to at most m bins of all
clusters together (`set_histogram`). Empty clusters have bins like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.text.keyword_normalisation import roots
from tasks.values.results import SupportRule


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

    def table(self, noisy: Sequence[int], count: int) -> NDArray[np.float64]:
        """Return noisy counts of all bins as float64 [clusters, count], without bins beyond the keywords."""
        return np.array(noisy, np.float64).reshape(self.clusters, self.keywords)[:, :count]


def supported(
    counts: NDArray[np.float64], ranking: NDArray[np.float64], size: int, rule: SupportRule, keywords: Sequence[str]
) -> list[int]:
    """Return the numbers of the keywords of one cluster whose noisy counts support them, the best first.

    Of keywords that differ in plural endings alone the best stays. Equal ones keep the order of the set.

    Args:
        counts: float64 [keywords], noisy numbers of units that chose each.
        ranking: float64 [keywords], by which they are ordered.
        size: the noisy number of units in the cluster.
    """
    able = [number for number in range(len(keywords)) if rule.holds(int(counts[number]), size)]
    by_words: dict[frozenset[str], int] = {}
    for number in sorted(able, key=lambda number: (-ranking[number], number)):
        by_words.setdefault(roots(keywords[number]), number)
    return list(by_words.values())


def in_turn(closeness: NDArray[np.float64], most: int) -> list[int]:
    """Return the columns that are nearest to the rows, each row's best in turn, without repeats.

    Args:
        closeness: float64 [clusters, words].
        most: how many columns at most.
    """
    ranked = np.argsort(-closeness, axis=1, kind="stable").T
    return list(dict.fromkeys(ranked.ravel().tolist()))[:most]
