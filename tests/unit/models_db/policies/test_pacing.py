"""Calendar windows: every moment lies in exactly one, and the next begins where it ends."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.policies.pacing import pacing_window
from models_db.policies.policy import Period

SECONDS = st.integers(0, 10**11)
MOMENTS = SECONDS.map(lambda seconds: datetime(1970, 1, 10, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=7))
PERIODS: st.SearchStrategy[Period] = st.sampled_from(("week", "month"))
TICK = timedelta(microseconds=1)


@given(PERIODS, MOMENTS)
def test_a_moment_lies_in_its_window_and_so_does_everything_inside(period: Period, at: datetime) -> None:
    window = pacing_window(period, at)
    assert window.opens_at <= at < window.closes_at
    for inside in (window.opens_at, window.closes_at - TICK):
        assert pacing_window(period, inside) == window


@given(PERIODS, MOMENTS)
def test_windows_follow_each_other_without_gap_or_overlap(period: Period, at: datetime) -> None:
    window = pacing_window(period, at)
    assert pacing_window(period, window.closes_at).opens_at == window.closes_at
    assert pacing_window(period, window.opens_at - TICK).closes_at == window.opens_at


@given(MOMENTS)
def test_a_week_is_the_iso_week_and_a_month_the_calendar_month(at: datetime) -> None:
    week, month = pacing_window("week", at), pacing_window("month", at)
    assert week.opens_at.isocalendar()[:2] == at.isocalendar()[:2]
    assert week.closes_at - week.opens_at == timedelta(days=7)
    assert week.opens_at.isoweekday() == 1
    assert (month.opens_at.year, month.opens_at.month, month.opens_at.day) == (at.year, at.month, 1)
    assert month.closes_at.day == 1
    assert {window.time() for window in (*week, *month)} == {datetime.min.time()}


@given(PERIODS, MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_the_zone_of_whoever_asks_does_not_matter(period: Period, at: datetime, minutes: int) -> None:
    elsewhere = at.astimezone(timezone(timedelta(minutes=minutes)))
    assert pacing_window(period, elsewhere) == pacing_window(period, at)


def test_the_edges_of_years() -> None:
    assert pacing_window("week", datetime(2026, 1, 1, tzinfo=UTC)).opens_at.date() == date(2025, 12, 29)
    assert pacing_window("month", datetime(2026, 12, 31, 23, 59, tzinfo=UTC)).closes_at.date() == date(2027, 1, 1)
    assert pacing_window("month", datetime(2024, 2, 29, tzinfo=UTC)).closes_at.date() == date(2024, 3, 1)


def test_other_periods_and_times_without_a_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="no windows of a 'day'"):
        pacing_window("day", datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="no time zone"):
        pacing_window("week", datetime(2026, 1, 1))  # noqa: DTZ001
