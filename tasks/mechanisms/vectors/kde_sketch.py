"""Noisy sketches of the density of units' phrases: random Fourier features and `KdeSketches` (DP-KPS; PRIVACY §5).

Random Fourier features of phrases: a phrase as 2D numbers whose products are a Gaussian kernel (PRIVACY §5).

    f(x) = (cos w_1.x, ..., cos w_D.x, sin w_1.x, ..., sin w_D.x) / sqrt(D),    w ~ N(0, 1/h^2 I)

E <f(x), f(y)> = exp(-|x - y|^2 / (2 h^2)) (Rahimi and Recht, NeurIPS 2007, Claim 1), and |f(x)| = 1 whatever x is: each
pair has squares that add up to 1/D. The other form, sqrt(2/D) cos(w.x + b), has half as many numbers and a norm of up
to sqrt(2): a unit would count twice.

Frequencies are PUBLIC: they come out of SHA-256 of a label that names all they depend on. They protect nobody.

A unit's contribution is a function of that unit alone, bit for bit. A product of matrices in floating point is none, so
points and frequencies are integers here: points of norm at most 2^20 steps, frequencies of norm at most 2^27 steps, in
turns. Every sum of some of their products is below 2^52 in size, which float64 holds exactly, in any order. The angle
that comes out is cut to 2^14 directions, whose cosines are integers in a table; nothing else is ever computed. A
direction is off by at most 2e-4.

A unit adds ONE vector of L2 norm at most 1 to the sketch of its label, at each of P positions:

    one position       the paired Fourier features of its phrases, added up and made of length 1
    several positions  at position j the features of its first j phrases together

and a unit with too few phrases adds zero. Sums over units are exact, every coordinate of every label's sum gets
discrete Gaussian noise, and the sum is divided by a PUBLIC number n. Where a phrase lies in the density is its product
with the sketch: whatever is asked of the sketch afterwards, and however often, is post-processing.

Why a sketch of P positions costs P / (2 sigma^2), sigma in units of the norm. Fix everything public: frequencies,
labels, n, the model that makes points. Two neighbouring inputs differ by one unit:

1. its label is a function of that unit alone (a keyed choice among the labels that its documents carry), so it is in
   the sum of ONE label; at each position its vector is a function of that unit alone, bit for bit
   (`tasks.mechanisms.vectors.kde_sketch`), and absent it adds exactly zero;
2. that vector becomes integers of L2 norm at most S = 2^20 steps after all rounding, whatever its features are
   (`tasks.mechanisms.vectors.clipping`), and integers are added exactly. So at each position all labels' sums together,
   one long vector, move by at most S in L2, however many labels and features there are;
3. independent discrete Gaussian noise on every coordinate of it makes a position S^2 / (2 sigma^2)-zCDP (Canonne,
   Kamath, Steinke, arXiv 2004.00010, Theorem 14; OpenDP's map agrees), and rho adds up over positions;
4. division by n comes after the noise, and n is public.

The sketch is Gaussian, not the Laplace one of Wagner, Naaman, Mishra (ICML 2023), which pays for every coordinate.
Replacing a unit moves one sum by up to 2S, or two by S: four times rho covers both.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal
from tasks.accounting import zcdp
from tasks.accounting.rounding import exact, float_below
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.fixed_point import GridPoints
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean

FEATURE_STEPS = 2**20
"""A point of length 1, and a cosine of 1, in steps."""

DIRECTIONS = 2**14
"""Number of quantised angles in a full turn."""

MOST_TOGETHER = 32
"""Phrases of which a sum can be taken: its norm stays below 2^25 steps."""

_COARSE = 2**4
"""Coarse step: in it, squares of sums over MOST_TOGETHER phrases and 2^16 frequencies add up to below 2^63."""

_TURN_BITS = 20
_LONGEST = 2**27
_ANGLE_BITS = _TURN_BITS + 20 - 14  # of a step of a product that are below a direction

Points = NDArray[np.float32]
Steps = NDArray[np.int64]


@dataclass(frozen=True)
class FourierFeatures:
    """The features of one kernel.

    Attributes:
        turns: float64 [D, d], the frequencies in turns, not in radians.
    """

    turns: NDArray[np.float64]

    @classmethod
    def of(cls, width: int, features: int, bandwidth: ExactDecimal) -> "FourierFeatures":
        """Return the public frequencies of D features of points of d numbers, for a kernel of that width."""
        label = f"fourier features {width} {features} {bandwidth:f}"
        drawn = HashStream(label).normals(features, width)
        return cls(drawn / (2 * math.pi * float(bandwidth)))

    @property
    def features(self) -> int:
        """D."""
        return len(self.turns)

    def of_phrases(self, steps: Steps, first: NDArray[np.int64]) -> Points:
        """Return the features of each unit's phrases added up and made of length 1: float32 [units, 2D].

        The mean of L phrases that lie apart has a length of about 1 / sqrt(L): less than what is paid for. Lengths are
        taken of whole numbers, so they are the unit's own bit for bit; what rounding leaves above 1 is clipped where
        rows are added up (`tasks.mechanisms.vectors.kde_sketch`).

        Args:
            steps: int64 [phrases, d], as `on_grid`, those of one unit after the other.
            first: int64 [units], where each unit's phrases begin; every unit has one at least, and MOST_TOGETHER at
                most.
        """
        sums = np.add.reduceat(self._waves(steps, 1), first, axis=0, dtype=np.int64)
        squares = (((sums + _COARSE // 2) // _COARSE) ** 2).sum(axis=1)
        lengths = np.maximum(np.sqrt(squares.astype(np.float64)) * _COARSE, 1.0)
        return np.asarray(sums / lengths[:, None], np.float32)

    def of_together(self, sums: Steps, together: int) -> Points:
        """Return the features of sums of j points over sqrt(j), float32 [n, 2D] of norm at most 1.

        A sum over sqrt(j) is as far from others as one point is, so that one kernel suits every j.

        Args:
            sums: int64 [n, d], exact sums of `together` rows of `on_grid`.
        """
        return (self._waves(sums, together) / (FEATURE_STEPS * math.sqrt(self.features))).astype(np.float32)

    def scaled(self, together: int) -> NDArray[np.float64]:
        """Return the frequencies that `of_together` uses, in turns: [D, d]."""
        return self.turns / math.sqrt(together)

    def _waves(self, sums: Steps, together: int) -> NDArray[np.int32]:
        """Return cosines, then sines, in steps: int32 [n, 2D]."""
        if not 1 <= together <= MOST_TOGETHER:
            raise ValueError(f"features of 1 to {MOST_TOGETHER} phrases together, not of {together}")
        exact = (sums.astype(np.float64) @ _on_turn_grid(self.scaled(together)).T).astype(np.int64)
        directions = (exact >> _ANGLE_BITS) & (DIRECTIONS - 1)
        quarter = (directions - DIRECTIONS // 4) & (DIRECTIONS - 1)
        return np.concatenate([_cosines()[directions], _cosines()[quarter]], axis=1)


def on_grid(points: Points) -> Steps:
    """Points as integers, each row by itself: float32 [n, d] -> int64 [n, d] of L2 norm at most 2^20."""
    return GridPoints.of(points).steps.astype(np.int64)


def _on_turn_grid(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Frequencies as whole numbers, none so long that a product could be rounded."""
    lengths = np.sqrt((turns**2).sum(axis=1, keepdims=True))
    within = turns * np.minimum(1.0, _LONGEST / 2**_TURN_BITS / np.maximum(lengths, 1e-300))
    return np.asarray(np.trunc(within * 2**_TURN_BITS), np.float64)


