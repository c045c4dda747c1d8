"""What a request reads of a dataset with cohorts: which blocks, as its own words say, whatever is opened later."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.standing_terms import BLOCKS_READ, without_first_cohort
from tasks.planning.block_selection import Reading, reading_of_request
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


@given(st.integers(1, 5), COHORTS)
def test_a_request_reads_all_blocks_of_its_cohorts_and_no_other(each: int, cohorts: tuple[int, ...]) -> None:
    reading = Reading(each, cohorts, several=True)
    assert reading.blocks == tuple(b for b in range(each * 6) if b // each + 1 in cohorts)
    assert reading.size == len(reading.blocks)
    assert reading_of_request(reading.to_json(), each) == reading


@pytest.mark.parametrize(
    "body",
    [{"cohorts": []}, {"cohorts": [2, 1]}, {"cohorts": [1, 1]}, {"cohorts": [0]}, {"cohorts": ["1"]}, {"cohorts": True},
     {"cohorts": [True]}, {"cohorts": 2}],
)  # fmt: skip
def test_no_request_reads_that(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        reading_of_request(body, 4)


def body_of(reading: Reading, **more: Any) -> dict[str, Any]:
    plan = reading.renumber_plan(plan_of(len(reading.blocks), samples="3"))
    told = {"blocks": list(plan.blocks), "facts": dict(plan.facts), "invocations": []}
    return {"epsilon": "1", "plan": told, **reading.to_json(), **more}


def test_the_first_cohort_is_one_configuration_before_there_was_another_and_after() -> None:
    before, after = body_of(Reading(4)), body_of(Reading(4, (1,), several=True))
    assert before != after
    assert without_first_cohort(before) == without_first_cohort(after) == before


def test_other_cohorts_are_another_configuration() -> None:
    made = [Reading(4), Reading(4, (2,), several=True), Reading(4, (1, 2), several=True)]
    found = [without_first_cohort(body_of(reading)) for reading in made]
    assert found[0] != found[1] != found[2] != found[0]
