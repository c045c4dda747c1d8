"""Audits of few-shot generation (Tang et al.): the honest rule stays below its claim, every broken twin exceeds it.

What is audited is what leaves: written tokens. One other unit is sure of the first of sixteen tokens, and so is the
unit itself. The claim is the epsilon <= 1 that the charged rho of a token gives at DELTA. The largest of the noisy sums
shows less than the sums do: the honest true epsilon is about 0.55 by simulation, and audits of the sums themselves are
those of `noisy_mean`. Twins have at least 1.8; bounds lie above the truth with probability at most 1 - CONFIDENCE.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.decoding.loop import DrawMeter, Step
from tasks.inference.engine.session import RowLogits
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.systems.few_shot_generation import CLIP_NORM
from tasks.systems.few_shot_generation.rule import FewShotGenerationRule

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms", "tasks/systems")

CONFIDENCE = 0.9999
DELTA = "0.03"
CLAIM = 1.0
TRIALS = 10_000
TOKENS = 16
HONEST = calibrate_mean(rho_of("1", DELTA), 1, CLIP_NORM)
SURE = [60.0] + [0.0] * (TOKENS - 1)
"""Logits of a row that is sure of the first token."""


class Votes(FewShotGenerationRule):
    """A twin that forgets the softmax, and the norm with it: a row contributes its logits, cut at eight."""

    def contribution(self, logits: Tensor, allowed: Tensor) -> Tensor:
        return (logits.clamp(0, 8) * 2**self.mechanism.grid_exponent).to(torch.int64)


def step(rows: int, texts: int, position: int) -> Step:
    """The same step of as many texts side by side, each with as many rows."""
    public = torch.zeros(texts, TOKENS)
    logits = torch.tensor(SURE).expand(texts * rows, -1)
    generation = torch.arange(texts).repeat_interleave(rows)
    found = RowLogits(logits, generation, torch.ones_like(generation, dtype=torch.bool))
    numbers = tuple(range(texts))
    return Step(numbers, (position,) * texts, public, lambda candidates: found, lambda index: None)


def audit(
    mechanism: NoisyMean = HONEST,
    rule: Callable[..., FewShotGenerationRule] = FewShotGenerationRule,
    others: int = 1,
    rows_of_unit: int = 1,
    draws: int = 1,
    trials: int = TRIALS,
) -> float:
    """The shipped rule, from logits of rows to tokens."""

    def sample(present: bool) -> list[int]:
        rows = others + rows_of_unit * present
        made = rule(mechanism, 1.0, 0, OS_RANDOM, DrawMeter(1, draws, lambda number: None))
        texts = [made.next_tokens(step(rows, trials, position)) for position in range(draws)]
        return [sum(token == 0 for token in text) for text in zip(*texts, strict=True)]

    return epsilon_lower_bound(sample(True), sample(False), float(DELTA), CONFIDENCE).epsilon


def test_the_honest_rule_stays_below_its_claim_and_is_seen() -> None:
    assert 0.999 < epsilon_of(HONEST.event(1).loss.rho, DELTA) <= CLAIM
    assert 0.2 < audit(trials=2 * TRIALS) < CLAIM


def test_a_third_of_the_noise_exceeds_the_claim() -> None:
    """As where the noise of the mean is taken for that of the sum, of three rows."""
    third = Fraction(round(HONEST.sigma_steps * SIGMA_GRID / 3), SIGMA_GRID)
    assert audit(replace(HONEST, sigma_steps=third)) > CLAIM


def test_logits_in_place_of_probabilities_exceed_the_claim() -> None:
    assert audit(rule=Votes, others=0) > CLAIM


def test_a_row_for_each_document_of_a_unit_exceeds_the_claim() -> None:
    assert audit(rows_of_unit=6) > CLAIM


def test_tokens_that_are_not_charged_exceed_the_claim() -> None:
    """Fifteen of sixteen sums are made and not paid for."""
    assert audit(draws=16, trials=3000) > CLAIM
