"""Days of grants, in UTC."""

import pytest

from flows.governance.principals import parse_period
from models_db.database.base import utc_now
from tests.refusals import refusal


def test_a_period_is_whole_days() -> None:
    start, end = parse_period("2090-01-01", "2090-01-31")
    assert (start, end) == ("2090-01-01T00:00:00.000000Z", "2090-02-01T00:00:00.000000Z")


def test_without_days_it_begins_now_and_has_no_end() -> None:
    before = utc_now()
    start, end = parse_period(None, None)
    assert before <= start <= utc_now()
    assert end is None


def test_the_last_day_counts() -> None:
    today = utc_now()[:10]
    start, end = parse_period(None, today)
    assert end is not None
    assert start < end


@pytest.mark.parametrize(("since", "until"), [(None, "2020-01-01"), ("2090-01-02", "2090-01-01")])
def test_no_day_at_all_is_refused(since: str | None, until: str) -> None:
    with refusal("InvalidPeriod"):
        parse_period(since, until)


@pytest.mark.parametrize("written", ["tomorrow", "2090-02-30", "9999-12-31", "2090-01-01T00:00", ""])
def test_what_is_no_day_is_refused(written: str) -> None:
    with refusal("InvalidDate"):
        parse_period(None, written)
