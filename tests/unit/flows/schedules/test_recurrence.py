"""When schedules are due: clocks that are set forth and back, rules of every kind, and what is no rule."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from flows.schedules.recurrence import MOST_TIMES, due_times, latest_time, parse_interval, parse_timing
from models_db.services.schedules import Timing
from tests.refusals import refusal

pytestmark = pytest.mark.dear

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


def timing(kind: str, rule: str, zone: str = "Europe/Berlin", start: str = "2026-01-01") -> Timing:
    return parse_timing(kind, rule, zone, start, NOW)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "rule", "instead"),
    [("cron", "30 2 * * *", "01:30"), ("rrule", "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "00:30")],
)
def test_a_time_that_the_clock_leaves_out_is_due_an_hour_beside_it(kind: str, rule: str, instead: str) -> None:
    """On 28 March 2027 Berlin's clock goes from 02:00 to 03:00, which is 01:00 in UTC."""
    found = due_times(timing(kind, rule), at("2027-03-26T12:00"), most=3)
    assert found == [at("2027-03-27T01:30"), at(f"2027-03-28T{instead}"), at("2027-03-29T00:30")]


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("cron", "30 2 * * *"), ("rrule", "FREQ=DAILY;BYHOUR=2;BYMINUTE=30")],
)
def test_an_hour_that_comes_twice_counts_once(kind: str, rule: str) -> None:
    """On 25 October 2026 it goes from 03:00 back to 02:00; 02:30 is 00:30 in UTC, and 01:30 once more."""
    found = due_times(timing(kind, rule), at("2026-10-24T12:00"), most=2)
    assert found == [at("2026-10-25T00:30"), at("2026-10-26T01:30")]


def test_the_latest_time_only_grows_while_the_clock_is_set_back() -> None:
    half_hours, since = timing("cron", "*/30 * * * *"), at("2026-10-24T12:00")
    found = [latest_time(half_hours, since, at("2026-10-25T00:00") + timedelta(minutes=5 * n)) for n in range(48)]
    assert found == sorted(found, key=str)
    assert list(dict.fromkeys(found)) == [
        at("2026-10-25T00:00"), at("2026-10-25T00:30"), at("2026-10-25T02:00"), at("2026-10-25T02:30"),
        at("2026-10-25T03:00"), at("2026-10-25T03:30"),
    ]  # fmt: skip


ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]
RULES = [
    ("cron", "15 * * * *"),
    ("cron", "0 2,3 * * *"),
    ("cron", "0 6 1 * 1"),
    ("rrule", "FREQ=HOURLY;INTERVAL=5"),
    ("rrule", "FREQ=MONTHLY;BYDAY=1SU;BYHOUR=2;BYMINUTE=15"),
    ("interval", "7h"),
]
CHANGES = ("2026-03-28T00:00", "2026-04-04T00:00", "2026-10-03T00:00", "2026-10-24T00:00")
"""Times soon before the clocks of these zones change."""


@pytest.mark.parametrize(("kind", "rule"), RULES)
@pytest.mark.parametrize("zone", ZONES)
def test_the_latest_time_is_the_last_of_those_that_came(kind: str, rule: str, zone: str) -> None:
    """Also where a clock changes."""
    for change in CHANGES:
        when = timing(kind, rule, zone, change)
        coming = due_times(when, at(change), most=12)
        assert coming == sorted(set(coming))
        for moment, following in itertools.pairwise(coming):
            assert latest_time(when, at("2026-01-01T00:00"), moment) == moment
            assert latest_time(when, at("2026-01-01T00:00"), following - timedelta(seconds=1)) == moment
            assert latest_time(when, moment + timedelta(microseconds=1), following - timedelta(seconds=1)) is None


@pytest.mark.parametrize(("kind", "rule"), [("cron", "* * * * *"), ("interval", "1m")])
def test_the_latest_of_more_times_than_prefect_computes_is_found(kind: str, rule: str) -> None:
    when = timing(kind, rule, "UTC")
    assert latest_time(when, at("2026-01-01T00:00"), NOW) == NOW.replace(second=0)


def test_intervals_count_elapsed_time_from_their_start() -> None:
    daily = timing("interval", "1d", start="2026-10-20T06:00")
    assert due_times(daily, at("2026-10-24T12:00"), most=2) == [at("2026-10-25T04:00"), at("2026-10-26T04:00")]
    assert due_times(daily, at("2026-10-01T00:00")) == [at("2026-10-20T04:00")]
    assert latest_time(daily, at("2026-10-01T00:00"), at("2026-10-20T03:59")) is None
    assert latest_time(daily, at("2026-10-01T00:00"), at("2026-10-20T04:00")) == at("2026-10-20T04:00")
    assert parse_interval("90m") == timedelta(minutes=90)


