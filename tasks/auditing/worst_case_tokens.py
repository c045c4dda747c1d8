"""Neighbouring inputs on which the mechanisms that read model outputs leak nearly all that they may (PRIVACY §8).

Audits run on a batch with one unit and on the same batch without it, through the shipped path from logits to a
token or to a test's answer, or from hidden states to a noisy sum. Every value is artificial; no private text is read. A
function takes the mechanism more than once, so that a test can let another one clip, or score, than the one whose claim
is examined.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.mechanisms.tokens.total_variation import distances, distributions
from tasks.mechanisms.tokens.utility_scores import Candidates, clip_rows, draw_tokens, sum_rows, utilities
from tasks.mechanisms.vectors.noisy_mean import NoisyMean

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
