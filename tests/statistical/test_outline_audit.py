"""An audit of texts with an outline (PRIVACY §8): shipped loop, engine, sampler, rule, `FirstDraws` and constraint.

The attacker of whole texts is that of `forced_texts`; that of the rule meets the worst rows there are. The claim is the
epsilon 1 at DELTA of all draws of a text together. Of that the outline has `SHARE`. Outline and sections read the same
batch, so both are in the likelihood of a text.

The broken twins: in one the outline is charged as if it were one draw, beside sections that have the whole budget; in
one the outline and each section have the whole budget, as if they were texts of batches of their own; in one the
outline is hardly clipped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import torch

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import BudgetMeter, DrawMeter, Step
from tasks.inference.engine.session import RowLogits, Session
from tasks.inference.structured_output.outline_constraint import OutlineConstraint
from tasks.inference.structured_output.outline_parameters import Outline
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import sampler
from tasks.mechanisms.tokens.first_draws import FirstDraws, calibrate_both
from tasks.mechanisms.tokens.sampler import TokenMechanism
from tests.statistical.forced_texts import (
    BATCHES,
    CLAIM,
    CONFIDENCE,
    DELTA,
    ROWS,
    TEMPERATURE,
    Draws,
    Texts,
    Trial,
    calibrated,
    watching,
)
from tests.tiny_model import tiny_model

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

OUTLINE, SHARE = Outline(sections=4, tokens=8), Fraction(3, 4)
OF_A_SECTION = 2
LATER = OUTLINE.sections * OF_A_SECTION
BUDGET = rho_of("1", DELTA)
Mechanisms = tuple[TokenMechanism, TokenMechanism]
"""Of the outline's draws, and of the others."""


@dataclass(frozen=True)
class Watching(InvisibleInkRule):
    """The rule; says whose tokens each of its mechanisms draws, because one step may have both."""

    seen: list[Draws] = field(default_factory=list)

    def _drawn(self, draw: TokenMechanism, step: Step) -> list[int]:
        self.seen[-1].numbers = step.numbers
        return super()._drawn(draw, step)


def trial(mechanisms: Callable[[], Mechanisms]) -> Trial:
    rules: list[Watching] = []
    outline, later = mechanisms()

    def rule(draw: TokenMechanism, meter: BudgetMeter) -> InvisibleInkRule:
        first = FirstDraws(OUTLINE.tokens, outline)
        rules.append(Watching(later, 0, "log_probability", OS_RANDOM, meter, first))
        return rules[-1]

    def options(session: Session, draws: Draws) -> Mapping[str, Any]:
        model = tiny_model()
        rules[-1].seen.append(draws)
        return {
            "constraint": OutlineConstraint(
                OUTLINE,
                model.tokenizer,
                draws=OUTLINE.tokens + LATER,
                vocabulary=model.vocabulary,
                stop_tokens=model.stop_tokens,
            )
        }

    draws = OUTLINE.tokens + LATER
    return Trial(draws, draws + OUTLINE.uncharged_tokens, options, rule)


def honest() -> Mechanisms:
    return calibrate_both("table", BUDGET, SHARE, OUTLINE.tokens, LATER, ROWS, TEMPERATURE)


def uncounted_outline() -> Mechanisms:
    """A broken twin: nobody counts the draws of the outline, and the sections have the whole budget beside it."""
    outline = sampler.calibrate("table", BUDGET, 1, ROWS, TEMPERATURE)
    return outline, sampler.calibrate("table", BUDGET, LATER, ROWS, TEMPERATURE)


def whole_budget_for_each() -> Mechanisms:
    """A broken twin: each section has the whole budget, as the outline has."""
    outline = sampler.calibrate("table", BUDGET, OUTLINE.tokens, ROWS, TEMPERATURE)
    return outline, sampler.calibrate("table", BUDGET, OF_A_SECTION, ROWS, TEMPERATURE)


def unclipped_outline() -> Mechanisms:
    """A broken twin: an outline that is hardly clipped, for a hundred times the budget."""
    outline = sampler.calibrate("table", 100 * BUDGET, OUTLINE.tokens, ROWS, TEMPERATURE)
    return outline, uncounted_outline()[1]


def worst_case(mechanisms: Mechanisms, texts: int) -> float:
    """A lower bound on epsilon of the rule, of so many texts of each of two batches at the worst rows there are.

    Two tokens are equally likely to the public model at each step; the unit's row is beyond the clip norm, for one of
    them and against the other. All texts take each of their steps together.
    """
    outline, later = mechanisms
    draws = OUTLINE.tokens + LATER
    row = torch.tensor([[50.0, -50.0]]).expand(texts, 2)

    def run(with_unit: bool, forced: Texts | None = None) -> Draws:
        watch = Draws(forced)
        meter = DrawMeter(draws, draws, lambda number: None)
        rule = InvisibleInkRule(later, 0, "logit", OS_RANDOM, meter, FirstDraws(OUTLINE.tokens, outline))
        rows = row if with_unit else row[:0]
        found = RowLogits(rows, torch.arange(len(rows)), torch.ones(len(rows), dtype=torch.bool))
        public = torch.zeros((texts, 2))
        with watching(watch):
            for position in range(draws):
                step = Step(tuple(range(texts)), (position,) * texts, public, public, lambda _: found, lambda _: None)
                watch.numbers = step.numbers
                rule.next_tokens(step)
        return watch

    ratios = []
    for with_unit in (True, False):
        drawn = dict(run(with_unit).tokens)
        one, other = (run(each, drawn).likelihoods(drawn) for each in (True, False))
        ratios.append([one[number] - other[number] for number in sorted(drawn)])
    return epsilon_lower_bound(*ratios, float(DELTA), CONFIDENCE).epsilon


def test_outline_and_sections_together_cost_the_claim() -> None:
    outline, sections = honest()
    cost = outline.event(OUTLINE.tokens).loss.rho + sections.event(LATER).loss.rho
    assert 0.99 < epsilon_of(cost, DELTA) <= CLAIM
    assert outline.clip_norm > Fraction(3, 2) * sections.clip_norm  # so who mixes them up would be noticed
    assert worst_case(honest(), 6000) < CLAIM


@pytest.mark.parametrize("twin", [uncounted_outline, whole_budget_for_each])
def test_twins_of_the_charge_are_caught(twin: Callable[[], Mechanisms]) -> None:
    assert worst_case(twin(), 6000) > CLAIM


def test_whole_texts_stay_below_the_claim() -> None:
    audited = trial(honest)
    texts = audited.run(calibrated(audited.draws), BATCHES[0], 100).tokens.values()
    assert sum(len(tokens) > OUTLINE.tokens for tokens in texts) > 90  # there is something to audit
    assert audited.audit(400) < CLAIM


def test_whole_texts_with_an_outline_that_is_hardly_clipped_are_caught() -> None:
    assert trial(unclipped_outline).audit(400) > CLAIM
