"""Neighbouring inputs on which mechanisms leak nearly all that they may (PRIVACY §8).

Neighbouring inputs on which noisy sketches leak nearly all that they may (PRIVACY §8). A few units whose phrase lies in
one place, with and without one whose phrase lies elsewhere. A reader who knows all but that unit asks how far the
sketches point where its features do.

Neighbouring inputs on which rounds of noisy counts and sums leak nearly all that they may (PRIVACY §8). A few units
that all point one way, with and without one that points the other way and is far too long. Every trial is a bin of its
own, so that thousands of trials are a few rounds. The statistic of a trial adds up all rounds, weighted by their
precision, as an attacker with full knowledge of the other units would.

Neighbouring inputs on which the mechanisms that read model outputs leak nearly all that they may (PRIVACY §8). Audits
run on a batch with one unit and on the same batch without it, through the shipped path from logits to a token or to a
test's answer, or from hidden states to a noisy sum. Every value is artificial; no private text is read. A function
takes the mechanism more than once, so that a test can let another one clip, or score, than the one whose claim is
examined.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.mechanisms.tokens.utility_scores import (
    Candidates,
    clip_rows,
    distances,
    distributions,
    draw_tokens,
    sum_rows,
    utilities,
)
from tasks.mechanisms.vectors.kde_sketch import MOST_LABELS, FourierFeatures, KdeSketches, Sums, on_grid
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds, Rounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean

POINTS = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]], np.float32)
"""Points of the other units' phrase and of the audited unit's phrase: float32 [2, 3], of norm 1."""

_SKETCH_RESOLUTION = 2**10


def sketch_features(features: int) -> NDArray[np.float32]:
    """Return the features of the others' phrase and of the unit's: float32 [2, 2 D], of norm 1."""
    kernel = FourierFeatures.of(POINTS.shape[1], features, Decimal("0.5"))
    return kernel.of_phrases(on_grid(POINTS), np.arange(len(POINTS)))


def sketch_sums(paid: KdeSketches, others: int, present: bool) -> Sums:
    """Return the exact sums of `others` units and of the one in question, all under the first label."""
    rows = sketch_features(paid.features)[[0] * others + [1] * present]
    label_of = np.zeros(len(rows), np.int64)
    return paid.sums([(label_of, np.repeat(rows[:, None], paid.positions, axis=1))])


def observed_sketches(
    paid: KdeSketches, sums: Sums, trials: int, rng: RandomSource, direction: NDArray[np.float64] | None = None
) -> Sequence[int]:
    """Return the projection of all positions' noisy sums on one direction, for each of `trials` draws of label 0.

    Every trial is a label of its own, so that many trials take a few draws.

    Args:
        direction: [2D]; by default that of the unit's features.
    """
    towards = sketch_features(paid.features)[1].astype(np.float64) if direction is None else direction
    values: list[int] = []
    for done in range(0, trials, MOST_LABELS):
        many = replace(paid, labels=min(MOST_LABELS, trials - done))
        noisy = many.draw(np.repeat(sums[:, :1], many.labels, axis=1), rng)
        values += np.rint((noisy @ towards).sum(axis=0) / _SKETCH_RESOLUTION).astype(np.int64).tolist()
    return values


# A unit's vector, spread over all coordinates: what bounds each of them alone does not bound its norm.
LONG_VECTOR = np.array([20.0, -20.0, 20.0, -20.0], np.float32)
_ROUND_RESOLUTION = 1000


def clustered_units(present: bool, others: int, trials: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the units of all trials: points float32 [n, 4], and the trial that each belongs to, int64 [n]."""
    one = np.concatenate([np.tile(-LONG_VECTOR, (others, 1)), LONG_VECTOR[None][: int(present)]])
    return np.tile(one, (trials, 1)), np.repeat(np.arange(trials, dtype=np.int64), len(one))


def observed_rounds(rounds: Rounds, paid: KMeansRounds, present: bool, others: int, trials: int) -> Sequence[int]:
    """Return the sum of the evidence for the unit over all of `paid`'s rounds, one integer per trial.

    Args:
        rounds: the mechanism that draws; tests pass a broken one.
    """
    points, trial_of = clustered_units(present, others, trials)
    precise_counts = 1 / float(paid.count_sigma) ** 2
    precise_sums = float(paid.vectors.clip_norm) / paid.sum_sigma**2
    along = np.sign(LONG_VECTOR).astype(np.float64) / 2  # of length 1
    distances = np.zeros(trials)
    for _ in range(paid.count_rounds):
        distances += rounds.counts(trial_of, trials) * precise_counts
    for _ in range(paid.sum_rounds):
        distances += rounds.sums(points, trial_of, trials) @ along * precise_sums
    rounded: list[int] = np.round(distances * _ROUND_RESOLUTION).astype(np.int64).tolist()
    return rounded


