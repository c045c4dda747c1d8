"""Neighbouring inputs on which rounds of noisy counts and sums leak nearly all that they may (PRIVACY §8).

A few units that all point one way, with and without one that points the other way and is far too long. Every trial is a
bin of its own, so that thousands of trials are a few rounds. The statistic of a trial adds up all rounds, weighted by
their precision, as an attacker with full knowledge of the other units would.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, Rounds

# A unit's vector, spread over all coordinates: what bounds each of them alone does not bound its norm.
LONG = np.array([20.0, -20.0, 20.0, -20.0], np.float32)
_RESOLUTION = 1000


def units_of(present: bool, others: int, trials: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the units of all trials: points float32 [n, 4], and the trial that each belongs to, int64 [n]."""
    one = np.concatenate([np.tile(-LONG, (others, 1)), LONG[None][: int(present)]])
    return np.tile(one, (trials, 1)), np.repeat(np.arange(trials, dtype=np.int64), len(one))


def observed(rounds: Rounds, paid: KMeansRounds, present: bool, others: int, trials: int) -> Sequence[int]:
    """Return the sum of the evidence for the unit over all of `paid`'s rounds, one integer per trial.

    Args:
        rounds: the mechanism that draws; tests pass a broken one.
    """
    points, trial_of = units_of(present, others, trials)
    precise_counts = 1 / float(paid.count_sigma) ** 2
    precise_sums = float(paid.vectors.clip_norm) / paid.sum_sigma**2
    along = np.sign(LONG).astype(np.float64) / 2  # of length 1
    distances = np.zeros(trials)
    for _ in range(paid.count_rounds):
        distances += rounds.counts(trial_of, trials) * precise_counts
    for _ in range(paid.sum_rounds):
        distances += rounds.sums(points, trial_of, trials) @ along * precise_sums
    rounded: list[int] = np.round(distances * _RESOLUTION).astype(np.int64).tolist()
    return rounded
