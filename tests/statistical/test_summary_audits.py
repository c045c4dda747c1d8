"""Audits of whole summaries (PRIVACY §8): contribution bound, rule, clipping, noise and public denominator together.

Two corpora differ by one unit, that wrote in every group; the attacker sees every noisy mean, which says more than the
tokens drawn from it, and knows where the unit would be read. The claim is the epsilon 1 at DELTA that the whole plan
charges: m groups, T draws each. The true epsilon of the honest one is 0.76 (continuous Gaussian), that of every twin
at least 3. The noisy mean by itself is audited in test_noisy_mean_audits.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.adapters.adapter import Adapter, Space
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.decoding.loop import DrawMeter
from tasks.inference.engine.session import RowHidden, RowValues
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.systems.summaries import (
    OneShotParameters,
    OneShotSummary,
    TokenLevelParameters,
    TokenLevelSummary,
    UsedAdapter,
    _Reading,
)
from tasks.systems.summaries.token_level_rule import TokenLevelRule
from tasks.values.plan import Plan, PlanInputs
from tests.unit.tasks.systems.summaries.planted import adapter

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms", "tasks/systems/summaries")

CONFIDENCE, DELTA, CLAIM = 0.9999, "0.03", 1.0
RHO = rho_of("1", DELTA)
# The honest bound is then 0.40 on average, 0.08 its spread; a twin at twelve times the rho is beyond 2 with FEW.
TRIALS = 10_000
FEW = 1500
GROUPS = ("bed", "lamp", "sofa")
MANY = tuple(f"thing {number}" for number in range(16))
STEPS, OTHERS, REFERENCES = 2, 2, 3
WORDS = {"references": REFERENCES, "temperature": "1", "max_reference_tokens": 9}
BASE = torch.tensor([[5.0, 3.0]])
LONG = torch.tensor([[20.0, -20.0]])
"""By how much the unit differs from the public row; the others differ as much in the other direction."""
SCHEME = PartitionScheme(b"a" * 32, 1)


def asked(plan_of: Any, wanted: Any) -> Plan:
    made: Plan = plan_of.plan(PlanInputs(Amount(RHO), wanted, 1, None, True))
    return made


def token_level(
    bound: int, centre: str = "public", groups: Sequence[str] = GROUPS, **changes: Any
) -> tuple[TokenLevelRule, Plan]:
    """The rule of a release that costs epsilon 1, and its plan."""
    wanted = TokenLevelParameters.model_validate(
        WORDS | {"groups": groups, "groups_per_unit": bound, "max_new_tokens": STEPS, "clip_norm": 1, "centre": centre}
        | changes
    )  # fmt: skip
    plan = asked(TokenLevelSummary(), wanted)
    meter = DrawMeter(STEPS, STEPS, lambda number: None)
    rule = TokenLevelSummary().rule([plan.invocations[0].event], wanted, meter, OS_RANDOM)
    assert isinstance(rule, TokenLevelRule)
    return rule, plan


def read_in(most: int, groups: Sequence[str] = GROUPS) -> list[int]:
    """The groups in which the unit is read, by the shipped choice."""
    return sorted(groups.index(label) for label in BatchSplit(SCHEME.key, "release").labels_of("u", groups, most))


def means(
    rule: TokenLevelRule, where: Sequence[int], present: bool, trials: int, others: int = OTHERS, groups: int = 3
) -> Tensor:
    """All noisy means of so many releases, float32 [trials, T, groups, D], less what is public of them."""
    values, group = [], []
    for number in range(groups):
        rows = [BASE - LONG] * others + [BASE + LONG] * (present and number in where)
        values += rows
        group += [number] * len(rows)
    one = torch.cat([*values, BASE[:0]])
    offset = torch.arange(trials).repeat_interleave(len(one)) * groups
    generation = torch.tensor(group, dtype=torch.int64).repeat(trials) + offset
    every = RowValues(one.repeat(trials, 1), generation, torch.ones_like(generation, dtype=torch.bool))
    public = BASE.expand(trials * groups, -1)
    base = public if rule.centre == "public" else torch.zeros_like(public)
    drawn = [(rule._mean(every, public) - base).view(trials, groups, -1) for _ in range(STEPS)]
    return torch.stack(drawn, 1)


def far(found: Tensor, where: Sequence[int]) -> list[float]:
    """How far the means of the unit's groups point where it does: the likelihood ratio of Gaussian noise."""
    return (found[:, :, list(where)] * LONG.sign()).sum((1, 2, 3)).tolist()  # type: ignore[no-any-return]


def audit(rule: TokenLevelRule, where: Sequence[int], trials: int = TRIALS, **more: int) -> float:
    samples = [far(means(rule, where, present, trials, **more), where) for present in (True, False)]
    return epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon


@pytest.mark.parametrize(("bound", "centre"), [(1, "public"), pytest.param(3, "none", marks=pytest.mark.slow)])
def test_an_honest_release_stays_below_its_claim_and_is_seen(bound: int, centre: str) -> None:
    rule, plan = token_level(bound, centre)
    assert 0.999 < epsilon_of(plan.loss.rho, DELTA) <= CLAIM
    assert len(read_in(bound)) == bound
    assert 0 < audit(rule, read_in(bound)) < CLAIM