# The unit pushes one of five tokens up and the others down, as far as it can; the public model gives that token half of
# the mass, where a push shows most. The other units say nothing.
PUBLIC = torch.tensor([[math.log(4), 0.0, 0.0, 0.0, 0.0]])
PUSH = torch.tensor([[20.0, -20.0, -20.0, -20.0, -20.0]])

THRESHOLD = Fraction(1)
BELOW = 5
"""The event of a run: this many tests are below the threshold, the next one is not."""

FIRST, SECOND = [30.0, 0.0], [0.0, 30.0]
EVEN = [0.0, 0.0]

# A unit's vector, spread over all coordinates: what bounds each of them alone does not bound its norm.
LONG = torch.tensor([[20.0, -20.0, 20.0, -20.0]])


def worst_case_scores(
    clipping: IntegerTableMechanism,
    scoring: IntegerTableMechanism,
    others: int,
    present: bool,
    public: Tensor = PUBLIC,
    push: Tensor = PUSH,
) -> Tensor:
    """Return the scores of a batch of `others` quiet units, and of the audited one if present: int64 [1, K].

    Args:
        public, push: float32 [1, K]; the unit's logits are their sum.
    """
    rows = torch.cat([public] * others + ([public + push] if present else []))
    generation = torch.zeros(len(rows), dtype=torch.int64)
    clipped = clip_rows(clipping, rows, public, generation, "logit")
    return utilities(scoring, public, sum_rows(clipped, generation, 1))


def worst_case_tokens(
    drawing: IntegerTableMechanism, row: Tensor, draws: int, trials: int, rng: RandomSource, pushed: int = 1
) -> list[int]:
    """Return for each of `trials` texts how many of its `draws` tokens are below `pushed`; scores: int64 [1, K]."""
    many = row.expand(draws * trials, -1)
    candidates = Candidates(torch.arange(many.shape[1]).expand_as(many), torch.ones_like(many, dtype=torch.bool))
    drawn = torch.tensor(draw_tokens(drawing, candidates, many, rng)).reshape(trials, draws)
    counted: list[int] = (drawn < pushed).sum(1).tolist()
    return counted


def distance(public: list[float], rows: list[list[float]], references: int) -> int:
    """Return the distance of logits of two tokens, in units of 1/(s M); an absent row adds nothing."""
    present = torch.tensor(rows or [EVEN])
    every = torch.ones_like(present, dtype=torch.bool)
    sums = distributions(present, every).sum(0, keepdim=True) * bool(rows)
    return distances(references, distributions(torch.tensor([public]), every[:1]), sums)[0]


def worst_case_distances(present: bool, references: int) -> tuple[int, int]:
    """The unit raises the distances of the first tests by M, as others do, and lowers that of the last one by M."""
    unit, others = [FIRST] * present, references - 1
    return distance(EVEN, [FIRST] * others + unit, references), distance(FIRST, [SECOND] * others + unit, references)


def run_length(tests: SparseVector, near: int, far: int, rng: RandomSource, *, noisy: bool = True) -> int:
    """Return how many tests a run has, BELOW of them on `near` and one on `far`; BELOW + 2 if none of them ends it.

    Args:
        noisy: false for a broken run, whose tests have no noise of their own.
    """
    threshold = tests.begin(THRESHOLD, rng)
    for number in range(1, BELOW + 2):
        measured = near if number <= BELOW else far
        below = tests.below(measured, threshold, rng) if noisy else measured < threshold
        if not below:
            return number
    return BELOW + 2


def worst_case_sums(clipping: NoisyMean, others: int, present: bool) -> Tensor:
    """Return the sum of `others` units that point away from LONG, and of the audited one if present: int64 [1, 4].

    Their vectors are far beyond any clip norm near 1.
    """
    rows = torch.cat([-LONG] * others + [LONG] * present + [LONG[:0]])
    return sum_rows(clipping.quantised(rows), torch.zeros(len(rows), dtype=torch.int64), 1)


def project_on_worst_case(sums: Tensor) -> list[int]:
    """Return each vector's projection on LONG, in grid steps times sqrt(4): int64 [trials, 4] -> trials integers."""
    projected: list[int] = (sums * LONG.sign().to(torch.int64)).sum(1).tolist()
    return projected
