"""Turns over groups of blocks: which is next, what it may read, how many a budget affords."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.standing_terms import BLOCKS_READ, without_rotation
from tasks.planning.block_rotation import Rotation, RotationUnfit, affords, next_turn, rotation_of_request
from tasks.values.plan import PlanInputs


def test_groups_share_out_the_blocks() -> None:
    turns = [Rotation(3, group, 6) for group in range(3)]
    assert [turn.blocks for turn in turns] == [(0, 3), (1, 4), (2, 5)]
    assert sorted(block for turn in turns for block in turn.blocks) == list(range(6))


@pytest.mark.parametrize(("groups", "blocks"), [(1, 4), (0, 4), (3, 4), (8, 4), (2, 1)])
def test_groups_are_of_one_size(groups: int, blocks: int) -> None:
    with pytest.raises(RotationUnfit) as unfit:
        Rotation(groups, 0, blocks)
    assert unfit.value.facts == {"rotate_over": groups, "blocks": blocks}


def test_the_group_with_most_left_is_next_and_the_first_of_those_alike() -> None:
    left = [Amount(5), Amount(9), Amount(7), Amount(8)]
    assert next_turn(2, left).group == 1  # its fullest block has 8 left, the other's 5
    assert next_turn(4, left).group == 1
    assert next_turn(2, [Amount(5)] * 4).group == 0
    assert next_turn(2, [Amount(5, 1), Amount(5, 2), Amount(5, 1), Amount(5, 2)]).group == 1


@given(st.integers(2, 4), st.integers(1, 4), st.lists(st.integers(0, 40), min_size=16, max_size=16), st.integers(1, 9))
def test_what_the_planner_says_is_what_turns_give(groups: int, size: int, rooms: list[int], price: int) -> None:
    """Taking turns one after the other until none fits affords exactly as many; never fewer than without."""
    left = [Amount(room) for room in rooms[: groups * size]]
    wanted, now, taken = affords(Amount(price), left, groups), list(left), 0
    while all(Amount(price).fits(now[block]) for block in next_turn(groups, now).blocks):
        for block in next_turn(groups, tuple(now)).blocks:
            now[block] = now[block] - Amount(price)
        taken += 1
    assert taken == wanted
    assert wanted >= (affords(Amount(price), left) or 0)


def test_what_costs_nothing_has_no_end() -> None:
    assert affords(Amount(), [Amount(5)] * 4, 2) is None
    assert affords(Amount(0, 2), [Amount(5, 7)] * 2) == 3


def test_both_accounts_have_to_admit_a_turn() -> None:
    """The limit in orders is asked group by group, with places of the group's own blocks."""
    admitted = {(0, 2): 1, (1, 3): 7, (0, 1, 2, 3): 0}
    left = [Amount(9), Amount(5), Amount(6), Amount(5)]
    assert affords(Amount(2), left, 2) == 3 + 2
    assert affords(Amount(2), left, 2, lambda places: admitted[tuple(places)]) == 1 + 2
    assert affords(Amount(2), left, 1, lambda places: admitted[tuple(places)]) == 0
    assert affords(Amount(2), left, 2, lambda places: None) == 3 + 2


def test_a_plan_may_depend_on_the_group_alone() -> None:
    ask = PlanInputs(Amount(5), object(), 4, 103, True)  # type: ignore[arg-type]
    assert (
        Rotation(2, 1, 4).restrict_inputs(ask)
        == Rotation(2, 0, 4).restrict_inputs(ask)
        == replace(ask, blocks=2, population=51)
    )
    assert Rotation(2, 0, 4).restrict_inputs(replace(ask, population=None)).population is None


def test_a_turn_is_read_from_the_request() -> None:
    turn = Rotation(2, 1, 4)
    assert rotation_of_request(turn.to_json(), 4) == turn
    assert rotation_of_request({}, 4) is None
    for body in ({"rotate_over": 2}, {"group": 1}, {"rotate_over": 2, "group": 2}, {"rotate_over": "2", "group": 0}):
        with pytest.raises(ValueError):
            rotation_of_request(body, 4)


def test_only_the_turn_is_no_part_of_a_configuration() -> None:
    plan = {"blocks": [1, 3], "facts": {BLOCKS_READ: "group 2", "samples": "3"}, "invocations": []}
    body = {"rotate_over": 2, "group": 1, "plan": plan, "epsilon": "1"}
    other = {
        "rotate_over": 2,
        "group": 0,
        "plan": {**plan, "blocks": [0, 2], "facts": {"samples": "3"}},
        "epsilon": "1",
    }
    assert without_rotation(body) == without_rotation(other)
    assert without_rotation(body) != without_rotation({**other, "plan": {**plan, "blocks": [0]}})
    assert without_rotation(body) != without_rotation({**other, "rotate_over": 4})
    plain = {"plan": plan, "epsilon": "1"}
    assert without_rotation(plain) == plain