@pytest.mark.slow
def test_nor_does_a_unit_that_is_alone_in_its_groups_show_more() -> None:
    rule, _ = token_level(2)
    assert 0 < audit(rule, read_in(2), others=0) < CLAIM


def test_a_unit_that_is_read_in_more_groups_than_are_paid_for_exceeds_the_claim() -> None:
    rule, _ = token_level(1, groups=MANY)
    assert audit(rule, read_in(len(MANY), MANY), FEW, groups=len(MANY)) > CLAIM


@pytest.mark.slow
def test_steps_that_are_not_charged_exceed_the_claim() -> None:
    """A plan of a form with a single choice, and a rule that draws for twelve tokens."""
    wanted = {"form": "It is {x}.", "slot_tokens": 1, "max_new_tokens": 40}
    rule, plan = token_level(1, **wanted)
    assert plan.invocations[0].event.count == 1
    where = read_in(1)
    samples = []
    for present in (True, False):
        many = torch.cat([means(rule, where, present, FEW) for _ in range(6)], 1)
        samples.append(far(many, where))
    assert epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon > CLAIM


def test_a_release_without_noise_exceeds_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyMean, "draw", lambda mechanism, sums, rng: sums)
    rule, _ = token_level(1)
    assert audit(rule, read_in(1), trials=1000) > CLAIM


def test_a_release_without_clipping_exceeds_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(mechanism: NoisyMean, values: Tensor) -> Tensor:
        return (values * 2**mechanism.grid_exponent).to(torch.int64)

    monkeypatch.setattr(NoisyMean, "quantised", unclipped)
    rule, _ = token_level(1)
    assert audit(rule, read_in(1), trials=1000) > CLAIM


def test_a_mean_over_the_units_that_are_present_exceeds_the_claim() -> None:
    """n private: the noise is divided by it as well, so its size tells whether one or two wrote."""
    rule, _ = token_level(3)
    where = read_in(3)
    samples = []
    for present in (True, False):
        found = means(replace(rule, references=1 + present), where, present, FEW, others=1)
        samples.append(found[:, :, where].square().sum((1, 2, 3)).tolist())
    assert epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon > CLAIM


# --- one-shot ----------------------------------------------------------------------------------------------------


def plain_adapter(centres: int) -> Adapter:
    """Hidden states as they are, of width 2; with two centres, at the unit's and at the others' vectors."""
    made = adapter(width=2, dimensions=2, centres=centres)
    near = torch.cat([LONG, -LONG])[:centres]
    space = Space(torch.zeros(2), torch.eye(2), near, torch.zeros(2 * centres), torch.ones(2 * centres))
    return replace(made, space=space)


def one_shot(shots: int, centres: int) -> tuple[_Reading, OneShotParameters, Plan]:
    made = plain_adapter(centres)
    wanted = OneShotParameters.model_validate(
        WORDS | {"groups": GROUPS, "max_new_tokens": 9, "clip_norm": 1, "shots": shots, "instalment": shots}
        | {"adapter": UsedAdapter(sha256="a" * 64, meta=made.meta)}
    )  # fmt: skip
    return _Reading(made, (), None), wanted, asked(OneShotSummary(), wanted)


def shot_audit(shots: int, centres: int, trials: int, paid: Plan | None = None) -> float:
    """The shipped path from hidden states to noisy means; a twin draws more of them than were paid for."""
    reading, wanted, plan = one_shot(shots, centres)
    mechanism = NoisyMean.from_event((paid or plan).invocations[0].event)
    samples = []
    for present in (True, False):
        rows = torch.cat([-LONG] * OTHERS + [LONG] * present)
        every = RowHidden(rows, torch.zeros(len(rows), dtype=torch.int64), torch.ones(len(rows), dtype=torch.bool))
        all_shots = wanted.model_copy(update={"shots": shots * trials})
        found = reading._of_group(mechanism, all_shots, every, OS_RANDOM).view(trials, shots, -1)
        samples.append((found[:, :, :2] * LONG.sign()).sum((1, 2)).tolist())  # the block of the unit's centre
    return epsilon_lower_bound(*samples, float(DELTA), CONFIDENCE).epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("shots", "centres"), [(1, 1), (2, 2)])
def test_honest_means_of_all_documents_stay_below_their_claim_and_are_seen(shots: int, centres: int) -> None:
    plan = one_shot(shots, centres)[2]
    assert 0.999 < epsilon_of(plan.loss.rho, DELTA) <= CLAIM
    assert 0 < shot_audit(shots, centres, TRIALS) < CLAIM


@pytest.mark.slow
def test_shots_that_are_not_charged_exceed_the_claim() -> None:
    assert shot_audit(12, 1, FEW, paid=one_shot(1, 1)[2]) > CLAIM


def test_shots_without_noise_exceed_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyMean, "draw", lambda mechanism, sums, rng: sums)
    assert shot_audit(1, 2, trials=500) > CLAIM


def test_shots_of_vectors_that_are_not_clipped_exceed_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(mechanism: NoisyMean, values: Tensor) -> Tensor:
        return (values * 2**mechanism.grid_exponent).to(torch.int64)

    monkeypatch.setattr(NoisyMean, "quantised", unclipped)
    assert shot_audit(1, 2, trials=500) > CLAIM
