"""Empirical Bayes denoising of keyword counts from released centres: post-processing, at no charge.

A count of a keyword in a cluster has noise. But both have a position in the embedding space: the cluster's released
centre and the keyword itself. Keywords near a centre are chosen there more often, and the size of that effect can be
estimated from all cells together, where noise averages out: 23 clusters and 200 keywords are 4,600 cells. So each count
is shrunk towards the expectation for its cell's closeness, by a factor from its noise and the cells' own spread: an
empirical Bayes estimate (Efron and Morris, "Stein's Estimation Rule and its Competitors", JASA 1973). With little noise
it is the count itself; with much, the order is that of closeness among keywords that are chosen at all.

Everything here is a function of released values and public embeddings (PRIVACY §5).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""float64 [clusters, keywords]."""


CELLS_OF_A_BIN = 100
"""Cells of similar closeness per expectation; fewer would be dominated by their noise."""


MOST_BINS = 30


@dataclass(frozen=True)
class Expectation:
    """Expected counts of cells by closeness, as shares of the cluster's units.

    Attributes:
        mean: the expected share, float64 [clusters, keywords].
        spread: the variance of true shares around it.
    """

    mean: Table
    spread: Table

    @classmethod
    def of(cls, counts: Table, sizes: NDArray[np.float64], closeness: Table, variance: float) -> "Expectation":
        """Estimate the expectation from noisy counts.

        Args:
            counts: noisy counts of units.
            sizes: noisy numbers of units of the clusters, float64 [clusters], positive.
            closeness: of each keyword to each cluster's centre.
            variance: of the noise of a count.
        """
        weights = np.broadcast_to(sizes[:, None], counts.shape)
        bin_of = _bins(closeness)
        mean = _isotonic_fit(_sums(bin_of, counts) / _sums(bin_of, weights), _sums(bin_of, weights))[bin_of]
        excess = (counts - weights * mean) ** 2 - variance
        squares = _sums(bin_of, weights**2)
        spread = np.maximum(_isotonic_fit(_sums(bin_of, excess) / squares, squares), 0.0)
        return cls(np.maximum(mean, 0.0), spread[bin_of])


def estimated(counts: Table, sizes: NDArray[np.float64], closeness: Table, variance: float) -> Table:
    """Shrink counts towards their expectation, [clusters, keywords], in units. Arguments as `Expectation.of`."""
    if not counts.size:
        return counts
    expected = Expectation.of(counts, sizes, closeness, variance)
    prior, own = sizes[:, None] * expected.mean, sizes[:, None] ** 2 * expected.spread
    trust = np.divide(own, own + variance, out=np.ones_like(own), where=own + variance > 0)
    return np.asarray(prior + trust * (counts - prior))


def closeness_of(centres: NDArray[np.float32], keywords: NDArray[np.float32]) -> Table:
    """Return cosines [clusters, keywords] of centred centres and centred keywords.

    Args:
        centres: float32 [c, d], released.
        keywords: float32 [m, d], of public or released words.
    """
    return _centre_rows(centres) @ _centre_rows(keywords).T


def _centre_rows(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return rows minus their mean, scaled to length 1; one row alone is only scaled."""
    wide = rows.astype(np.float64)
    if len(wide) > 1:
        wide = wide - wide.mean(axis=0)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0))


def _bins(closeness: Table) -> NDArray[np.int64]:
    """Group cells of similar closeness into bins of equal size, [clusters, keywords], numbered upwards."""
    count = int(np.clip(closeness.size // CELLS_OF_A_BIN, 1, MOST_BINS))
    order = closeness.ravel().argsort(kind="stable").argsort(kind="stable")
    return np.asarray((order * count // closeness.size).reshape(closeness.shape), np.int64)


def _sums(bin_of: NDArray[np.int64], values: Table) -> NDArray[np.float64]:
    return np.asarray(np.bincount(bin_of.ravel(), values.ravel(), int(bin_of.max()) + 1), np.float64)


def _isotonic_fit(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest non-decreasing values: closer cells have no smaller mean and no smaller spread."""
    from sklearn.isotonic import isotonic_regression  # takes a second to load

    return np.asarray(isotonic_regression(values, sample_weight=weights), np.float64)
