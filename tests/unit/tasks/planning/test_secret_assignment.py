"""The second figure of a claim: which releases have one, from which numbers, and never above the unconditional one."""

import random
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any

import pytest

from models_db.values.amounts import Amount, RenyiCurve
from models_db.values.events import PrivacyEvent
from tasks.accounting.random_allocation import RandomAllocation, allocation_figures
from tasks.accounting.renyi_account import allocation_curve
from tasks.accounting.zcdp import epsilon_of, release_amount, rho_of
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.tokens.integer_table import calibrate
from tasks.planning.layout import layout_of
from tasks.planning.secret_assignment import (
    SpentOnBlock,
    assignment_of_plan,
    curve_of_plan,
    epsilon_of_account,
    state_secret_assignment,
    while_secret,
)
from tasks.pricing.charged_metrics import plan_with_metrics
from tasks.pricing.quote import plan_json
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import BatchAssignment, Plan, PlanInputs
from tests.unit.tasks.publishing.builders import SUMMARIES

CONCERNS = ("tasks/accounting", "tasks/planning")

DELTA = Fraction(1, 10**5)
DRAWS = calibrate(rho_of("4", DELTA), 20, 7, "1").event(20)
COUNT = calibrate_count(10**9).event()
PARAMETERS = {"samples": 12, "references": 7, "max_new_tokens": 20, "temperature": "1"}


def plan_of(
    system: str, *, population: int | None = 700, blocks: int = 2, governed: bool = True, **changes: Any
) -> Plan:
    found = SYSTEMS[system]
    parameters = found.parameters.model_validate(PARAMETERS | changes)
    return found.plan(PlanInputs(release_amount("4", DELTA), parameters, blocks, population, governed))


@pytest.mark.parametrize("system", ["invisible_ink", "private_icl"])
@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({}, BatchAssignment(50, 6)),
        ({"blocks": 1}, BatchAssignment(100, 12)),
        ({"blocks": 5}, BatchAssignment(20, 3)),
        ({"population": 7}, BatchAssignment(6, 6)),
        ({"batches": 9}, BatchAssignment(9, 6)),
        ({"batches": 2}, BatchAssignment(6, 6)),
        ({"population": None, "batches": 9}, BatchAssignment(9, 6)),
        ({"population": None}, BatchAssignment(6, 6)),
        ({"labels": ["a", "b", "c"]}, BatchAssignment(17, 2)),
        ({"labels": ["a", "b", "c"], "population": None}, BatchAssignment(2, 2)),
        ({"population": None, "blocks": 12}, None),
        ({"population": 7, "labels": [f"l{n}" for n in range(12)]}, None),
        ({"governed": False}, None),
    ],
)
def test_the_sizes_are_known_before_anything_is_counted(
    system: str, changes: dict[str, Any], sizes: BatchAssignment | None
) -> None:
    plan = plan_of(system, **changes)
    assert plan.assignment == sizes
    assert assignment_of_plan(plan_json(plan)) == sizes  # type: ignore[arg-type]
    if changes.get("population", 1) is not None and sizes is not None:
        assert plan.facts["batches per block"] == str(sizes.batches)


def test_only_two_systems_say_that_draws_alone_read_a_batch() -> None:
    """Decision 0100, condition 4: a closed list, and the default is no."""
    able = [name for name, system in SYSTEMS.items() if getattr(system, "reads_batches_by_draws_alone", False)]
    assert able == ["invisible_ink", "private_icl"]
    assert [name for name in able if "reads_batches_by_draws_alone" in vars(type(SYSTEMS[name]))] == able


@pytest.mark.parametrize(
    "system", ["private_prediction", "few_shot_generation", "adapmixed", "public_only", "non_private"]
)
def test_no_other_decoder_has_sizes(system: str) -> None:
    assert plan_of(system, governed=system not in ("adapmixed", "non_private")).assignment is None


def test_groups_of_summaries_have_none() -> None:
    found = SYSTEMS["invisible_ink"]
    fields = {name: value for name, value in PARAMETERS.items() if name != "samples"}
    groups = {name: SUMMARIES["parameters"][name] for name in ("groups", "groups_per_unit")}
    parameters = found.parameters.model_validate({"samples": 2, **fields, **groups})
    assert found.plan(PlanInputs(release_amount("4", DELTA), parameters, 1, 700, True)).assignment is None


