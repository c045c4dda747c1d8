"""Audits of the promise (PRIVACY §8): the honest mechanism stays below its claim, every broken twin exceeds it.

Each audit runs a mechanism on two neighbouring inputs many times, and compares a lower bound on epsilon with the
claim, the epsilon <= 1 that the charged rho gives at DELTA. The bound is above the true epsilon with probability at
most 1 - CONFIDENCE, and the true epsilon of the honest mechanisms is about 0.8 (exact binomial): a false alarm is
rarer still. The twins' true epsilon is at least 1.24, and their numbers of trials put the bound seven standard
deviations above the claim.
"""

import math
from fractions import Fraction

import opendp.prelude as dp
import pytest
import torch

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.attacks.epsilon_lower_bound import epsilon_lower_bound
from tasks.mechanisms.gaussian import NoisyCount, calibrate_count
from tasks.mechanisms.rng import OS_RANDOM
from tasks.mechanisms.token_draw import LARGEST_CLIP_STEPS, TokenDraw, calibrate
from tasks.mechanisms.token_scores import Candidates, clip_rows, draw_tokens, scores, sum_rows

pytestmark = pytest.mark.statistical

CONFIDENCE = 0.9999
DELTA = "0.03"
RHO = rho_of("1", DELTA)
CLAIM = 1.0
TRIALS = 10_000

# A text of two tokens. The unit in question pushes one of five tokens up and the others down, as far as it can; the
# public model gives that token half of the mass, where a push shows most. The other units say nothing.
DRAWS = 2
PUBLIC = torch.tensor([[math.log(4), 0.0, 0.0, 0.0, 0.0]])
PUSH = torch.tensor([[20.0, -20.0, -20.0, -20.0, -20.0]])
EVERY_TOKEN = Candidates(torch.arange(5)[None], torch.ones(1, 5, dtype=torch.bool))


def summed(
    clipping: TokenDraw, scoring: TokenDraw, references: int, present: bool, public: torch.Tensor = PUBLIC
) -> torch.Tensor:
    """The scores of a batch of `references` - 1 quiet units, and of the one in question where it is present."""
    rows = torch.cat([public] * (references - 1) + ([public + PUSH] if present else []))
    generation = torch.zeros(len(rows), dtype=torch.int64)
    clipped = clip_rows(clipping, rows, public, generation, "logit")
    return scores(scoring, public, sum_rows(clipped, generation, 1))


def audit(sample) -> float:
    """The lower bound from how often the pushed token is drawn, with the unit and without it."""
    return epsilon_lower_bound(sample(True), sample(False), float(DELTA), CONFIDENCE).epsilon


def token_audit(clipping: TokenDraw, drawing: TokenDraw, references: int, trials: int = TRIALS) -> float:
    """The shipped path from logits to tokens; a twin clips, or scores and draws, with other parameters."""

    def sample(present: bool) -> list[int]:
        row = summed(clipping, drawing, references, present)
        texts = ((draw_tokens(drawing, EVERY_TOKEN, row, OS_RANDOM)[0] for _ in range(DRAWS)) for _ in range(trials))
        return [sum(token == 0 for token in text) for text in texts]

    return audit(sample)


def claimed(references: int) -> TokenDraw:
    """The honest draw, whose charge is the claim's."""
    draw = calibrate(RHO, DRAWS, references, "1")
    assert 0.999 < epsilon_of(draw.event(DRAWS).loss.rho, DELTA) <= CLAIM
    return draw


def test_the_honest_token_draw_stays_below_its_claim():
    honest = claimed(4)
    bound = token_audit(honest, honest, 4)
    # Not by proving nothing: the audit sees most of what there is to see.
    assert 0.25 < bound < CLAIM


def test_a_denominator_off_by_two_exceeds_the_claim():
    """Every row weighs 1/(B-2)."""
    honest = claimed(4)
    broken = TokenDraw(honest.clip_steps, 2, honest.temperature)
    assert token_audit(honest, broken, 4) > CLAIM


def test_a_draw_without_clipping_exceeds_the_claim():
    honest = claimed(4)
    broken = TokenDraw(LARGEST_CLIP_STEPS, 4, honest.temperature)
    assert token_audit(broken, honest, 4, 2000) > CLAIM


def test_a_monotonic_sampler_exceeds_the_claim():
    """OpenDP's map for monotonic scores states the same rho at half the noise."""
    honest = claimed(4)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    broken = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=honest.scale / 2)
    assert broken.map(honest.clip_steps) == pytest.approx(honest.loss().rho / 1e12, rel=1e-9)

    def sample(present: bool) -> list[int]:
        # Half the noise doubles the public logits' weight, too: halved, they leave the token half of the mass.
        row = summed(honest, honest, 4, present, PUBLIC / 2)[0].tolist()
        return [sum(broken(row) == 0 for _ in range(DRAWS)) for _ in range(TRIALS)]

    assert audit(sample) > CLAIM


@pytest.mark.slow
def test_a_denominator_off_by_two_of_seven_exceeds_the_claim():
    """Five rows' weight for seven: 1.4 times the loss per row, at the number of references releases use."""
    honest = claimed(7)
    broken = TokenDraw(honest.clip_steps, 5, honest.temperature)
    assert token_audit(honest, honest, 7, 60_000) < CLAIM
    assert token_audit(honest, broken, 7, 120_000) > CLAIM


def count_audit(count: NoisyCount, trials: int = 2 * TRIALS) -> float:
    return audit(lambda present: [count.draw(100 + present, OS_RANDOM) for _ in range(trials)])


def test_the_honest_noisy_count_stays_below_its_claim():
    honest = calibrate_count(RHO)
    assert 0.999 < epsilon_of(honest.loss().rho, DELTA) <= CLAIM
    assert 0.25 < count_audit(honest) < CLAIM


def test_a_count_with_half_the_noise_exceeds_the_claim():
    honest = calibrate_count(RHO)
    assert count_audit(NoisyCount(Fraction(int(honest.sigma * 2**19), 2**20))) > CLAIM
