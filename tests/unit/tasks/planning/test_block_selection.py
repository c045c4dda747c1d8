"""What a request reads of a dataset with cohorts: which blocks, as its own words say, whatever is opened later."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.standing_terms import BLOCKS_READ, without_rotation
from tasks.planning.block_rotation import Rotation, RotationUnfit
from tasks.planning.block_selection import Reading, RotationOfPublicData, reading_of_request, require_governed
from tasks.values.plan import Plan, PlanInputs


def plan_of(blocks: int, **facts: str) -> Plan:
    return Plan((), tuple(range(blocks)), samples=3, facts=facts, rows=1, steps=1, prompt_tokens=1)


COHORTS = st.sets(st.integers(1, 6), min_size=1, max_size=4).map(lambda found: tuple(sorted(found)))


def test_the_first_cohort_alone_is_what_there_always_was() -> None:
    ask, plan = PlanInputs(Amount(5), object(), 4, 90, True), plan_of(4, a="b")  # type: ignore[arg-type]
    reading = Reading(4)
    assert (reading.blocks, reading.to_json()) == ((0, 1, 2, 3), {})
    assert (reading.restrict_inputs(ask), reading.renumber_plan(plan)) == (ask, plan)


def test_cohorts_have_blocks_of_their_own() -> None:
    reading = Reading(3, (2, 4), several=True)
    assert reading.blocks == (3, 4, 5, 9, 10, 11)
    planned = reading.renumber_plan(plan_of(6, a="b"))
    assert (planned.blocks, planned.facts) == (
        reading.blocks, {"a": "b", BLOCKS_READ: "cohorts 2, 4: blocks 3 to 5, 9 to 11"},
    )  # fmt: skip
    assert reading.restrict_inputs(PlanInputs(Amount(5), object(), 3, 90, True)).blocks == 6  # type: ignore[arg-type]


def test_a_turn_is_one_over_the_blocks_of_its_cohorts() -> None:
    reading = Reading(4, (2,), several=True, turn=Rotation(2, 1, 4))
    assert reading.blocks == (5, 7)
    planned = reading.renumber_plan(plan_of(2))
    assert planned.blocks == (5, 7)
    assert planned.facts[BLOCKS_READ] == "group 2 of 2 of the blocks of cohort 2: 5, 7"
    asked = reading.restrict_inputs(PlanInputs(Amount(5), object(), 4, 90, True))  # type: ignore[arg-type]
    assert (asked.blocks, asked.population) == (2, 45)


@given(st.integers(1, 5), COHORTS, st.integers(1, 3))
def test_turns_share_out_the_blocks_of_the_cohorts(each: int, cohorts: tuple[int, ...], groups: int) -> None:
    """And of no other: every block of them is read in one turn."""
    whole = Reading(each, cohorts, several=True)
    assert whole.blocks == tuple(b for b in range(each * 6) if b // each + 1 in cohorts)
    if groups > 1 and len(whole.blocks) % groups == 0 and groups <= len(whole.blocks):
        turns = [replace(whole, turn=Rotation(groups, group, len(whole.blocks))) for group in range(groups)]
        assert sorted(block for turn in turns for block in turn.blocks) == list(whole.blocks)
        assert [reading_of_request(turn.to_json(), each) for turn in turns] == turns
    assert reading_of_request(whole.to_json(), each) == whole


@pytest.mark.parametrize(
    "body",
    [{"cohorts": []}, {"cohorts": [2, 1]}, {"cohorts": [1, 1]}, {"cohorts": [0]}, {"cohorts": ["1"]}, {"cohorts": True},
     {"cohorts": [True]}, {"cohorts": 2}],
)  # fmt: skip
def test_no_request_reads_that(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        reading_of_request(body, 4)


def test_groups_are_of_one_size_among_all_that_is_read() -> None:
    with pytest.raises(RotationUnfit) as unfit:
        reading_of_request({"cohorts": [1, 3], "rotate_over": 3, "group": 0}, 4)
    assert unfit.value.facts == {"rotate_over": 3, "blocks": 8}


def test_public_data_takes_no_turns() -> None:
    require_governed(Reading(4), "library", governed=False)
    with pytest.raises(RotationOfPublicData):
        require_governed(Reading(4, turn=Rotation(2, 0, 4)), "library", governed=False)


def body_of(reading: Reading, **more: Any) -> dict[str, Any]:
    plan = reading.renumber_plan(plan_of(len(reading.blocks), samples="3"))
    told = {"blocks": list(plan.blocks), "facts": dict(plan.facts), "invocations": []}
    return {"epsilon": "1", "plan": told, **reading.to_json(), **more}


def test_the_first_cohort_is_one_configuration_before_there_was_another_and_after() -> None:
    before, after = body_of(Reading(4)), body_of(Reading(4, (1,), several=True))
    assert before != after
    assert without_rotation(before) == without_rotation(after) == before
    turns = [Reading(4, (1,), several, Rotation(2, group, 4)) for several in (False, True) for group in (0, 1)]
    assert len({str(without_rotation(body_of(turn))) for turn in turns}) == 1


def test_other_cohorts_are_another_configuration() -> None:
    made = [Reading(4), Reading(4, (2,), several=True), Reading(4, (1, 2), several=True)]
    found = [without_rotation(body_of(reading)) for reading in made]
    assert found[0] != found[1] != found[2] != found[0]
    with_turns = [replace(reading, turn=Rotation(2, 0, len(reading.blocks))) for reading in made]
    found = [without_rotation(body_of(reading)) for reading in with_turns]
    assert found[0] != found[1] != found[2] != found[0]