def test_the_figure_is_that_of_the_draws_with_all_else_added() -> None:
    sizes = BatchAssignment(50, 6)
    stated = state_secret_assignment([COUNT, DRAWS], sizes, DELTA)
    assert stated is not None
    figures = allocation_figures(RandomAllocation(DRAWS.loss.rho, 50, 6, COUNT.loss.rho), DELTA)
    assert (Decimal(stated.remove), Decimal(stated.add)) == (figures.remove, figures.add)
    assert Decimal(stated.epsilon) == figures.epsilon == max(figures.remove, figures.add)
    assert (stated.rho, stated.rho_other) == (DRAWS.loss.rho_text.rstrip("0"), COUNT.loss.rho_text.rstrip("0"))
    without = state_secret_assignment([DRAWS], sizes, DELTA)
    assert without is not None
    assert Decimal(without.epsilon) < Decimal(stated.epsilon)


@pytest.mark.parametrize("metric", [name for name, metric in METRICS.items() if metric.estimate is not None][:1])
@pytest.mark.parametrize("population", [None, 700])
def test_charged_metrics_and_the_count_are_among_the_others(metric: str, population: int | None) -> None:
    system = SYSTEMS["invisible_ink"]
    parameters = system.parameters.model_validate(PARAMETERS | {"samples": 16, "labels": ["a", "b"]})
    inputs = PlanInputs(release_amount("4", DELTA), parameters, 1, population, True)
    plan = plan_with_metrics(system, inputs, [METRICS[metric]], Decimal("0.1"))
    events = plan.events
    stated = state_secret_assignment(events, plan.assignment, DELTA)
    assert stated is not None
    others = plan.loss.rho - next(e.loss.rho for e in events if "draw" in e.mechanism)
    assert Decimal(stated.rho_other) == Decimal(others) / 10**12
    assert others > plan.loss.rho // 11
    assert Decimal(stated.epsilon) <= epsilon_of(plan.loss.rho, DELTA)


def failing(event: PrivacyEvent) -> PrivacyEvent:
    return replace(event, loss=Amount(event.loss.rho, 1))


@pytest.mark.parametrize("events", [[failing(COUNT), DRAWS], [failing(DRAWS)], [COUNT], []])
def test_a_mechanism_that_may_fail_or_no_draw_leaves_no_figure(events: list[PrivacyEvent]) -> None:
    assert state_secret_assignment(events, BatchAssignment(50, 6), DELTA) is None


@pytest.mark.slow
def test_it_is_never_above_the_unconditional_figure() -> None:
    for claim in ("0.01", "1", "10", "30"):
        draws = calibrate(rho_of(claim, DELTA), 20, 7, "1").event(20)
        for sizes in (BatchAssignment(2, 1), BatchAssignment(2, 2), BatchAssignment(10**6, 3)):
            stated = state_secret_assignment([COUNT, draws], sizes, DELTA)
            assert stated is not None
            assert Decimal(stated.epsilon) <= epsilon_of(draws.loss.rho + COUNT.loss.rho, DELTA)


def test_the_words_round_up_and_name_the_condition() -> None:
    stated = state_secret_assignment([DRAWS], BatchAssignment(50, 6), DELTA)
    assert stated is not None
    figure = Decimal(stated.epsilon).quantize(Decimal("0.0001"), ROUND_CEILING)
    assert while_secret(stated) == (
        f"epsilon {figure.normalize()} at the same delta, while the assignment of units to texts is secret"
        " (its key is destroyed after the draws)"
    )


