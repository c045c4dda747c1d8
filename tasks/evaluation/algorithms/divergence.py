"""Divergence of two histograms: the area under their frontier, which is MAUVE of two quantised samples.

Pillutla et al., "MAUVE: Measuring the Gap Between Neural Text and Human Text using Divergence Frontiers", NeurIPS 2021,
section 2: for mixtures R = w P + (1 - w) Q, the points (exp(-c KL(Q|R)), exp(-c KL(P|R))). The grid of w and its ends
are those of the package mauve-text, so that both give the same figure for the same histograms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALING = 0.9
"""The c of the paper: InvisibleInk's, whose space is one of sentences too; the package's default 5 is for GPT-2's."""

_MIXTURES = np.linspace(1e-6, 1 - 1e-6, 25)

Histogram = NDArray[np.float64]
"""float64 [..., k], not negative, each of sum 1."""


def frontier_area(p: Histogram, q: Histogram, scaling: float = SCALING) -> NDArray[np.float64]:
    """MAUVE of histograms [..., k] and [..., k], [...]: 1 if they are equal, near 0 if they share nothing."""
    weights = _MIXTURES.reshape(-1, *[1] * p.ndim)
    mixed = weights * p + (1 - weights) * q
    x, y = (np.exp(-scaling * _kl(side, mixed)) for side in (q, p))
    ends = np.ones((1, *p.shape[:-1])), np.zeros((1, *p.shape[:-1]))
    x, y = np.concatenate([ends[0], x, ends[1]]), np.concatenate([ends[1], y, ends[0]])
    # From (1, 0) to (0, 1): x falls and y rises along the frontier, so no points need sorting.
    return np.asarray(((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2).sum(0), np.float64)


def smoothed(counts: NDArray[np.int64]) -> Histogram:
    """Histograms of counts [..., k] with half an item added everywhere (Krichevsky and Trofimov, 1981).

    With it the area is MAUVE* of Pillutla et al., JMLR 24, 2023, section 5, which small samples bias less.
    """
    return plain(counts + 0.5)


def plain(counts: NDArray[Any]) -> Histogram:
    """Histograms of counts [..., k], each with at least one item."""
    return np.asarray(counts / counts.sum(-1, keepdims=True), np.float64)


def _kl(p: Histogram, r: Histogram) -> NDArray[np.float64]:
    """KL(p | r) in nats over the last axis; r is a mixture that holds p."""
    held = p > 0
    ratio = np.divide(p, r, out=np.ones(np.broadcast_shapes(p.shape, r.shape)), where=held)
    return np.asarray((p * np.log(ratio)).sum(-1), np.float64)
