"""Audit of steering vectors (PRIVACY §8): origin, clipping, labels, noise and public denominator together.

Two corpora differ by one unit; the attacker sees the released noisy sums of all labels, from which vectors and texts
follow. The claim is the epsilon 1 at DELTA that the whole plan charges. The true epsilon of the honest one is 0.76
(continuous Gaussian), that of every twin at least 2. The noisy mean alone is audited in test_noisy_mean_audits.py; that
a row's hidden states are its own is tested in test_hidden_isolation.py.
"""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.inference.engine.session import RowHidden
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tasks.prompted_generation.steering.planner import SteeringVector
from tasks.prompted_generation.steering.vectors import PublicOrigin, contributions, vectors_of
from tasks.values.plan import PlanInputs

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms", "tasks/prompted_generation/steering")

CONFIDENCE, DELTA, CLAIM = 0.9999, "0.03", 1.0
RHO = rho_of("1", DELTA)
# Bounds then spread by 0.08 (honest) and by less than 0.1 (twins, which are beyond 2), as in test_summary_audits.py.
TRIALS, FEW = 10_000, 1500
OTHERS, REFERENCES = 2, 3
BASE = torch.tensor([[-5.0, 5.0]])
LONG = torch.tensor([[20.0, -20.0]])
"""By how much the unit differs from the public draws; the others differ as much in the other direction."""
ORIGIN = PublicOrigin(BASE.repeat(2, 1), torch.tensor([2.0, 2.0]))

Sums = Callable[[NoisyMean, bool], Tensor]


def honest_mean() -> NoisyMean:
    """The mechanism of a release with two labels that costs epsilon 1."""
    wanted = SteeringParameters(samples=2, references=REFERENCES, labels=("a", "b"))
    plan = SteeringVector().plan(PlanInputs(Amount(RHO), wanted, 1, None, True))
    assert 0.999 < epsilon_of(plan.loss.rho, DELTA) <= CLAIM
    return NoisyMean.from_event(plan.invocations[0].event)


def group(states: Sequence[Tensor]) -> RowHidden:
    rows = torch.cat(list(states)) if states else BASE[:0]
    return RowHidden(rows, torch.zeros(len(rows), dtype=torch.int64), torch.ones(len(rows), dtype=torch.bool))


def states_of(present: bool, others: int = OTHERS) -> list[RowHidden]:
    """Hidden states of the units of each label; the unit in question is read under the second."""
    return [group([BASE - LONG] * others), group([BASE - LONG] * others + [BASE + LONG] * present)]


def honest_sums(mean: NoisyMean, present: bool) -> Tensor:
    return contributions(mean, states_of(present), ORIGIN)


def released(mean: NoisyMean, sums: Tensor, trials: int) -> Tensor:
    """The noisy sums of so many releases: int64 [trials, labels, D]."""
    drawn = mean.draw(sums.repeat(trials, 1), OS_RANDOM)
    return drawn.view(trials, *sums.shape)


def far(noisy: Tensor) -> list[float]:
    """How far they point where the unit does: the likelihood ratio of Gaussian noise."""
    return (noisy[:, 1] * LONG.sign()).sum(1).double().tolist()  # type: ignore[no-any-return]


def audit(sums: Sums = honest_sums, trials: int = TRIALS) -> float:
    mean = honest_mean()
    samples = [far(released(mean, sums(mean, present), trials)) for present in (True, False)]
    return epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon


def test_honest_vectors_stay_below_their_claim_and_are_seen() -> None:
    assert 0 < audit() < CLAIM


def test_nor_does_a_unit_that_is_alone_in_its_label_show_more() -> None:
    assert 0 < audit(lambda mean, present: contributions(mean, states_of(present, 0), ORIGIN)) < CLAIM


def test_vectors_without_noise_exceed_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyMean, "draw", lambda mechanism, sums, rng: sums)
    assert audit(trials=500) > CLAIM


def test_vectors_that_are_not_clipped_exceed_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(mechanism: NoisyMean, values: Tensor) -> Tensor:
        return (values * 2**mechanism.grid_exponent).to(torch.int64)

    monkeypatch.setattr(NoisyMean, "quantised", unclipped)
    assert audit(trials=500) > CLAIM


def test_an_origin_that_is_subtracted_after_clipping_exceeds_the_claim() -> None:
    """A unit that is present subtracts it once more, however long it is."""

    def late(mean: NoisyMean, present: bool) -> Tensor:
        centre = (BASE * 2**mean.grid_exponent).to(torch.int64)
        return torch.stack([(mean.quantised(one.values) - centre).sum(0) for one in states_of(present)])

    assert audit(late, FEW) > CLAIM


def test_hidden_states_that_see_other_rows_exceed_the_claim() -> None:
    """Rows that share a pass and are not kept apart: each feels the mean of all."""

    def seeing(mean: NoisyMean, present: bool) -> Tensor:
        groups = states_of(present, others=12)
        felt = [group([one.values - BASE + 30 * (one.values.mean(0) - BASE + LONG)]) for one in groups]
        return contributions(mean, felt, PublicOrigin(torch.zeros(2, 2), ORIGIN.spreads))

    assert audit(seeing, FEW) > CLAIM


def test_an_origin_from_the_units_themselves_exceeds_the_claim() -> None:
    """The spread of private texts in the place of the public draws': a long unit makes all others short."""

    def own_spread(mean: NoisyMean, present: bool) -> Tensor:
        groups = [group([BASE - LONG / 40] * 12), group([BASE - LONG / 40] * 12 + [BASE + LONG] * present)]
        spreads = torch.stack([(one.values - BASE).norm(dim=1).max() for one in groups])
        return contributions(mean, groups, PublicOrigin(BASE.repeat(2, 1), spreads))

    assert audit(own_spread, FEW) > CLAIM


def test_a_unit_that_is_read_under_all_its_labels_exceeds_the_claim() -> None:
    """Twelve at the price of one."""
    mean, samples = honest_mean(), []
    origin = PublicOrigin(BASE.repeat(12, 1), torch.full((12,), 2.0))
    for present in (True, False):
        noisy = released(mean, contributions(mean, [states_of(present)[1]] * 12, origin), FEW)
        samples.append((noisy * LONG.sign()).sum((1, 2)).double().tolist())
    assert epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon > CLAIM


def test_a_mean_over_the_units_that_are_present_exceeds_the_claim() -> None:
    """n private: the noise is divided by it as well, so its size tells whether one or two wrote."""
    mean, samples = honest_mean(), []
    wide = PublicOrigin(torch.zeros(1, 62), torch.ones(1))
    for present in (True, False):
        rows = group([torch.cat([-LONG, torch.zeros(1, 60)], 1)] * (1 + present))
        noisy = released(mean, contributions(mean, [rows], wide), FEW)[:, 0]
        vectors = vectors_of(mean, noisy, 1 + present, torch.ones(FEW))
        samples.append((vectors - vectors.mean(0)).square().sum(1).tolist())
    assert epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon > CLAIM
