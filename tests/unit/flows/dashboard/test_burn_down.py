"""Burn-downs: what was left each day, and when nothing would be."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.dashboard.burn_down import BurnPoint, burn_down_of

TODAY = date(2026, 11, 21)
START = "2026-10-02"  # fifty days, today among them, with what follows


def test_what_is_left_goes_down_in_steps() -> None:
    found = burn_down_of([("2026-10-02", 100), ("2026-11-01", 300)], 1000, 0, START, TODAY)
    assert found.points == (
        BurnPoint("2026-10-01", "100"), BurnPoint("2026-10-02", "90"), BurnPoint("2026-11-01", "60"),
        BurnPoint("2026-11-21", "60"),
    )  # fmt: skip
    assert (found.recent_percent, found.recent_days) == ("40", 51)


def test_the_pace_of_late_is_gone_on_with() -> None:
    found = burn_down_of([("2026-10-02", 100), ("2026-11-01", 300)], 1000, 0, START, TODAY)
    assert found.outlook == "near"
    assert found.gone_on == (TODAY + timedelta(days=600 * 51 // 400)).isoformat()


def test_only_the_last_months_count() -> None:
    found = burn_down_of([("2025-01-01", 500), ("2026-11-20", 91)], 1000, 0, "2025-01-01", TODAY)
    assert (found.recent_percent, found.recent_days) == ("9.1", 90)
    assert found.gone_on == (TODAY + timedelta(days=409 * 90 // 91)).isoformat()


def test_what_is_left_is_rounded_down() -> None:
    """As in all other figures: a page shows no two of one balance."""
    assert burn_down_of([("2026-11-01", 1)], 3000, 0, START, TODAY).points[-1].left_percent == "99.9"


@pytest.mark.parametrize(
    ("spent", "since", "outlook"),
    [
        ([], START, "far"),
        ([], "2026-11-21", "early"),
        ([("2026-11-21", 500)], "2026-11-15", "early"),
        ([("2026-10-05", 1)], START, "far"),
        ([("2026-10-05", 1000)], START, "gone"),
        ([("2025-10-05", 900)], "2025-01-01", "far"),
    ],
)
def test_other_outlooks_name_no_day(spent: list[tuple[str, int]], since: str, outlook: str) -> None:
    found = burn_down_of(spent, 1000, 0, since, TODAY)
    assert (found.outlook, found.gone_on) == (outlook, None)


days = st.dates(date(2025, 1, 1), TODAY).map(date.isoformat)


@given(st.dictionaries(days, st.integers(1, 10**12)), days)
def test_nothing_ever_comes_back(spent: dict[str, int], since: str) -> None:
    """Also where the cap was lowered below what a day had, or a day is before the first."""
    found = burn_down_of(sorted(spent.items()), 10**12, 3, min([since, *spent]), TODAY)
    left = [float(point.left_percent) for point in found.points]
    assert all(earlier >= later for earlier, later in pairwise(left))
    assert left[0] == 100
    assert [point.day for point in found.points] == sorted({point.day for point in found.points})
    assert found.points[-1].day == TODAY.isoformat()
