"""No draw happens that has not been armed, and nothing is armed twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.decoding.loop import DrawMeter

pytestmark = pytest.mark.contract

SIZES = st.integers(1, 40)


@st.composite
def groups_of_draws(draw: st.DrawFn) -> tuple[int, int, list[list[int]]]:
    """(instalment, draws planned, for each group of batches the draws it makes, from 0)."""
    size, planned = draw(SIZES), draw(st.integers(1, 120))
    lengths = draw(st.lists(st.integers(1, planned), min_size=1, max_size=5))
    return size, planned, [list(range(length)) for length in lengths]


@given(groups_of_draws())
def test_every_draw_is_armed_before_it_is_admitted_and_armed_once(case) -> None:
    size, planned, groups = case
    armed: list[int] = []
    meter = DrawMeter(size, planned, armed.append)
    for group in groups:
        for number in group:
            meter.admit(number)
            assert number < len(armed) * size
    longest = max(len(group) for group in groups)
    assert armed == list(range(-(-longest // size)))  # no more than the longest text needs


def test_a_late_group_uses_what_is_prepaid_and_then_arms_on() -> None:
    armed: list[int] = []
    meter = DrawMeter(4, 12, armed.append)
    for number in range(6):  # the first group ends early, in its second instalment
        meter.admit(number)
    assert armed == [0, 1]
    for number in range(8):
        meter.admit(number)
    assert armed == [0, 1]
    meter.admit(8)
    assert armed == [0, 1, 2]


def test_a_jump_arms_everything_up_to_it() -> None:
    armed: list[int] = []
    DrawMeter(4, 12, armed.append).admit(9)
    assert armed == [0, 1, 2]


@pytest.mark.parametrize("draw", [-1, 12, 13])
def test_a_draw_outside_the_plan_is_refused_and_arms_nothing(draw: int) -> None:
    armed: list[int] = []
    with pytest.raises(ValueError, match=f"draw {draw} is not among the plan's 12"):
        DrawMeter(4, 12, armed.append).admit(draw)
    assert armed == []


def test_a_refused_instalment_admits_no_draw_later_either() -> None:
    calls: list[int] = []

    def refuse(number: int) -> None:
        calls.append(number)
        raise PermissionError

    meter = DrawMeter(4, 12, refuse)
    for _ in range(2):
        with pytest.raises(PermissionError):
            meter.admit(0)
    assert calls == [0, 0]


def test_lost_draws_are_behind_us_and_paid_instalments_are_used() -> None:
    armed: list[int] = []
    meter = DrawMeter(4, 12, armed.append, armed=2, lost=3)
    for number in range(5):
        meter.admit(number)  # the batch's draws 3 to 7
    assert armed == []
    meter.admit(5)
    assert armed == [2]
    with pytest.raises(ValueError, match="draw 9 is not among the plan's 9"):
        meter.admit(9)