def test_an_account_is_its_worst_block_and_all_else_counts_in_full() -> None:
    sizes, rho = BatchAssignment(50, 6), DRAWS.loss.rho
    alone = epsilon_of_account([SpentOnBlock(rho, ((sizes, rho),))], DELTA)
    assert alone < epsilon_of(rho, DELTA)
    public = epsilon_of_account([SpentOnBlock(rho, ())], DELTA)
    assert public == epsilon_of(rho, DELTA)
    assert epsilon_of_account([SpentOnBlock(rho, ((sizes, rho),)), SpentOnBlock(rho, ())], DELTA) == public
    half = epsilon_of_account([SpentOnBlock(rho, ((sizes, rho // 2),))], DELTA)
    assert alone < half < public
    twice = epsilon_of_account([SpentOnBlock(2 * rho, ((sizes, rho),) * 2)], DELTA)
    assert alone < twice < epsilon_of(2 * rho, DELTA)
    assert epsilon_of_account([], DELTA) == 0


@pytest.mark.parametrize(
    "stored",
    [{"batches": 2}, {"batches": 2, "read": 1, "more": 1}, {"batches": 2, "read": True}, {"batches": 1, "read": 2}],
)
def test_sizes_that_are_none_are_refused(stored: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        assignment_of_plan({"assignment": stored})


# --- The account in orders ---------------------------------------------------------------------------------------


def stored(*parts: tuple[PrivacyEvent, Amount], assignment: dict[str, int] | None) -> dict[str, Any]:
    """A stored plan, each mechanism in two instalments."""
    return {
        "assignment": assignment,
        "invocations": [
            {
                "event": event.to_json(),
                "instalments": [{"rho": str(part.rho), "delta": str(part.delta)} for part in (first, Amount(1))],
            }
            for event, first in parts
        ],
    }


SPLIT = {"batches": 100, "read": 30}


def test_a_plan_is_charged_its_draws_in_a_secret_place_and_all_else_whole() -> None:
    plan = stored((DRAWS, DRAWS.loss), (COUNT, COUNT.loss), assignment=SPLIT)
    expected = RandomAllocation(DRAWS.loss.rho + 1, 100, 30, COUNT.loss.rho + 1)
    assert curve_of_plan(plan) == allocation_curve(expected)
    assert min(curve_of_plan(plan).remove) > COUNT.loss.rho


@pytest.mark.parametrize(
    "plan",
    [
        stored((DRAWS, DRAWS.loss), assignment=None),
        stored((COUNT, COUNT.loss), assignment=SPLIT),
        stored((DRAWS, DRAWS.loss), (COUNT, COUNT.loss + Amount(0, 5)), assignment=SPLIT),
    ],
)
def test_a_plan_without_a_claim_for_its_assignment_is_charged_its_rho(plan: dict[str, Any]) -> None:
    rho = sum(int(part["rho"]) for each in plan["invocations"] for part in each["instalments"])
    assert curve_of_plan(plan) == RenyiCurve.of_rho(rho)


def test_every_planned_release_is_charged_what_it_is_approved_for() -> None:
    plan = plan_of("invisible_ink")
    assert plan.assignment is not None
    curve = curve_of_plan(plan_json(plan))
    assert max(curve.remove) < plan.loss.rho
    assert curve_of_plan(plan_json(plan_of("invisible_ink", governed=False))) == RenyiCurve.of_rho(plan.loss.rho)


# --- Extensions --------------------------------------------------------------------------------------------------


class LaboratoryInk(InvisibleInk):
    """A system of an extension: it inherits what the shipped one says of itself, and may draw by a rule of its own."""

    name = "laboratory.ink"


@pytest.mark.parametrize("metrics", [0, 1])
def test_an_extension_inherits_no_claim_for_a_secret_assignment(metrics: int) -> None:
    """Decision 0100, condition 4: what the claim rests on was read of two systems; a subclass is none of them."""
    charged = [metric for metric in METRICS.values() if metric.estimate is not None][:metrics]
    for system in (InvisibleInk(), LaboratoryInk()):
        parameters = system.parameters.model_validate(PARAMETERS | {"samples": 16, "labels": ["a", "b"]})
        inputs = PlanInputs(release_amount("4", DELTA), parameters, 1, 700, True)
        plan = plan_with_metrics(system, inputs, charged, Decimal("0.1"))
        assert (plan.assignment is None) == (system.name == "laboratory.ink")
        is_whole = curve_of_plan(plan_json(plan)) == RenyiCurve.of_rho(plan.loss.rho)
        assert is_whole == (system.name == "laboratory.ink")


# --- What is read, counted from the places themselves ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_cell_reads_more_or_has_fewer_batches_than_the_claim_says(seed: int) -> None:
    """Whatever is asked for: of each label in each block at most M batches are read, all of N or more, each once."""
    choose = random.Random(seed)
    blocks, labels = choose.randint(1, 4), choose.randint(1, 4)
    changes: dict[str, Any] = {"samples": max(blocks, labels) + choose.randint(0, 40)}
    changes |= {"labels": [f"l{n}" for n in range(labels)]} if labels > 1 else {}
    changes |= {"batches": choose.randint(1, 60)} if choose.random() < 0.4 else {}
    population = choose.choice([None, choose.randint(1, 3000)])
    plan = plan_of("invisible_ink", blocks=blocks, population=population, **changes)
    parameters = SYSTEMS["invisible_ink"].parameters.model_validate(PARAMETERS | changes)
    layout = layout_of(parameters, changes["samples"], blocks)  # type: ignore[arg-type]
    cells: dict[tuple[int, int], list[int]] = {}
    for ((block, label, batch),) in layout.sources():
        cells.setdefault((block, label), []).append(batch)
    stated = plan.facts["batches per block"]
    counted = [layout.per_block(units, 7) for units in (-5, 0, 3, 10**4)]
    for batches in [int(stated)] if stated.isdigit() else counted:
        for read in cells.values():
            assert len(set(read)) == len(read)
            assert max(read) < batches
            if plan.assignment is not None:
                assert len(read) <= plan.assignment.read
                assert batches >= plan.assignment.batches
    if plan.assignment is not None:
        assert 1 <= plan.assignment.read <= plan.assignment.batches
        assert max(map(len, cells.values())) == plan.assignment.read
