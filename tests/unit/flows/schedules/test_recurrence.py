"""When schedules are due: clocks that are set forth and back, rules of every kind, and what is no rule."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from flows.schedules.recurrence import Recurrence, parse_interval, parse_timing
from models_db.services.schedules import Timing
from tests.refusals import refusal

pytestmark = pytest.mark.dear

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


def table(kind: str, rule: str, zone: str = "Europe/Berlin", start: str = "2026-01-01") -> Recurrence:
    return Recurrence.of_timing(parse_timing(kind, rule, zone, start, NOW))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_an_hour_that_the_clock_leaves_out_is_left_out() -> None:
    """On 28 March 2027 Berlin's clock goes from 02:00 to 03:00."""
    found = table("cron", "30 2 * * *").next_slots(at("2027-03-26T12:00"), 3)
    assert found == [at("2027-03-27T01:30"), at("2027-03-29T00:30"), at("2027-03-30T00:30")]


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("cron", "30 2 * * *"), ("rrule", "FREQ=DAILY;BYHOUR=2;BYMINUTE=30")],
)
def test_an_hour_that_comes_twice_counts_once(kind: str, rule: str) -> None:
    """On 25 October 2026 it goes from 03:00 back to 02:00; 02:30 is 00:30 in UTC, and 01:30 once more."""
    found = table(kind, rule).next_slots(at("2026-10-24T12:00"), 2)
    assert found == [at("2026-10-25T00:30"), at("2026-10-26T01:30")]


def test_the_newest_moment_only_grows_while_the_clock_is_set_back() -> None:
    half_hours = table("cron", "*/30 * * * *")
    found = [half_hours.latest_slot(at("2026-10-25T00:00") + timedelta(minutes=5 * n)) for n in range(48)]
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
DEAR = {("rrule", zone) for zone in ZONES if zone != "Australia/Lord_Howe"}
"""A rule of a calendar takes a second; the others run in one zone, whose clock changes by half an hour."""


@pytest.mark.parametrize(
    ("kind", "rule", "zone"),
    [
        pytest.param(kind, rule, zone, marks=[pytest.mark.slow] if (kind, zone) in DEAR else [])
        for kind, rule in RULES
        for zone in ZONES
    ],
)
def test_forwards_and_backwards_say_the_same(kind: str, rule: str, zone: str) -> None:
    """Over all changes of the clock in a year: the newest moment at any time is the last of those that came."""
    timetable = table(kind, rule, zone)
    coming = timetable.next_slots(at("2026-03-01T00:00"), 300)
    assert coming == sorted(set(coming))
    for moment, following in itertools.pairwise(coming):
        assert timetable.latest_slot(moment) == moment
        assert timetable.latest_slot(following - timedelta(seconds=1)) == moment


def test_intervals_count_elapsed_time_from_their_start() -> None:
    daily = table("interval", "1d", start="2026-10-20T06:00")
    assert daily.next_slots(at("2026-10-24T12:00"), 2) == [at("2026-10-25T04:00"), at("2026-10-26T04:00")]
    assert daily.latest_slot(at("2026-10-20T03:59")) is None
    assert daily.latest_slot(at("2026-10-20T04:00")) == at("2026-10-20T04:00")
    assert parse_interval("90m") == timedelta(minutes=90)


def test_without_a_start_an_interval_begins_one_step_from_now_and_others_in_the_next_minute() -> None:
    assert parse_timing("interval", "6h", "UTC", None, NOW).starts_at == "2026-11-21T18:01:00.000000Z"
    assert parse_timing("cron", "* * * * *", "UTC", None, NOW).starts_at == "2026-11-21T12:01:00.000000Z"
    assert Recurrence.of_timing(parse_timing("cron", "* * * * *", "UTC", None, NOW)).latest_slot(NOW) is None


def test_how_many_moments_there_are_until_a_day() -> None:
    weekly = table("cron", "0 6 * * 1", "UTC")
    assert weekly.slots_until(NOW, at("2026-12-31T23:59"), 100) == 6
    assert weekly.slots_until(NOW, at("2026-12-31T23:59"), 4) == 4


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("cron", "* * * * * *"),
        ("cron", "@daily"),
        ("cron", "61 * * * *"),
        ("cron", "0 0 30 2 *"),
        ("cron", ""),
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
    found = Recurrence.of_timing(Timing(kind, rule, "UTC", "2026-01-01T00:00:00.000000Z"))
    with refusal("InvalidScheduleRule"):
        found.latest_slot(NOW)
    with refusal("InvalidScheduleRule"):
        found.next_slots(NOW, 1)


def test_what_is_no_zone_and_no_start() -> None:
    for zone in ("Europe/Nowhere", "../etc/passwd", ""):
        with refusal("ZoneUnknown"):
            parse_timing("interval", "1h", zone, None, NOW)
    for start in ("soon", "2026-02-30", "", "0001-01-01", "9999-12-30"):
        with refusal("InvalidStartTime"):
            parse_timing("interval", "1h", "Asia/Tokyo", start, NOW)
