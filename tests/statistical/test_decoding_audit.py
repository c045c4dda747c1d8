"""An audit of whole texts (PRIVACY §8): shipped loop, engine, rule and sampler, several draws, neighbouring batches.

The attacker knows everything but whether the unit is there, and computes the exact likelihood ratio of each text: the
loop is run again on both batches with the text forced, and the scores of its draws are written down. That is the best
statistic there is. The claim is the epsilon 1 at DELTA of all charged draws; the twin lets the unit in three times.
"""

import pytest

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.mechanisms.tokens import integer_table
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tests.statistical.forced_texts import Batch, decode_batches

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE, DELTA, CLAIM = 0.9999, "0.03", 1.0
DRAWS, ROWS, TRIALS = 6, 2, 4000
OTHER, UNIT = (30, 31, 32, 33), (77, 78, 200, 90, 150)


def audit(draw: IntegerTableMechanism, copies: int = 1, trials: int = TRIALS) -> float:
    batches: tuple[Batch, Batch] = ((OTHER, *[UNIT] * copies), (OTHER,))
    ratios = []
    for batch in batches:
        texts = decode_batches(draw, DRAWS, ROWS, [batch] * trials).tokens
        with_it, without = (decode_batches(draw, DRAWS, ROWS, [each] * trials, texts).logs for each in batches)
        ratios.append([with_it[number] - without[number] for number in sorted(with_it)])
    return epsilon_lower_bound(*ratios, float(DELTA), CONFIDENCE).epsilon


def test_texts_stay_below_the_claim_and_those_of_a_unit_that_is_there_three_times_do_not() -> None:
    draw = integer_table.calibrate(rho_of("1", DELTA), DRAWS, ROWS, "1")
    assert 0.999 < epsilon_of(draw.event(DRAWS).loss.rho, DELTA) <= CLAIM
    # 0 to 0.2 in repeated runs: how much shows in few trials is chance. That a loss can be seen, the twin shows.
    assert audit(draw) < CLAIM
    assert audit(draw, copies=3) > CLAIM
