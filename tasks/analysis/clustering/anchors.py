"""Public anchor points of a clusterer, made usable from any input: none, equal or not finite."""

import numpy as np

from tasks.analysis.clustering.coreset import k_means
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.vectors.fixed_point import Points, Reals

MOST_ANCHORS = 1024


def directions_of(public: Points | Reals) -> Reals:
    """Return the different directions among PUBLIC points, float64 [m, d] of length 1, in their order; m may be 0.

    Rows that are not finite, or shorter than a thousandth, are left out.
    """
    rows = public.astype(np.float64)[np.isfinite(public).all(axis=1)]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = (rows / np.where(lengths > 0, lengths, 1.0))[lengths[:, 0] >= 1e-3]
    _, first = np.unique(np.round(units, 6), axis=0, return_index=True)
    return np.asarray(units[np.sort(first)], np.float64)


def spread(public: Points, count: int) -> Reals:
    """Return exactly `count` directions that PUBLIC points are near to: float64 [count, d].

    Centres of k-means on the points; where the points have fewer directions, public random ones fill up.
    """
    units = directions_of(public)
    chosen = directions_of(k_means(units, np.ones(len(units)), count, "public")) if len(units) > count else units
    random_directions = HashStream("directions").directions(count - len(chosen), public.shape[1])
    return np.concatenate([chosen, random_directions])


def anchors_of(public: Points, count: int) -> Reals:
    """Return the directions of all PUBLIC points, up to 1024; at least `count` of them: float64 [a, d]."""
    units = directions_of(public)
    return spread(public, max(count, min(len(units), MOST_ANCHORS)))


def axes_of(public: Points) -> Reals:
    """Return an orthonormal basis, directions in which PUBLIC points differ most first: float64 [d, d], in columns."""
    units = directions_of(public)
    if not len(units):
        return np.eye(public.shape[1])
    # From the covariance, not from the points: a basis of the whole space even for few points.
    centred = units - units.mean(axis=0)
    return np.asarray(np.linalg.eigh(centred.T @ centred)[1][:, ::-1], np.float64)
