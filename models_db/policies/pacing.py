"""Calendar windows of pacing accounts: ISO weeks and months, in UTC."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class CalendarWindow(NamedTuple):
    """Window of time from `opens_at`, included, to `closes_at`, excluded; both in UTC."""

    opens_at: datetime
    closes_at: datetime


def pacing_window(period: str, at: datetime) -> CalendarWindow:
    """Return the window that `at` lies in. Windows of one period follow each other without gap or overlap.

    Raises:
        ValueError: `at` has no time zone, or the period is neither 'week' nor 'month'.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone")
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return CalendarWindow(monday, monday + timedelta(days=7))
    if period != "month":
        raise ValueError(f"no windows of a {period!r}")
    first = day.replace(day=1)
    return CalendarWindow(first, (first + timedelta(days=31)).replace(day=1))
