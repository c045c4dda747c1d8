"""The rule of Tang et al.: the token with the largest noisy sum of probabilities, paid for before rows are read."""

from fractions import Fraction

import pytest
import torch

from tasks.accounting.zcdp import release_amount
from tasks.decoding.loop import DrawMeter
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.systems.few_shot_generation import FewShotGeneration
from tasks.systems.few_shot_generation.rule import FewShotGenerationRule
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.fake_step import FakeSteps

STEPS = 2**20
SURE, HALF = [0.0, 50.0, 0.0], [50.0, 50.0, 0.0]


def rule(steps: FakeSteps, sigma: str = "1", top_k: int = 0, temperature: float = 1.0) -> FewShotGenerationRule:
    """With next to no noise without `sigma`, in grid steps."""
    meter = DrawMeter(1, 9, lambda number: steps.seen.append(("arm", number)))
    mechanism = NoisyMean(STEPS, Fraction(sigma), 20)
    return FewShotGenerationRule(mechanism, temperature, top_k, DeterministicRandom("tang"), meter)


def test_the_rows_decide_and_the_public_model_only_who_may_be_drawn() -> None:
    steps = FakeSteps([[100.0, 90.0, 0.0]], {0: [SURE] * 2})
    assert rule(steps).next_tokens(steps.step(0)) == [1]
    without = FakeSteps([[100.0, 0.0, 90.0]], {0: [SURE] * 2})
    assert rule(without, top_k=2).next_tokens(without.step(0))[0] in {0, 2}


def test_probabilities_are_added_up_not_votes_and_not_logits() -> None:
    """Four rows: two of them hesitate between tokens 0 and 1, one is sure of 0 and one of 1 by a larger logit."""
    steps = FakeSteps([[0.0, 0.0, 0.0]], {0: [HALF, HALF, [9.0, 0.0, 0.0], [0.0, 9.0, 0.0]]})
    made = rule(steps)
    sums = made.contribution(torch.tensor([HALF, HALF, [9.0, 0.0, 0.0], [0.0, 900.0, 0.0]]), torch.ones(4, 3).bool())
    assert sums[0].tolist() == pytest.approx([STEPS / 2, STEPS / 2, 0], abs=2)
    assert sums[2].tolist() == pytest.approx([STEPS * 0.99975, STEPS * 0.000123, STEPS * 0.000123], rel=0.02)
    assert sums[3].tolist() == pytest.approx([0, STEPS, 0], abs=2)


@pytest.mark.parametrize("logits", [SURE, HALF, [1e30, 1e30, 1e30], [torch.inf, 0, 0], [torch.nan, 0, 0], [0, 0, 0]])
def test_no_row_contributes_more_than_a_norm_of_one(logits: list[float]) -> None:
    sums = rule(FakeSteps([[0.0] * 3])).contribution(torch.tensor([logits]), torch.ones(1, 3).bool())
    assert (sums**2).sum() <= STEPS**2
    assert sums.min() >= 0


def test_a_row_has_no_probability_for_what_is_no_candidate() -> None:
    allowed = torch.tensor([[True, False, True]])
    sums = rule(FakeSteps([[0.0] * 3])).contribution(torch.tensor([[1.0, 50.0, 1.0]]), allowed)
    assert sums[0].tolist() == pytest.approx([STEPS / 2, 0, STEPS / 2], abs=2)


def test_the_temperature_is_of_the_rows() -> None:
    hot = rule(FakeSteps([[0.0] * 2]), temperature=1000.0)
    assert hot.contribution(torch.tensor([[5.0, 0.0]]), torch.ones(1, 2).bool())[0].tolist() == pytest.approx(
        [STEPS / 2, STEPS / 2], rel=0.01
    )


def test_padding_is_never_written_however_large_its_noise() -> None:
    """Two generations with one and with three candidates: the place of a missing candidate has noise, too."""
    absent = -torch.inf
    steps = FakeSteps([[0.0, absent, absent], [0.0, 0.0, 0.0]])
    made = rule(steps, sigma=str(2**30))
    assert {made.next_tokens(steps.step(position))[0] for position in range(9)} == {0}


def test_without_rows_noise_decides() -> None:
    steps = FakeSteps([[100.0, 90.0, 0.0]])
    made = rule(steps, sigma=str(2**20))
    assert len({made.next_tokens(steps.step(position))[0] for position in range(9)}) > 1


def test_each_sum_is_armed_before_rows_are_read() -> None:
    steps = FakeSteps([[1.0, 0.0, 0.0]], {0: [SURE]})
    made = rule(steps)
    for position in range(3):
        made.next_tokens(steps.step(position))
    assert [what[0] for what in steps.seen] == ["arm", "read"] * 3
    assert (made.facts(0), made.kept(0)) == ({}, ())


def test_generations_are_drawn_side_by_side() -> None:
    steps = FakeSteps([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], {0: [SURE], 1: [[0.0, 0.0, 50.0]]})
    assert rule(steps).next_tokens(steps.step(0)) == [1, 2]


def test_the_golden_figures_of_a_plan() -> None:
    """Sigma = sqrt(T / (2 rho)) on the sum: 48 sums for epsilon 4 at delta 1e-6 with 40 rows."""
    amount = release_amount("4", "1e-6")
    given = {"samples": 3, "references": 40, "max_new_tokens": 48, "temperature": "1", "batches": 3}
    system = FewShotGeneration()
    plan = system.plan(ask(system.parameters.model_validate(given), amount))
    (invocation,) = plan.invocations
    assert (invocation.event.mechanism, invocation.event.count) == ("noisy_mean", 48)
    sigma = (48 / (2 * amount.rho / 10**12)) ** 0.5
    assert float(plan.facts["noise on a mean probability"]) == pytest.approx(sigma / 40, rel=1e-4)
