"""Audits of what summaries are charged (PRIVACY §8): a unit in m groups, read k times, with c centres.

The shipped private step is run on two neighbouring inputs, once for each trial side by side, and compared with the
claim, the epsilon <= 1 that the rho of the whole plan gives at DELTA. A twin that charges less than a unit meets, or
lets it meet more than is charged, exceeds that claim; each of them has a true epsilon above 3.
"""

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit import DELTA, EPSILON
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.systems.summaries.token_level_rule import noisy_means
from tests.unit.tasks.systems.summaries.planted import adapter

CONCERNS = ("tasks/accounting", "tasks/mechanisms", "tasks/systems/summaries")

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS = 20_000
FEW = 4_000
"""Trials that show a twin which a unit moves three times as far as is charged: every assertion is six spreads away."""
GROUPS_PER_UNIT = 4
REFERENCES = 3


def paid_for(draws: int) -> NoisyMean:
    """The noisy mean of which so many draws cost what is claimed."""
    return calibrate_mean(rho_of(EPSILON, DELTA), draws, "1")


def told(mechanism: NoisyMean, vectors: Tensor, along: Tensor, draws: int, trials: int) -> list[float]:
    """What an attacker makes of `draws` means with these rows in each, added up, in each trial.

    Args:
        vectors: float32 [n, K], the unit's own rows of one group, or none.
        along: float32 [K], the direction in which the attacker looks.
    """
    groups = trials * draws
    rows = vectors.repeat(groups, 1)
    generation = torch.arange(groups).repeat_interleave(len(vectors))
    valid = torch.ones(len(rows), dtype=torch.bool)
    means = noisy_means(mechanism, rows, RowValues(rows, generation, valid), groups, REFERENCES, OS_RANDOM)
    found: list[float] = (means.double() @ along.double()).view(trials, draws).sum(1).tolist()
    return found


def audit(mechanism: NoisyMean, unit: Tensor, draws: int, trials: int = TRIALS) -> float:
    """The lower bound on epsilon for a unit that has these rows in each of so many means."""
    along = unit.sum(0)
    here, gone = (told(mechanism, rows, along, draws, trials) for rows in (unit, unit[:0]))
    return epsilon_lower_bound(here, gone, float(DELTA), CONFIDENCE).epsilon


ONE = torch.tensor([[5.0, 5.0]])
"""A unit far beyond the clip norm."""


def test_a_unit_in_m_groups_is_charged_m_times() -> None:
    assert 0.999 < epsilon_of(paid_for(GROUPS_PER_UNIT).event(GROUPS_PER_UNIT).loss.rho, DELTA) <= CLAIM
    assert 0.2 < audit(paid_for(GROUPS_PER_UNIT), ONE, GROUPS_PER_UNIT) < CLAIM


def test_groups_that_are_charged_like_one_exceed_the_claim() -> None:
    """Parallel composition, which holds for batches: a unit is in one. It does not hold for groups, nor for shots."""
    assert audit(paid_for(1), ONE, 9, FEW) > CLAIM


def test_a_unit_that_is_in_a_group_more_often_than_once_exceeds_the_claim() -> None:
    """One row for each spelling of a label, or for each document: three of them."""
    assert audit(paid_for(GROUPS_PER_UNIT), ONE.repeat(3, 1), GROUPS_PER_UNIT, FEW) > CLAIM


@pytest.mark.slow
def test_more_groups_than_the_bound_exceed_the_claim() -> None:
    assert audit(paid_for(2), ONE, 18, FEW) > CLAIM


def represented(centres: int) -> Tensor:
    """The shipped vector of a unit, float32 [1, centres * 6], far beyond the clip norm."""
    space = adapter(centres=centres).space
    return space.represent(torch.randn((1, len(space.mean)), generator=torch.Generator().manual_seed(1)) * 100)


@pytest.mark.slow
def test_however_many_centres_there_are_a_unit_has_one_vector() -> None:
    vector = represented(4)
    assert vector.shape == (1, 24)
    assert int((vector != 0).sum()) == 6
    assert 0.2 < audit(paid_for(1), vector, 1) < CLAIM


@pytest.mark.slow
def test_a_vector_for_every_centre_exceeds_the_claim() -> None:
    """One mean for each centre, clipped for itself, to which every unit contributes, at the price of one."""
    assert audit(paid_for(1), represented(1), 9, FEW) > CLAIM
