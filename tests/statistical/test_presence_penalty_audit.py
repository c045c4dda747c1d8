"""An audit of texts with a presence penalty (PRIVACY §8): shipped loop, engine, sampler, rule and `penalised`.

The attacker is that of `forced_texts`. The claim is the epsilon 1 at DELTA of T charged draws, whatever tokens texts
repeat.

The broken twin penalises, in place of tokens that the text has, the half of all tokens that the private rows together
lift most above the public row: a term of the scores that no clipping bounds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import BudgetMeter, Step
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.presence_penalty import penalised
from tasks.mechanisms.tokens.sampler import TokenMechanism
from tests.statistical.forced_texts import BATCHES, CLAIM, Draws, Trial, calibrated

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

DRAWS, PENALTY = 6, Fraction(1)  # four nats at this temperature


def penalty(session: object, draws: Draws) -> dict[str, Fraction]:
    """`options` of a trial."""
    return {"penalty": PENALTY}


@dataclass
class PenalisesByPrivateRows:
    """The broken twin."""

    rule: InvisibleInkRule

    def next_tokens(self, step: Step) -> list[int]:
        rows = step.private(None)
        means = [rows.values[rows.generation == place].mean(0) for place in range(len(step.numbers))]
        lifted = [mean - public for mean, public in zip(means, step.public, strict=True)]
        disliked = [(each > each.median()).nonzero()[:, 0].tolist() for each in lifted]
        return self.rule.next_tokens(replace(step, penalised=penalised(step.public, disliked, PENALTY)))

    def facts(self, number: int) -> dict[str, float]:
        return {}


def broken(draw: TokenMechanism, meter: BudgetMeter) -> PenalisesByPrivateRows:
    return PenalisesByPrivateRows(InvisibleInkRule(draw, 0, "log_probability", OS_RANDOM, meter))


def repeated(texts: Callable[[], Draws]) -> float:
    """The share of tokens that their text had before."""
    tokens = list(texts().tokens.values())
    return sum(count - 1 for text in tokens for count in Counter(text).values()) / sum(map(len, tokens))


def test_texts_that_are_penalised_for_repetition_stay_below_the_claim() -> None:
    honest, plain = Trial(DRAWS, DRAWS, penalty), Trial(DRAWS, DRAWS)
    draw = calibrated(DRAWS)
    usual = repeated(lambda: plain.run(draw, BATCHES[0], 400))
    assert repeated(lambda: honest.run(draw, BATCHES[0], 400)) < usual / 2  # there is something to audit
    assert honest.audit(1500) < CLAIM


def test_a_penalty_by_private_rows_is_caught() -> None:
    assert Trial(2 * DRAWS, 2 * DRAWS, rule=broken).audit(2000) > CLAIM
