"""K-means with an ordinary generator, for public points and for figures; without privacy."""

import numpy as np
from numpy.typing import NDArray

from tasks.text.public_models import Points

_ROUNDS = 100
_NOISE = 1e-24  # as a share of the points' size: equal points differ from their mean by rounding


def k_means(points: Points, count: int, seed: int) -> Points:
    """Return `count` centres of `points`, [count, d]: Lloyd's rounds until none changes, 100 at most.

    The start is k-means++ (Arthur and Vassilvitskii, SODA 2007). Where there are fewer different points than centres,
    some centres are the same and the later ones have no point.
    """
    generator = np.random.default_rng(seed)
    centres = _spread_out(points, count, generator)
    before = np.full(len(points), -1)
    for _ in range(_ROUNDS):
        nearest = nearest_centre(points, centres)
        if (nearest == before).all():
            break
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        sizes = np.bincount(nearest, minlength=count)
        filled = sizes > 0
        centres[filled] = sums[filled] / sizes[filled, None]
        before = nearest
    return centres


def nearest_centre(points: Points, centres: Points) -> NDArray[np.int64]:
    """Return int64 [n]: the first of the nearest centres of each point."""
    return np.asarray(_squared(points, centres).argmin(1), np.int64)


def principal(points: Points, share: float) -> Points:
    """Return `points` along the fewest directions that hold `share` of their variance, at least one: [n, width]."""
    centred = points - points.mean(0)
    left_vectors, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    variances = sizes**2
    if variances.sum() <= _NOISE * (points**2).sum():
        return np.zeros((len(points), 1))
    width = int(np.argmax(variances.cumsum() >= share * variances.sum())) + 1
    return np.asarray(left_vectors[:, :width] * sizes[:width], np.float64)


def _spread_out(points: Points, count: int, generator: np.random.Generator) -> Points:
    chosen = [int(generator.integers(len(points)))]
    distances = _squared(points, points[chosen])[:, 0]
    while len(chosen) < count:
        total = distances.sum()
        weights = distances / total if total > 0 else None
        chosen.append(int(generator.choice(len(points), p=weights)))
        distances = np.minimum(distances, _squared(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _squared(points: Points, centres: Points) -> Points:
    """Return squared distances [n, k], never negative."""
    products = points @ centres.T
    return np.asarray(
        np.maximum((points**2).sum(1)[:, None] - 2 * products + (centres**2).sum(1)[None], 0.0), np.float64
    )
