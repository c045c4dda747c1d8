"""From logits to tokens: the rules of Amin et al. and private ICL draw what their formulas say."""

from fractions import Fraction

import pytest
import torch

from tasks.decoding.loop import DrawMeter
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.integer_table import WHOLE_TABLE_NATS, IntegerTableMechanism, calibrate, public_sampler
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.systems.private_icl.rule import PrivateIclRule
from tasks.systems.private_prediction.rule import PrivatePredictionRule
from tests.statistical.harness import P_THRESHOLD, p_value
from tests.unit.tasks.systems.fake_step import FakeSteps

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

TOKENS, ROWS, PRESENT = 30, 4, 2
TRIALS = 6_000
RHO = 10**12

torch.manual_seed(5)
PUBLIC = torch.randn(TOKENS) * 2
PRIVATE = torch.randn(TOKENS) * 3 + torch.randn(PRESENT, TOKENS)  # rows that agree by and large
FREE = DrawMeter(1, 10**9, lambda number: None)


def steps() -> FakeSteps:
    return FakeSteps([PUBLIC.tolist()], {0: PRIVATE.tolist()})


def recentred(logits: torch.Tensor, c: float) -> torch.Tensor:
    """max(-c, z - max z + c) in doubles."""
    return (logits.double() - logits.double().max() + c).clamp_min(-c)


def stated(scores: torch.Tensor, temperature: float) -> dict[int, float]:
    return dict(enumerate((scores / temperature).softmax(0).tolist()))


def calibrated(temperature: str) -> IntegerTableMechanism:
    return calibrate(RHO, 3, ROWS, temperature, WHOLE_TABLE_NATS)


def test_private_icl_draws_from_the_blend() -> None:
    draw = calibrated("2")  # a temperature of 1
    rule = PrivateIclRule(draw, 0, OS_RANDOM, FREE)
    fake, c = steps(), float(draw.clip_norm)
    sample = [rule.next_tokens(fake.step(0))[0] for _ in range(TRIALS)]
    mean = torch.stack([recentred(row, c) for row in PRIVATE]).sum(0) / ROWS
    assert 1 < c < 8  # the clip matters
    assert p_value(sample, stated((mean + recentred(PUBLIC, c)) / 2, 1.0)) > P_THRESHOLD
    assert p_value(sample, stated((mean * ROWS / PRESENT + recentred(PUBLIC, c)) / 2, 1.0)) < P_THRESHOLD
    assert p_value(sample, stated(recentred(PUBLIC, c) / 2, 1.0)) < P_THRESHOLD


def amin(threshold: Fraction) -> PrivatePredictionRule:
    """A text with more private tokens than any of these tests draws."""
    return PrivatePredictionRule(
        draw=calibrated("1"),
        public_draw=public_sampler("3/2"),
        tests=SparseVector(Fraction(1, 1024), ROWS),
        threshold=threshold,
        private_tokens=10**9,
        top_k=0,
        rng=OS_RANDOM,
        meter=FREE,
    )


def test_private_tokens_come_from_the_mean_of_the_rows_alone() -> None:
    rule, fake = amin(Fraction(0)), steps()  # whatever is further than nothing is private
    sample = [rule.next_tokens(fake.step(position))[0] for position in range(TRIALS)]
    c = float(rule.draw.clip_norm)
    total = torch.stack([recentred(row, c) for row in PRIVATE]).sum(0)
    assert rule.facts(0) == {"private_tokens": float(TRIALS)}
    assert p_value(sample, stated(total / ROWS, 1.0)) > P_THRESHOLD
    assert p_value(sample, stated(total / PRESENT, 1.0)) < P_THRESHOLD
    assert p_value(sample, stated(total / ROWS, 1.6)) < P_THRESHOLD


def test_public_tokens_come_from_the_public_model_at_their_own_temperature() -> None:
    rule, fake = amin(Fraction(2)), steps()  # nothing is further
    sample = [rule.next_tokens(fake.step(position))[0] for position in range(TRIALS)]
    assert rule.facts(0) == {"private_tokens": 0.0}
    assert p_value(sample, stated(PUBLIC.double(), 1.5)) > P_THRESHOLD
    assert p_value(sample, stated(PUBLIC.double(), 1.3)) < P_THRESHOLD