def test_without_a_start_an_interval_begins_one_step_from_now_and_others_in_the_next_minute() -> None:
    assert parse_timing("interval", "6h", "UTC", None, NOW).starts_at == "2026-11-21T18:01:00.000000Z"
    minutes = parse_timing("cron", "* * * * *", "UTC", None, NOW)
    assert minutes.starts_at == "2026-11-21T12:01:00.000000Z"
    assert latest_time(minutes, at("2026-01-01T00:00"), NOW) is None


@pytest.mark.parametrize("rule", ["FREQ=DAILY;COUNT=3", "RRULE:freq=daily;count=3"])
def test_a_rule_counts_from_its_start_and_may_have_its_name(rule: str) -> None:
    """A ledger may hold a rule with the name of its property before it."""
    found = due_times(timing("rrule", rule, "UTC", "2026-12-01T06:00"), NOW, most=9)
    assert found == [at("2026-12-01T06:00"), at("2026-12-02T06:00"), at("2026-12-03T06:00")]


def test_how_many_times_there_are_until_a_day() -> None:
    weekly = timing("cron", "0 6 * * 1", "UTC")
    assert len(due_times(weekly, NOW, at("2026-12-31T23:59"), 100)) == 6
    assert len(due_times(weekly, NOW, at("2026-12-31T23:59"), 4)) == 4
    for rule in (("cron", "* * * * *"), ("interval", "1m"), ("rrule", "FREQ=HOURLY")):
        assert len(due_times(timing(*rule), NOW, at("2099-12-31T23:59"), MOST_TIMES)) == MOST_TIMES


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("cron", "* * * * * *"),
        ("cron", "@daily"),
        ("cron", "61 * * * *"),
        ("cron", "0 0 30 2 *"),
        ("cron", ""),
        ("cron", "H 6 * * 1"),
        ("interval", "5s"),
        ("interval", "0h"),
        ("interval", "1.5h"),
        ("interval", "-1h"),
        ("interval", "99999w"),
        ("rrule", "FREQ=MINUTELY"),
        ("rrule", "FREQ=HOURLY;BYMINUTE=0,30"),
        ("rrule", "FREQ=YEARLY;BYMONTH=13"),
        ("rrule", "FREQ=DAILY;UNTIL=20200101"),
        ("rrule", "DTSTART:20260101T000000 RRULE:FREQ=DAILY"),
        ("rrule", "FREQ=DAILY;INTERVAL=0"),
        ("rrule", "FREQ=DAILY;INTERVAL=-1"),
        ("rrule", "FREQ=DAILY;INTERVAL=often"),
        ("rrule", "FREQ=DAILY;interval=00"),
        ("rrule", "FREQ=DAILY;\u0131nterval=0"),  # its upper case is INTERVAL
        ("rrule", "FREQ=DAILY;UNTIL=20270101T000000Z"),
        ("rrule", "RDATE:20270101T000000"),
        ("rrule", "every day"),
        ("rrule", "FREQ=DAILY;" * 100),
    ],
)
def test_what_is_no_rule(kind: str, rule: str) -> None:
    with refusal("InvalidScheduleRule") as unfit:
        parse_timing(kind, rule, "UTC", None, NOW)
    assert unfit.value.facts["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("rrule", "FREQ=DAILY;INTERVAL=0"), ("rrule", "every day"), ("cron", "61 * * * *"), ("interval", "0h")],
)
def test_a_rule_that_is_none_is_so_in_the_ledger_too(kind: str, rule: str) -> None:
    """Whatever put it there: whoever looks gets an answer, and does not look for its next time for ever."""
    recorded = Timing(kind, rule, "UTC", "2026-01-01T00:00:00.000000Z")
    with refusal("InvalidScheduleRule"):
        latest_time(recorded, at("2026-01-01T00:00"), NOW)
    with refusal("InvalidScheduleRule"):
        due_times(recorded, NOW)


def test_what_is_no_zone_and_no_start() -> None:
    for zone in ("Europe/Nowhere", "../etc/passwd", ""):
        with refusal("ZoneUnknown"):
            parse_timing("interval", "1h", zone, None, NOW)
    for start in ("soon", "2026-02-30", "", "0001-01-01", "9999-12-30"):
        with refusal("InvalidStartTime"):
            parse_timing("interval", "1h", "Asia/Tokyo", start, NOW)
