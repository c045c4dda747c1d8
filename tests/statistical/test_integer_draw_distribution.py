"""The integer draw's distribution: its table's to the last unit, exp(s_v / tau) to a millionth, and OpenDP's.

The draw from given random bytes is compared with the definition, unit by unit, in the unit tests; here are its random
bytes, and OpenDP's draw beside it. Everything wrong by 2 % of the temperature is caught.
"""

import math
from fractions import Fraction

import pytest
import torch

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import integer_table
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism, calibrate
from tasks.mechanisms.tokens.utility_scores import Candidates, candidates, clip_rows, draw_tokens, sum_rows, utilities
from tests.opendp_draw import noisy_max
from tests.statistical.harness import (
    P_THRESHOLD,
    TEMPERATURE_ERROR,
    miss_probability,
    p_value,
    softmax,
    two_sample_p_value,
)

pytestmark = pytest.mark.statistical
CONCERNS = ("tasks/mechanisms/core", "tasks/mechanisms/tokens")

RHO, DRAWS, REFERENCES = 266313968646, 48, 7
DRAW = calibrate(RHO, DRAWS, REFERENCES, "1")
SCALE = REFERENCES * 2.0**20
TRIALS = 400_000
SLOW_TRIALS = 40_000  # what OpenDP draws in some seconds


def nats(*below: float) -> list[int]:
    """Scores so many nats below the best one."""
    return [-round(nat * SCALE) for nat in below]


# Half of the mass on one candidate and half on many that are ln 50 nats worse: there a change of temperature shows.
SCORES = nats(0, 1, 2, 3, 6, *[math.log(50)] * 50)


def of_table(draw: IntegerTableMechanism, row: list[int]) -> dict[int, float]:
    """The exact distribution, from the table's integers."""
    weights = [draw.table.weight(max(0, draw.head_room - score) >> draw.stride) for score in row]
    total = sum(weights)
    return {place: weight / total for place, weight in enumerate(weights)}


def drawn(draw: IntegerTableMechanism, row: list[int], trials: int) -> list[int]:
    many = torch.tensor([row]).expand(trials, len(row))
    found = Candidates(torch.arange(len(row)).expand_as(many), torch.ones_like(many, dtype=torch.bool))
    return draw_tokens(draw, found, many, OS_RANDOM)


@pytest.fixture(scope="module")
def honest() -> list[int]:
    return drawn(DRAW, SCORES, TRIALS)


@pytest.mark.slow
def test_the_tables_own_distribution_is_accepted(honest):
    assert p_value(honest, of_table(DRAW, SCORES)) > P_THRESHOLD


@pytest.mark.parametrize("factor", [1.02, 1 / 1.02])
def test_a_temperature_two_percent_off_is_rejected(honest, factor):
    stated, wrong = of_table(DRAW, SCORES), softmax(SCORES, SCALE * factor)
    assert miss_probability(stated, wrong, TRIALS) < 1e-6
    assert p_value(honest, wrong) < P_THRESHOLD


def test_the_table_is_the_exponential_to_a_millionth():
    ideal = softmax(SCORES, SCALE)
    assert all(abs(probability / ideal[place] - 1) < 2e-6 for place, probability in of_table(DRAW, SCORES).items())


def test_a_whole_vocabulary_loses_almost_nothing_to_the_floor():
    """Tails of a vocabulary lie 20 nats and more below the top: total variation from the ideal below 10^-5."""
    torch.manual_seed(2)
    logits = torch.randn(49152, dtype=torch.float64) * 4
    row = nats(*(logits.max() - logits).tolist())
    table, ideal = of_table(DRAW, row), softmax(row, SCALE)
    assert min(ideal.values()) < 1e-10
    assert sum(abs(table[place] - ideal[place]) for place in ideal) / 2 < 1e-5


