"""What clusterers share: coresets of noisy points, public anchors, released centres, and shrinkage of noisy means.

Coreset of a clusterer: released noisy points with noisy weights, and k-means on them, which is post-processing. The
draws of k-means++ (Arthur and Vassilvitskii, SODA 2007) come from a public stream, so that the same released points
always have the same centres.

Shrinkage of noisy cluster means by their known noise: empirical Bayes, post-processing. A noisy sum over w units has
noise of scale sigma / w on every coordinate of the mean. For a small cluster the noise exceeds the signal, and centres
that are mostly noise are nearest to no unit: clusters are lost. But the scale is public and the same for all clusters,
and the excess over it in many of them together is signal:

1. means lie near alpha times the expected position of the cluster, a public direction or an earlier mean; alpha is the
   value from 0 to 1 that fits all clusters best;
2. remainders are treated along public axes, in bands of 48. In each band the variance across clusters, less that of
   the noise, is the variance t of the signal; a remainder r with noise variance v becomes r t / (t + v) (James and
   Stein, 1961; Efron and Morris, JASA 1975);
3. the mean of all clusters is treated in the same way, as one cluster with little noise.

With little noise nothing changes. With much, clusters stay at their expected positions, at the length that fits best.
Where only few directions carry signal, only these move: no number of dimensions has to be chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.common.array_encoding import array_of, text_of
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.vectors.fixed_point import GridPoints, Places, Points, Reals
from tasks.mechanisms.vectors.kmeans_rounds import NO_BIN, KMeansRounds
from tasks.text.public_topics import PUBLIC_TOPICS, digest

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
    distances = squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < count and (weights * distances).sum() > 0:
        chosen.append(stream.chosen(weights * distances))
        distances = np.minimum(distances, squared_distances(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _run_lloyd(points: Reals, weights: Reals, centres: Reals) -> tuple[Reals, float]:
    """Run Lloyd's rounds until nothing changes; return the centres and their weighted cost."""
    before = np.full(len(points), -1)
    for _ in range(_ROUNDS):
        nearest = squared_distances(points, centres).argmin(axis=1)
        if (nearest == before).all():
            break
        centres, before = _weighted_means(points, weights, nearest, centres), nearest
    return centres, float((weights * squared_distances(points, centres).min(axis=1)).sum())


def _weighted_means(points: Reals, weights: Reals, nearest: Any, centres: Reals) -> Reals:
    """Return the weighted mean of the points nearest to each centre; a centre without points stays."""
    member = np.zeros((len(centres), len(points)))
    member[nearest, np.arange(len(points))] = weights
    sizes = member.sum(axis=1, keepdims=True)
    return np.where(sizes > 0, member @ points / np.where(sizes > 0, sizes, 1.0), centres)


def squared_distances(points: Reals, centres: Reals) -> Reals:
    """Return squared distances of PUBLIC points, [m, c]; zero where rounding gives less than 1e-12."""
    distances = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)[None]
    return np.asarray(np.where(distances > 1e-12, distances, 0.0), np.float64)


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


_BAND = 48
_SMALL = 1e-3
"""Least variance of a mean's coordinate: clusters with less noise than that count equally."""


@dataclass(frozen=True)
class NoisyMeans:
    """Released sums and counts of one round.

    Attributes:
        sums: noisy sums, [c, d].
        sizes: the noisy number of units of each sum, at least 1, [c].
        sigma: the noise's scale on every coordinate of a sum.
    """

    sums: Reals
    sizes: Reals
    sigma: float

    def shrunk(self, expected: Reals, axes: Reals) -> Reals:
        """Return the means, [c, d], moved towards `expected`, [c, d], the more the noisier they are.

        Args:
            axes: a public orthonormal basis, [d, d], in columns.
        """
        total = self.sizes.sum()
        middle, middle_expected = self.sums.sum(axis=0) / total, self.sizes @ expected / total
        noise = (self.sigma / self.sizes) ** 2
        own = self.sums / self.sizes[:, None] - middle
        around = _shrink_towards(own, expected - middle_expected, noise, axes)
        noise_of_all = np.array([self.sigma**2 * len(self.sizes) / total**2])
        return np.asarray(around + _shrink_towards(middle[None], middle_expected[None], noise_of_all, axes), np.float64)


def _shrink_towards(means: Reals, expected: Reals, noise: Reals, axes: Reals) -> Reals:
    """Shrink means [c, d] with noise of variance `noise` [c] per coordinate towards alpha times `expected`."""
    weights = 1 / (noise + _SMALL)
    fitted = float(weights @ (means * expected).sum(axis=1))
    alpha = np.clip(fitted / max(float(weights @ (expected**2).sum(axis=1)), 1e-12), 0.0, 1.0)
    rest = (means - alpha * expected) @ axes
    kept = np.concatenate(
        [_shrink_band(rest[:, start : start + _BAND], noise) for start in range(0, rest.shape[1], _BAND)], axis=1
    )
    return np.asarray(alpha * expected + kept @ axes.T, np.float64)


def _shrink_band(rest: Reals, noise: Reals) -> NDArray[np.float64]:
    """Return remainders [c, b] times t / (t + v), t the variance of the signal estimated from all rows."""
    weights = (noise + _SMALL) ** -2
    signal = max(float(weights @ ((rest**2).mean(axis=1) - noise) / weights.sum()), 0.0)
    return rest * (signal / np.maximum(signal + noise, 1e-300))[:, None]


@dataclass(frozen=True)
class IterativeClusterer:
    """Base of clusterers: pays for rounds and reads released points as centres.

    Attributes:
        count: k.
        rounds: of counts and of sums; each clusterer has its own number of both.
    """

    count: int
    rounds: KMeansRounds

    @property
    def event(self) -> PrivacyEvent:
        """The event of all rounds together."""
        return self.rounds.event()

    def centres(self, released: Json, public: Points) -> Centroids:
        """Return at most k centres of the released points."""
        return Centroids.of(Coreset.from_json(released), self.count)


def bins_of(units: GridPoints, centres: Reals) -> Places:
    """Return the centre at which each unit is counted, int64 [n]; a unit whose point is not finite is in no bin."""
    return np.where(units.usable, units.nearest(centres), NO_BIN)


def start_facts() -> Mapping[str, str]:
    """Return the public facts of the built-in topics, from which a clusterer may start."""
    return {"public topics": f"{len(PUBLIC_TOPICS)}, SHA-256 {digest()}"}


def rounds_facts(count: int, rounds: KMeansRounds) -> Mapping[str, str]:
    """Return the public facts of a clustering and its noise."""
    return {
        "clusters k": str(count),
        "count rounds": str(rounds.count_rounds),
        "noise of a cluster's count": f"{float(rounds.count_sigma):.4g}",
        "sum rounds": str(rounds.sum_rounds),
        "noise of a sum's coordinate": f"{rounds.sum_sigma:.4g}",
        "norm of a unit's point": f"{float(rounds.vectors.clip_norm):.4g}",
    }


def within_ball(vectors: Reals) -> Reals:
    """Scale released vectors down to length 1 if they are longer: no point is."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0), np.float64)