@cache
def _cosines() -> NDArray[np.int32]:
    """Return the cosine in the middle of each direction, in steps toward zero, so that no pair is longer than 1."""
    angles = (np.arange(DIRECTIONS) + 0.5) * (2 * math.pi / DIRECTIONS)
    cosines: NDArray[np.int32] = np.trunc(np.cos(angles) * FEATURE_STEPS).astype(np.int32)
    return cosines


MECHANISM = "kde"
STEPS, GRID = 2**20, 20
"""The norm of a unit's vector, 1, is 2^20 steps of 2^-20."""

MOST_FEATURES, MOST_LABELS, MOST_POSITIONS = 2**16, 1000, 32
LARGEST = 2**24
"""Numbers of all sketches together at most: some minutes of noise."""

Sums = NDArray[np.int64]
"""int64 [positions, labels, 2D], in steps."""

Chunk = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Chunk of units: the numbers of their labels, int64 [m], and their vectors, float32 [m, positions, 2D]."""


@dataclass(frozen=True)
class KdeSketches:
    """Sketches that are drawn together.

    Attributes:
        features: D, the number of frequencies; a sketch has 2D numbers.
        labels: how many there are; a unit is in the sum of one.
        positions: P, how many vectors a unit adds.
        sigma_steps: the noise's scale on every number of a sum, in steps of 2^-20; a multiple of 2^-20 up to 2^32.
    """

    features: int
    labels: int
    positions: int
    sigma_steps: Fraction

    def __post_init__(self) -> None:
        limits = (MOST_FEATURES, MOST_LABELS, MOST_POSITIONS)
        shape = (self.features, self.labels, self.positions)
        if not all(1 <= size <= most for size, most in zip(shape, limits, strict=True)) or self.size > LARGEST:
            raise _sketch_invalid(*shape)
        _ = self.vectors  # checks the scale

    @property
    def size(self) -> int:
        """Numbers of all sketches together."""
        return self.positions * self.labels * 2 * self.features

    @property
    def vectors(self) -> NoisyMean:
        """Noisy sum of the units' vectors at one position."""
        return NoisyMean(STEPS, self.sigma_steps, GRID)

    @property
    def sigma(self) -> Fraction:
        """Scale of the noise on every number of a sum, and on a phrase's score, before the division by n."""
        return self.vectors.sigma

    def loss(self) -> Amount:
        """Return the charge of all positions, each rounded up to a whole unit."""
        return self.vectors.loss() * self.positions

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` times these sketches of the same units; in dp-accounting's words P Gaussian mechanisms each."""
        if count < 1:
            raise ValueError(f"an event has at least one drawing, not {count}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=count,
            parameters={
                "features": self.features,
                "labels": self.labels,
                "positions": self.positions,
                "sigma_steps": str(self.sigma_steps),
            },
            loss=self.loss() * count,
            dp_event=zcdp.gaussian_event(float_below(self.sigma_steps / STEPS), self.positions * count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "KdeSketches":
        """Return the sketches whose parameters `event` stores.

        Raises:
            KeyError, ValueError, SketchInvalid, NoiseInvalid: they are no sketches'.
        """
        features, labels, positions = (int(event.parameters[name]) for name in ("features", "labels", "positions"))
        return cls(features, labels, positions, exact(event.parameters["sigma_steps"]))

    def sums(self, chunks: Iterable[Chunk]) -> Sums:
        """Return the exact sums, WITHOUT noise; each chunk is read once, and only its part of the sums is kept.

        Rows are clipped by themselves and added as integers, so that how units are cut into chunks, and in which order
        they come, changes no bit.

        Raises:
            ValueError: a chunk that does not fit, or a label that there is not.
        """
        sums = np.zeros((self.positions, self.labels, 2 * self.features), np.int64)
        for label_of, vectors in chunks:
            self._add(sums, label_of, vectors)
        return sums

    def draw(self, sums: Sums, rng: RandomSource) -> Sums:
        """Every number of every sketch with noise of its own, about 10 us a number.

        Raises:
            ValueError: not as many sums as are charged for: an omitted label would reveal that it is empty.
            TypeError: sums in floating point.
        """
        import torch  # pricing a request must not load it

        if sums.shape != (self.positions, self.labels, 2 * self.features):
            raise ValueError(f"sketches of shape {sums.shape} are not {self}")
        if sums.dtype != np.int64:
            raise TypeError(f"noise is added to integers, not to {sums.dtype}")
        drawn: Sums = self.vectors.draw(torch.from_numpy(sums).flatten(), rng).numpy()
        return drawn.reshape(sums.shape)

    def density(self, noisy: Sums, references: int) -> NDArray[np.float64]:
        """Return noisy sums over n, float64 [positions, labels, 2D]; times a phrase's features they are its score.

        Args:
            noisy: what `draw` gives; dividing exact sums protects nobody.
            references: n, the PUBLIC number of units that a label is expected to have, however many there are.
        """
        if references < 1:
            raise ValueError(f"a density is over a public number of units, at least 1, not {references}")
        return np.ldexp(noisy.astype(np.float64), -GRID) / references

    def _add(self, sums: Sums, label_of: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        import torch

        if vectors.shape != (len(label_of), self.positions, 2 * self.features):
            raise ValueError(f"vectors of shape {vectors.shape} for {len(label_of)} units of {self}")
        if (label_of < 0).any() or (label_of >= self.labels).any():
            raise ValueError(f"a unit is in one of {self.labels} labels")
        flat = torch.from_numpy(np.ascontiguousarray(vectors)).reshape(-1, 2 * self.features)
        rows = self.vectors.quantised(flat).numpy().reshape(vectors.shape)
        for label in np.unique(label_of):
            sums[:, label] += rows[label_of == label].sum(axis=0)


def calibrate_kde(rho: int, features: int, labels: int, positions: int) -> KdeSketches:
    """Return the sketches of least noise that cost at most `rho` (units of 1e-12) together, evenly over positions.

    Raises:
        NoiseInvalid: a position would get so little of rho that nothing but noise is affordable.
        SketchInvalid: no such numbers of features, labels and positions.
    """
    sketches = KdeSketches(features, labels, positions, calibrate_mean(rho, max(1, positions), 1).sigma_steps)
    if not sketches.loss().fits(Amount(rho)):
        raise ArithmeticError(f"{sketches} costs more than {rho}")
    return sketches


def _sketch_invalid(features: int, labels: int, positions: int) -> UsageError:
    return UsageError(
        f"There are no sketches of {features} features for {labels} labels at {positions} positions.",
        f"At most {MOST_FEATURES} features, {MOST_LABELS} labels and {MOST_POSITIONS} positions, and"
        f" {LARGEST} numbers together (two a feature).",
        {"features": features, "labels": labels, "positions": positions},
        code="SketchInvalid",
    )