def test_numbers_by_remainder_are_caught(monkeypatch):
    """A broken twin: the next power of two's number modulo the sum, where it should be rejected."""

    def by_remainder(bounds: list[int], rng) -> list[int]:
        return [int.from_bytes(rng.random_bytes(16), "big") % 2 ** bound.bit_length() % bound for bound in bounds]

    monkeypatch.setattr(integer_table, "uniform_below_each", by_remainder)
    assert p_value(drawn(DRAW, SCORES, SLOW_TRIALS), of_table(DRAW, SCORES)) < P_THRESHOLD


@pytest.mark.slow
def test_opendp_draws_the_same_distribution(honest):
    """OpenDP's noisy maximum on the very same scores; one that is 5 % too hot or cold would be told apart."""
    opendp = noisy_max(DRAW)
    other = [opendp(SCORES) for _ in range(SLOW_TRIALS)]
    assert two_sample_p_value(honest, other) > P_THRESHOLD
    for factor in (1 + TEMPERATURE_ERROR, 1 / (1 + TEMPERATURE_ERROR)):
        tau = Fraction(factor).limit_denominator(1000)
        wrong = IntegerTableMechanism(DRAW.clip_steps, DRAW.references, tau, DRAW.head_room)
        assert two_sample_p_value(drawn(wrong, SCORES, TRIALS), other) < P_THRESHOLD


@pytest.mark.parametrize("temperature", ["0.2", "1", "5"])
def test_from_logits_to_tokens(temperature):
    """The shipped path draws what the formula says in doubles, and what OpenDP draws; the rows matter in it."""
    torch.manual_seed(3)
    public, private = torch.randn(1, 60) * 2, torch.randn(7, 60) * 2
    rows = torch.zeros(7, dtype=torch.int64)
    draw = calibrate(RHO, DRAWS, REFERENCES, temperature)
    found = candidates(public, 20, draw)
    known, own = found.of_public(public), found.of_rows(private, rows)
    summed = utilities(draw, known, sum_rows(clip_rows(draw, own, known, rows, "log_probability"), rows, 1))
    sample = drawn(draw, summed[0].tolist(), 100_000)

    limit, tau = float(draw.clip_norm), float(temperature)
    difference = own.double().log_softmax(1) - known.double().log_softmax(1)
    logits = known[0].double() + difference.clamp(-limit, limit).sum(0) / REFERENCES
    assert p_value(sample, dict(enumerate((logits / tau).softmax(0).tolist()))) > P_THRESHOLD
    assert p_value(sample, dict(enumerate((known[0].double() / tau).softmax(0).tolist()))) < P_THRESHOLD
    opendp, scores = noisy_max(draw), summed[0].tolist()
    assert two_sample_p_value(sample, [opendp(scores) for _ in range(5_000)]) > P_THRESHOLD


def test_two_hundred_equal_candidates_are_equally_likely():
    assert p_value(drawn(DRAW, [0] * 200, 20_000), softmax([0] * 200, 1)) > P_THRESHOLD


def test_saturated_scores_share_the_top_evenly():
    row = [DRAW.head_room, DRAW.head_room + 1, 2 * DRAW.head_room, DRAW.head_room - round(SCALE)]
    assert p_value(drawn(DRAW, row, 20_000), of_table(DRAW, row)) > P_THRESHOLD
    assert of_table(DRAW, row)[0] == of_table(DRAW, row)[2]


@pytest.mark.parametrize(
    "draw",
    [IntegerTableMechanism(1, 1, Fraction(1, 1000), 0), IntegerTableMechanism(2**31 - 1, 2**20, Fraction(1000), 0)],
)
def test_the_extremes_of_the_scale(draw):
    scale = float(draw.temperature * draw.references * 2**20)
    row = [0, -round(scale), -round(2 * scale)]
    sample = drawn(draw, row, 100_000)
    assert p_value(sample, softmax(row, scale)) > P_THRESHOLD
    assert p_value(sample, softmax(row, scale * 1.1)) < P_THRESHOLD
