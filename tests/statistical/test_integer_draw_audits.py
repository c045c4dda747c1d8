"""Audits of the integer draw (PRIVACY §8): below its claim as it is shipped, above it in every broken twin.

As in `test_privacy_audits`, where the honest draw is, a text of two tokens is drawn many times with one unit and
without it, and a lower bound on epsilon is compared with what the charged rho gives at DELTA. All texts are drawn at
once, so there are more of them. False alarms are as rare: the bound is too high with probability 1 - CONFIDENCE, and
the truth is about 0.8.

No twin takes its top U from the clipped private scores: that U moves by at most S itself, so two tokens still move
apart by at most 2S, and nothing is lost. One that takes it from the UNCLIPPED scores loses everything.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import rho_of
from tasks.auditing.audit import DELTA, DRAWS, EPSILON, REFERENCES
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.auditing.worst_cases import PUBLIC, PUSH, worst_case_scores, worst_case_tokens
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.integer_table import (
    LARGEST_CLIP_STEPS,
    IntegerTableMechanism,
    WeightTable,
    calibrate,
    weight_table,
)

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE = 0.9999
RHO = rho_of(EPSILON, DELTA)
CLAIM = 1.0
TRIALS = 30_000
HONEST = calibrate(RHO, DRAWS, REFERENCES, "1")


def summed(
    clipping: IntegerTableMechanism, scoring: IntegerTableMechanism, public: Tensor, push: Tensor, present: bool
) -> Tensor:
    """The scores of a batch of three quiet units, and of the one in question where it is present."""
    return worst_case_scores(clipping, scoring, REFERENCES - 1, present, public, push)


def audit(drawing: IntegerTableMechanism, row: Callable[[bool], Tensor], pushed: int = 1) -> float:
    """The lower bound from how often one of the first `pushed` tokens is drawn, with the unit and without it."""

    def sample(present: bool) -> list[int]:
        return worst_case_tokens(drawing, row(present), DRAWS, TRIALS, OS_RANDOM, pushed)

    return epsilon_lower_bound(sample(True), sample(False), float(DELTA), CONFIDENCE).epsilon


def test_a_charge_for_one_direction_only_exceeds_the_claim():
    """eta = A where it is 2A: the same rho then buys twice the clip norm."""
    broken = replace(HONEST, clip_steps=2 * HONEST.clip_steps)
    assert broken.fall**2 / 8 <= HONEST.fall**2 / 2
    assert audit(HONEST, lambda present: summed(broken, HONEST, PUBLIC, PUSH, present)) > CLAIM


def test_a_denominator_off_by_two_exceeds_the_claim():
    broken = replace(HONEST, references=REFERENCES - 2)
    assert audit(broken, lambda present: summed(HONEST, broken, PUBLIC, PUSH, present)) > CLAIM


def test_a_draw_without_clipping_exceeds_the_claim():
    broken = replace(HONEST, clip_steps=LARGEST_CLIP_STEPS)
    assert audit(HONEST, lambda present: summed(broken, HONEST, PUBLIC, PUSH, present)) > CLAIM


class WithoutFloor(IntegerTableMechanism):
    """Ten bits of weights that end in nothing at 16, the fall of C / (B tau) claimed all the same."""

    @property
    def table(self) -> WeightTable:
        short = weight_table(Fraction(1, 2**18), 10, 4)
        shift = (*short.shift[:-1], 62)
        return replace(short, high=(*short.high[:-1], 1), shift=shift, floor=0)

    @property
    def stride(self) -> int:
        return 4


# Four hundred tokens with almost all of the mass, just on the side where the short table ends without the unit's push.
EDGE = torch.tensor([[-4.29] * 400 + [0.0]])
EDGE_PUSH = torch.tensor([[20.0] * 400 + [-20.0]])


def test_a_table_without_a_floor_exceeds_the_claim():
    """With the unit, tokens can be drawn that cannot be drawn without it: no epsilon at all."""
    assert audit(HONEST, lambda present: summed(HONEST, HONEST, EDGE, EDGE_PUSH, present), 400) < CLAIM
    fields = (HONEST.clip_steps, REFERENCES, Fraction(1), 0)
    broken = WithoutFloor(*fields)
    assert audit(broken, lambda present: summed(HONEST, broken, EDGE, EDGE_PUSH, present), 400) > CLAIM


def test_a_top_from_unclipped_private_scores_exceeds_the_claim():
    """ "So that nothing saturates": one row's raw logits push everybody to the floor."""
    push = 10 * PUSH

    def row(present: bool) -> Tensor:
        top = round(float(push.max()) * 2**20) if present else 0
        return summed(HONEST, HONEST, PUBLIC, push, present) - top

    assert audit(HONEST, row) > CLAIM
