"""Coreset of a clusterer: released noisy points with noisy weights, and k-means on them, which is post-processing.

The draws of k-means++ (Arthur and Vassilvitskii, SODA 2007) come from a public stream, so that the same released
points always have the same centres.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from models_db.values.canonical_json import Json
from tasks.common.array_encoding import array_of, text_of
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.vectors.fixed_point import Points, Reals

_ROUNDS = 50
_STARTS = 3


@dataclass(frozen=True)
class Coreset:
    """Released points with their weights.

    Attributes:
        points: float32 [m, d]; m may be 0.
        weights: float64 [m], the noisy number of units behind each; not negative.
    """

    points: Points
    weights: Reals

    def to_json(self) -> dict[str, Json]:
        """Return the arrays as base 64 of their little-endian bytes."""
        return {
            "width": int(self.points.shape[1]),
            "points": text_of(self.points, "<f4"),
            "weights": text_of(self.weights, "<f8"),
        }

    @classmethod
    def from_json(cls, stored: Json) -> "Coreset":
        """Read the stored form back.

        Raises:
            KeyError, TypeError, ValueError: the stored form is invalid.
        """
        fields = cast(Mapping[str, Any], stored)
        points = array_of(fields["points"], "<f4")
        weights = array_of(fields["weights"], "<f8")
        return cls(points.reshape(len(weights), fields["width"]), weights)

    def centres(self, count: int) -> Points:
        """Return at most `count` centres, float32 [c, d]: the points themselves where there are no more of them."""
        if len(self.points) <= count:
            return self.points
        return k_means(self.points.astype(np.float64), self.weights, count, "coreset").astype(np.float32)


def k_means(points: Reals, weights: Reals, count: int, label: str) -> Reals:
    """Return at most `count` centres of weighted PUBLIC points, [c, d]: the best of a few starts, deterministic.

    Fewer where there are fewer different points, or fewer with a weight above zero.

    Args:
        points: [m, d], m at least 1.
        weights: [m], not negative; if all are zero, the points count equally.
        label: names the stream of its draws.
    """
    positive_weights = weights if weights.sum() > 0 else np.ones(len(points))
    stream = HashStream(f"k-means {label}")
    solutions = [
        _run_lloyd(points, positive_weights, _spread_out(points, positive_weights, count, stream))
        for _ in range(_STARTS)
    ]
    return min(solutions, key=lambda solution: solution[1])[0]


def _spread_out(points: Reals, weights: Reals, count: int, stream: HashStream) -> Reals:
    """Return the starting centres of k-means++."""
    chosen = [stream.chosen(weights)]
    distances = squared(points, points[chosen])[:, 0]
    while len(chosen) < count and (weights * distances).sum() > 0:
        chosen.append(stream.chosen(weights * distances))
        distances = np.minimum(distances, squared(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _run_lloyd(points: Reals, weights: Reals, centres: Reals) -> tuple[Reals, float]:
    """Run Lloyd's rounds until nothing changes; return the centres and their weighted cost."""
    before = np.full(len(points), -1)
    for _ in range(_ROUNDS):
        nearest = squared(points, centres).argmin(axis=1)
        if (nearest == before).all():
            break
        centres, before = _weighted_means(points, weights, nearest, centres), nearest
    return centres, float((weights * squared(points, centres).min(axis=1)).sum())


def _weighted_means(points: Reals, weights: Reals, nearest: Any, centres: Reals) -> Reals:
    """Return the weighted mean of the points nearest to each centre; a centre without points stays."""
    member = np.zeros((len(centres), len(points)))
    member[nearest, np.arange(len(points))] = weights
    sizes = member.sum(axis=1, keepdims=True)
    return np.where(sizes > 0, member @ points / np.where(sizes > 0, sizes, 1.0), centres)


def squared(points: Reals, centres: Reals) -> Reals:
    """Return squared distances of PUBLIC points, [m, c]; zero where rounding gives less than 1e-12."""
    distances = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)[None]
    return np.asarray(np.where(distances > 1e-12, distances, 0.0), np.float64)
