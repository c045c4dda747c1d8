"""Audits of the noisy mean (PRIVACY §8): the honest one is in test_privacy_audits.py, every broken twin is here.

A twin is run on the inputs of the case `noisy_mean`, or on a group of few, and compared with the same
claim, the epsilon <= 1 that the charged rho gives at DELTA. The true epsilon of the honest one is 0.76 (continuous
Gaussian), of half the noise 2.10, of the other twins at least that.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit import DELTA, EPSILON, REFERENCES
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.auditing.worst_cases import LONG, project_on_worst_case, worst_case_sums
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.tokens.utility_scores import sum_rows
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
CLAIM = 1.0
# Bounds then spread by 0.04 (honest) to 0.09 (half the noise), and every assertion is six of those away.
TRIALS = 20_000
HONEST = calibrate_mean(rho_of(EPSILON, DELTA), 1, "1")
OTHERS = REFERENCES - 1
Sums = Callable[[bool], Tensor]
Noise = Callable[[Tensor], Tensor]


def honest_noise(sums: Tensor) -> Tensor:
    return HONEST.draw(sums, OS_RANDOM)


def honest_sums(present: bool) -> Tensor:
    return worst_case_sums(HONEST, OTHERS, present)


def audit(sums: Sums = honest_sums, noise: Noise = honest_noise, trials: int = TRIALS) -> float:
    """The shipped path from vectors to a noisy sum; a twin adds up other sums, or other noise."""

    def sample(present: bool) -> list[int]:
        return project_on_worst_case(noise(sums(present).expand(trials, -1)))

    return epsilon_lower_bound(sample(True), sample(False), float(DELTA), CONFIDENCE).epsilon


def rows_of(present: bool, others: int = OTHERS) -> Tensor:
    """The vectors themselves, before clipping: float32 [rows, 4]."""
    return torch.cat([-LONG] * others + [LONG] * present + [LONG[:0]])


def added(quantised: Tensor) -> Tensor:
    return sum_rows(quantised, torch.zeros(len(quantised), dtype=torch.int64), 1)


def unclipped(rows: Tensor) -> Tensor:
    return (rows * 2**HONEST.grid_exponent).to(torch.int64)


def test_the_honest_mean_stays_below_its_claim_and_is_seen():
    assert 0.999 < epsilon_of(HONEST.event().loss.rho, DELTA) <= CLAIM
    assert 0.2 < audit() < CLAIM
    # Whatever the group is: a unit alone, and a crowd that agrees with it.
    assert 0.2 < audit(lambda present: worst_case_sums(HONEST, 0, present)) < CLAIM
    assert 0.2 < audit(lambda present: added(HONEST.quantised(LONG.repeat(50 + present, 1)))) < CLAIM


def test_a_mean_without_noise_exceeds_the_claim():
    assert audit(noise=lambda sums: sums, trials=1000) > CLAIM


def test_half_the_noise_exceeds_the_claim():
    steps = int(HONEST.sigma_steps * SIGMA_GRID) // 2
    half = replace(HONEST, sigma_steps=Fraction(steps, SIGMA_GRID))
    assert audit(noise=lambda sums: half.draw(sums, OS_RANDOM)) > CLAIM


def test_one_noise_for_all_coordinates_exceeds_the_claim():
    """It cancels in what a unit can move."""
    assert audit(noise=lambda sums: sums + honest_noise(sums[:, :1]), trials=1000) > CLAIM


def test_a_mean_without_clipping_exceeds_the_claim():
    assert audit(lambda present: added(unclipped(rows_of(present))), trials=1000) > CLAIM


def test_coordinates_that_are_clipped_one_by_one_exceed_the_claim():
    """Each is at most C, and the norm of four of them 2C."""

    def boxed(present: bool) -> Tensor:
        return added(unclipped(rows_of(present)).clamp(-HONEST.clip_steps, HONEST.clip_steps))

    assert audit(boxed) > CLAIM


def test_a_scale_shared_by_the_rows_exceeds_the_claim():
    """Dividing all rows by the longest one's norm: none is longer than C, and a long one silences all others."""

    def shared(present: bool) -> Tensor:
        others = -LONG / LONG.norm()
        rows = torch.cat([others] * OTHERS + [LONG * 50] * present)
        return added(HONEST.quantised(rows / rows.norm(dim=1).max()))

    assert audit(shared) > CLAIM


def test_a_sum_over_the_rows_that_are_present_exceeds_the_claim():
    """The papers' denominator, where n is the number of documents: one of two documents moves their mean by C."""

    def present_mean(present: bool) -> Tensor:
        return worst_case_sums(HONEST, 1, present) * REFERENCES // (1 + present)

    assert audit(present_mean, trials=4000) > CLAIM


def test_noise_divided_by_the_rows_that_are_present_exceeds_the_claim():
    """Even behind honest noise: how large it is tells how many they are."""

    def divided(present: bool) -> list[int]:
        sums = worst_case_sums(HONEST, 1, present).expand(TRIALS, -1)
        means = HONEST.mean(honest_noise(sums), 1 + present)
        return project_on_worst_case((means * 2**HONEST.grid_exponent).to(torch.int64))

    assert epsilon_lower_bound(divided(True), divided(False), float(DELTA), CONFIDENCE).epsilon > CLAIM


def test_draws_that_are_not_charged_exceed_the_claim():
    """A token-level summary of eight tokens at the price of one."""
    assert (
        audit(noise=lambda sums: sum((honest_noise(sums) for _ in range(8)), torch.zeros_like(sums)), trials=3000)
        > CLAIM
    )


def test_a_group_that_is_skipped_when_nobody_wrote_in_it_exceeds_the_claim():
    def groups(present: bool) -> list[int]:
        return [len(HONEST.draw(HONEST.quantised(rows_of(present, 0)), OS_RANDOM)) for _ in range(1000)]

    assert epsilon_lower_bound(groups(True), groups(False), float(DELTA), CONFIDENCE).epsilon > CLAIM


def test_a_mean_of_another_charge_is_another_claim():
    """The twins above are no accident of the bound: honest means at a quarter and at four times the rho."""
    quarter, fourfold = (calibrate_mean(rho, 1, "1") for rho in (HONEST.loss().rho // 4, HONEST.loss().rho * 4))

    def at(mean: NoisyMean) -> float:
        return audit(lambda present: worst_case_sums(mean, OTHERS, present), lambda sums: mean.draw(sums, OS_RANDOM))

    assert at(quarter) < float(epsilon_of(quarter.loss().rho, DELTA))
    assert CLAIM < at(fourfold) < float(epsilon_of(fourfold.loss().rho, DELTA))
