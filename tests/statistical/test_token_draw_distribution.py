"""The token draw's distribution: exp(s_v / tau), with a 5 % wrong temperature caught."""

import math
from fractions import Fraction

import pytest
import torch

from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.tokens.exponential_mechanism import ExponentialMechanism, calibrate
from tasks.mechanisms.tokens.utility_scores import candidates, clip_rows, sum_rows, utilities
from tests.statistical.harness import P_THRESHOLD, TEMPERATURE_ERROR, miss_probability, p_value, softmax

pytestmark = pytest.mark.statistical
CONCERNS = ("tasks/mechanisms/core", "tasks/mechanisms/tokens")

TRIALS = 40_000
DRAW = calibrate(266313968646, 48, 7, "1")


def nats(*below: float) -> list[int]:
    """Scores so many nats below the best one."""
    return [-round(nat * DRAW.scale) for nat in below]


# Half of the mass on one candidate and half on many that are ln 50 nats worse: there a change of temperature
# shows most. A few others, to see the whole curve.
SCORES = nats(0, 1, 2, 3, 6, *[math.log(50)] * 50)
STATED = softmax(SCORES, DRAW.scale)
FACTORS = [1 + TEMPERATURE_ERROR, 1 / (1 + TEMPERATURE_ERROR)]


def drawn(draw: ExponentialMechanism, row: list[int], trials: int) -> list[int]:
    return [draw.draw(row, OS_RANDOM) for _ in range(trials)]


@pytest.fixture(scope="module")
def honest() -> list[int]:
    return drawn(DRAW, SCORES, TRIALS)


@pytest.mark.slow
def test_the_stated_distribution_is_accepted(honest):
    assert p_value(honest, STATED) > P_THRESHOLD


@pytest.mark.slow
@pytest.mark.parametrize("factor", FACTORS)
def test_a_temperature_five_percent_off_is_rejected(honest, factor):
    wrong = softmax(SCORES, DRAW.scale * factor)
    assert miss_probability(STATED, wrong, TRIALS) < 1e-6
    assert p_value(honest, wrong) < P_THRESHOLD


@pytest.mark.slow
def test_a_sampler_with_a_wrong_temperature_is_caught():
    wrong = ExponentialMechanism(DRAW.clip_steps, DRAW.references, DRAW.temperature * Fraction(21, 20))
    assert miss_probability(softmax(SCORES, wrong.scale), STATED, TRIALS) < 1e-6
    assert p_value(drawn(wrong, SCORES, TRIALS), STATED) < P_THRESHOLD


def test_from_logits_to_tokens():
    """The drawn distribution is the one computed from the formula in doubles, and the rows matter in it."""
    torch.manual_seed(3)
    public, private = torch.randn(1, 60) * 2, torch.randn(7, 60) * 2
    found = candidates(public, 20, DRAW)
    rows = torch.zeros(7, dtype=torch.int64)
    known, own = found.of_public(public), found.of_rows(private, rows)
    clipped = clip_rows(DRAW, own, known, rows, "log_probability")
    summed = utilities(DRAW, known, sum_rows(clipped, rows, 1))[0].tolist()

    limit = float(DRAW.clip_norm)
    difference = own.double().log_softmax(1) - known.double().log_softmax(1)
    logits = known[0].double() + difference.clamp(-limit, limit).sum(0) / DRAW.references
    wanted = dict(enumerate(logits.softmax(0).tolist()))
    without_rows = dict(enumerate(known[0].double().softmax(0).tolist()))

    sample = drawn(DRAW, summed, 10_000)
    assert p_value(sample, wanted) > P_THRESHOLD
    assert p_value(sample, without_rows) < P_THRESHOLD


@pytest.mark.slow_except("4503599627370496")
@pytest.mark.parametrize("shift", [-(2**52), 2**52])
def test_a_public_shift_changes_nothing(shift):
    moved = [score + shift for score in SCORES]
    assert p_value(drawn(DRAW, moved, 5_000), STATED) > P_THRESHOLD


@pytest.mark.slow
def test_two_hundred_equal_candidates_are_equally_likely():
    assert p_value(drawn(DRAW, [17] * 200, 5_000), softmax([0] * 200, 1)) > P_THRESHOLD


@pytest.mark.parametrize(
    "draw", [ExponentialMechanism(1, 1, Fraction(1, 1000)), ExponentialMechanism(2**31 - 1, 2**20, Fraction(1000))]
)
def test_the_extremes_of_the_scale(draw):
    row = [0, -round(draw.scale), -round(2 * draw.scale)]
    assert p_value(drawn(draw, row, 5_000), softmax(row, draw.scale)) > P_THRESHOLD


def test_the_test_mode_draws_the_same_distribution():
    rng = DeterministicRandom("chi-square")
    sample = [DRAW.draw(SCORES, rng) for _ in range(TRIALS)]
    assert p_value(sample, STATED) > P_THRESHOLD
    assert p_value(sample, softmax(SCORES, DRAW.scale * 1.05)) < P_THRESHOLD


@pytest.mark.slow
def test_a_temperature_two_percent_off_is_rejected():
    sample, wrong = drawn(DRAW, SCORES, 250_000), softmax(SCORES, DRAW.scale * 1.02)
    assert miss_probability(STATED, wrong, 250_000) < 1e-6
    assert p_value(sample, STATED) > P_THRESHOLD
    assert p_value(sample, wrong) < P_THRESHOLD
