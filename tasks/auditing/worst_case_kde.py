"""Neighbouring inputs on which noisy sketches leak nearly all that they may (PRIVACY §8).

A few units whose phrase lies in one place, with and without one whose phrase lies elsewhere. A reader who knows all but
that unit asks how far the sketches point where its features do.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.kde_sketch import MOST_LABELS, KdeSketches, Sums
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid

POINTS = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]], np.float32)
"""Points of the other units' phrase and of the audited unit's phrase: float32 [2, 3], of norm 1."""

_RESOLUTION = 2**10


def features_of(features: int) -> NDArray[np.float32]:
    """Return the features of the others' phrase and of the unit's: float32 [2, 2 D], of norm 1."""
    kernel = FourierFeatures.of(POINTS.shape[1], features, Decimal("0.5"))
    return kernel.of_phrases(on_grid(POINTS), np.arange(len(POINTS)))


def sums_of(paid: KdeSketches, others: int, present: bool) -> Sums:
    """Return the exact sums of `others` units and of the one in question, all under the first label."""
    rows = features_of(paid.features)[[0] * others + [1] * present]
    label_of = np.zeros(len(rows), np.int64)
    return paid.sums([(label_of, np.repeat(rows[:, None], paid.positions, axis=1))])


def observed(
    paid: KdeSketches, sums: Sums, trials: int, rng: RandomSource, direction: NDArray[np.float64] | None = None
) -> Sequence[int]:
    """Return the projection of all positions' noisy sums on one direction, for each of `trials` draws of label 0.

    Every trial is a label of its own, so that many trials take a few draws.

    Args:
        direction: [2D]; by default that of the unit's features.
    """
    towards = features_of(paid.features)[1].astype(np.float64) if direction is None else direction
    values: list[int] = []
    for done in range(0, trials, MOST_LABELS):
        many = replace(paid, labels=min(MOST_LABELS, trials - done))
        noisy = many.draw(np.repeat(sums[:, :1], many.labels, axis=1), rng)
        values += np.rint((noisy @ towards).sum(axis=0) / _RESOLUTION).astype(np.int64).tolist()
    return values
