"""Audits of what releases of Gaussian noise alone claim (PRIVACY §8, decision 0138), tight enough to see 15 % of noise.

The statistic is the loss itself, up to a positive factor and rounding: an attacker can do no better. So the bound of
the trials comes close to the true epsilon, and noise of 0.85 of the scale that is paid for exceeds the claim.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import exact
from tasks.accounting.zcdp import epsilon_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning.gaussian_claim import state_gaussian_claim

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/mechanisms", "tasks/accounting")

CONFIDENCE, DELTA, TRIALS = 0.9999, "0.02", 150_000
STEPS = 2**20
UNIT = 2**20
"""Of the rounded statistic: losses in steps of 2^-20."""
Losses = NDArray[np.float64]


def scaled(sigma: Fraction, share: Fraction) -> Fraction:
    return Fraction(round(sigma * share * SIGMA_GRID), SIGMA_GRID)


def coarse(share: Fraction, present: bool) -> tuple[list[PrivacyEvent], Losses]:
    """Noise of sigma 1.75 on two counts."""
    paid = SetHistogram(None, 2, "gaussian", Fraction(7, 4))
    drawn = np.array(replace(paid, scale=scaled(paid.scale, share)).draw([int(present)] * (2 * TRIALS), OS_RANDOM))
    return [paid.event()], drawn.reshape(TRIALS, 2).sum(axis=1) / float(paid.scale) ** 2


def fine(share: Fraction, present: bool) -> tuple[list[PrivacyEvent], Losses]:
    """Noise on a vector of 2^20 steps in one direction."""
    paid = NoisyMean(STEPS, Fraction(5, 4) * STEPS, 20)
    sums = torch.full((TRIALS, 1), STEPS if present else 0, dtype=torch.int64)
    drawn = replace(paid, sigma_steps=scaled(paid.sigma_steps, share)).draw(sums, OS_RANDOM).numpy()[:, 0]
    return [paid.event()], drawn * STEPS / float(paid.sigma_steps) ** 2


def both(share: Fraction, present: bool) -> tuple[list[PrivacyEvent], Losses]:
    """One release of the two."""
    events, losses = zip(*(part(share, present) for part in (coarse, fine)), strict=True)
    return [event for one in events for event in one], losses[0] + losses[1]


Release = Callable[[Fraction, bool], tuple[list[PrivacyEvent], Losses]]
RELEASES = pytest.mark.parametrize("release", [coarse, fine, both])


def claimed(events: Sequence[PrivacyEvent]) -> float:
    stated = state_gaussian_claim(events, exact(DELTA))
    assert stated is not None
    assert Decimal(stated.epsilon) < Decimal("0.9") * epsilon_of(sum(event.loss.rho for event in events), DELTA)
    return float(stated.epsilon)


def audited(release: Release, share: Fraction) -> tuple[float, float]:
    """The claim, and the lower bound that the trials prove."""
    (events, with_unit), (_, without) = (release(share, present) for present in (True, False))
    samples = [np.round(side * UNIT).astype(np.int64).tolist() for side in (with_unit, without)]
    return claimed(events), epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon


@RELEASES
def test_an_audit_stays_below_the_claim(release: Release) -> None:
    claim, bound = audited(release, Fraction(1))
    assert 0.8 * claim < bound <= claim


@RELEASES
def test_noise_of_85_hundredths_exceeds_it(release: Release) -> None:
    claim, bound = audited(release, Fraction(85, 100))
    assert bound > claim
