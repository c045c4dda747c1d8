"""Random Fourier features of phrases: a phrase as 2D numbers whose products are a Gaussian kernel (PRIVACY §5).

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
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from models_db.values.requests import ExactDecimal
from tasks.mechanisms.core.public_stream import HashStream
from tasks.mechanisms.vectors.fixed_point import GridPoints

STEPS = 2**20
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
        return (self._waves(sums, together) / (STEPS * math.sqrt(self.features))).astype(np.float32)

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
    cosines: NDArray[np.int32] = np.trunc(np.cos(angles) * STEPS).astype(np.int32)
    return cosines
