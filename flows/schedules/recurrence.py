"""When a schedule is due: Prefect's schedules, and what almoner refuses of them.

A cron line and a recurrence rule (RFC 5545) say times of a wall clock. A time that the clock shows twice is due once,
the first time. One that it leaves out is due as much later as the clock was set forward or, of a recurrence rule, as
much earlier. An interval counts elapsed time and knows no clock. Every time is in UTC, and two of them are at least a
minute apart.
"""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services.schedules import Timing
from tasks.common.extras import require_orchestration

INTERVAL_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST_RULE: Final = 1000
LONGEST_STEP: Final = timedelta(days=3660)
LAST_YEAR: Final = 9000
"""Last year of a start; later years come too close to the end of Python's calendar."""
MOST_TIMES: Final = 1000
"""Most times that Prefect computes in one call."""
_INTERVAL = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_REFUSED_RRULES = {
    r"FREQ=(SECONDLY|MINUTELY)|BYSECOND|BYMINUTE=[^;]*,": "it is due more than once an hour; use --cron or --every",
    r"INTERVAL=(?!0*[1-9][0-9]*(;|$))": "its INTERVAL is not a whole number from 1",
    r"UNTIL=[^;]*Z": "its UNTIL is in UTC; write it in the time of --zone, without Z",
    r"DTSTART|RDATE|EXDATE|EXRULE|\n": "it must be one RRULE, without a start; use --start",
}
"""Recurrence rules, in upper case, that Prefect would take; with an INTERVAL of 0, it would search for ever."""
_RULE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""Errors of Prefect and of the libraries behind it for an invalid rule."""


def parse_timing(kind: str, rule: str, zone: str, start: str | None, now: datetime) -> Timing:
    """Return the checked recurrence of a schedule's options.

    Args:
        start: a date or time on the clock of `zone`; None is the next full minute or, for an interval, one step later.

    Raises:
        UsageError: one of them is invalid (`ZoneUnknown`, `InvalidStartTime`, `InvalidScheduleRule`), or the rule is
            never due.
        EnvironmentProblem: Prefect is not installed.
    """
    rule = " ".join(rule.split())
    _load_zone(zone)
    begins = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if kind == "interval":
        begins += parse_interval(rule)
    if start is not None:
        begins = parse_time(start, zone)
    timing = Timing(kind, rule, zone, utc_now(begins))
    if not due_times(timing, now):
        raise _invalid_rule(timing, "it is never due")
    return timing


def due_times(timing: Timing, start: datetime, end: datetime | None = None, most: int = 1) -> list[datetime]:
    """Return the first times of a schedule from `start` to `end`, both included.

    Args:
        most: how many at most, up to `MOST_TIMES`.

    Raises:
        UsageError: the ledger holds a rule or a time zone that this machine cannot read (`InvalidScheduleRule`,
            `ZoneUnknown`).
        EnvironmentProblem: Prefect is not installed.
    """
    schedule = _prefect_schedule(timing)
    start = max(start, datetime.fromisoformat(timing.starts_at))
    try:
        times = asyncio.run(schedule.get_dates(n=most, start=start, end=end))
    except _RULE_ERRORS:
        raise _invalid_rule(timing, "its times cannot be computed") from None
    return [datetime.fromtimestamp(each.timestamp(), UTC) for each in times]


def latest_time(timing: Timing, since: datetime, now: datetime) -> datetime | None:
    """Return the latest time of a schedule from `since` to `now`, both included; None if there is none.

    Prefect computes forwards only, so the latest time is found by bisection.

    Raises:
        as `due_times`.
    """
    found, beyond = due_times(timing, since, now), now + timedelta(microseconds=1)
    latest = found[0] if found else None
    while latest is not None and beyond - latest > timedelta(minutes=1):
        middle = latest + (beyond - latest) / 2
        later = due_times(timing, middle, now)
        latest, beyond = (later[0], beyond) if later else (latest, middle)
    return latest


def schedule_fields(timing: Timing) -> dict[str, Any]:
    """Return a rule as the fields of Prefect's schedule of its kind.

    Raises:
        UsageError: almoner refuses the rule (`InvalidScheduleRule`), or this machine does not know its time zone
            (`ZoneUnknown`).
    """
    zone, starts_at = _load_zone(timing.zone), datetime.fromisoformat(timing.starts_at)
    if len(timing.rule) > LONGEST_RULE:
        raise _invalid_rule(timing, f"it is longer than {LONGEST_RULE} characters")
    if timing.kind == "interval":
        return {"interval": parse_interval(timing.rule), "anchor_date": starts_at, "timezone": "UTC"}
    if timing.kind == "cron":
        if len(timing.rule.split()) != 5:
            raise _invalid_rule(timing, "a cron line has five fields: minute, hour, day, month, day of the week")
        return {"cron": timing.rule, "timezone": timing.zone}
    rule = timing.rule.upper().removeprefix("RRULE:")
    for pattern, reason in _REFUSED_RRULES.items():
        if re.search(pattern, rule):
            raise _invalid_rule(timing, reason)
    begins = starts_at.astimezone(zone)
    return {"rrule": f"DTSTART:{begins:%Y%m%dT%H%M%S}\nRRULE:{rule}", "timezone": timing.zone}


def _prefect_schedule(timing: Timing) -> Any:
    """Return Prefect's schedule of the kind of a rule; its three classes share no other."""
    require_orchestration()
    from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule

    fields = schedule_fields(timing)
    schedule = {"cron": CronSchedule, "interval": IntervalSchedule, "rrule": RRuleSchedule}[timing.kind]
    try:
        return schedule(**fields)
    except _RULE_ERRORS:  # pydantic's ValidationError is a ValueError
        raise _invalid_rule(timing, "it cannot be read") from None


def parse_interval(rule: str) -> timedelta:
    """Parse an interval such as `6h`.

    Raises:
        UsageError: the text is no interval, or the interval is longer than ten years (`InvalidScheduleRule`).
    """
    match = _INTERVAL.fullmatch(rule)
    step = timedelta(**{INTERVAL_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < step <= LONGEST_STEP:
        raise _invalid_rule(
            Timing("interval", rule, "UTC", ""), "it is not a whole number followed by m, h, d or w, up to ten years"
        )
    return step


def _load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"The time zone {name!r} does not exist.",
            "Use an IANA name, such as Europe/Berlin or UTC.",
            {"zone": name},
            code="ZoneUnknown",
        ) from None


def parse_time(written: str, zone: str) -> datetime:
    """Parse a start or a slot, on the clock of `zone` unless the text names another.

    Raises:
        UsageError: it is no date or time (`InvalidStartTime`), or this machine does not know the zone (`ZoneUnknown`).
    """
    where = _load_zone(zone)
    try:
        moment = datetime.fromisoformat(written)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=where)).astimezone(UTC)
        readable = at.year <= LAST_YEAR
    except (ValueError, OverflowError):  # the first and the last day of all years are another year's elsewhere
        readable = False
    if not readable:
        raise UsageError(
            f"The start {written!r} is not a date or time.",
            "Write 2027-01-04 or 2027-01-04T06:00.",
            {"start": written},
            code="InvalidStartTime",
        )
    return at


def _invalid_rule(timing: Timing, reason: str) -> UsageError:
    shown = timing.rule[:LONGEST_RULE]
    return UsageError(
        f"The {timing.kind} {shown!r} is not a valid schedule rule: {reason}.",
        'For example --cron "0 6 * * 1", --every 12h, or --rrule "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=6;BYMINUTE=0".',
        {"kind": timing.kind, "rule": shown},
        code="InvalidScheduleRule",
    )
