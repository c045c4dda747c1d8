"""Recurrence of a schedule: cron lines, intervals and recurrence rules in a time zone with clock changes.

A cron line (cronsim) and a recurrence rule (RFC 5545, dateutil) say times of a wall clock. An hour that the clock
leaves out is left out; one that it shows twice counts once, the first time. An interval counts elapsed time and knows
no clock.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services.schedules import Timing

INTERVAL_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_INTERVAL = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_LONGEST_RULE = 1000
_LONGEST_STEP = timedelta(days=3660)
_LAST_YEAR = 9000
"""Last year of computed times; later years come too close to the end of Python's calendar."""
_TOO_OFTEN = re.compile(r"FREQ=(SECONDLY|MINUTELY)|BYSECOND|BYMINUTE=[^;]*,", re.IGNORECASE)
_RRULE_INTERVAL = re.compile(r"INTERVAL=([^;]*)", re.IGNORECASE)
_UNTIL_IN_UTC = re.compile(r"UNTIL=[^;]*Z", re.IGNORECASE)
_RULE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""Errors of the libraries for an invalid rule."""
_CLOCK_CHANGE_MARGIN = timedelta(hours=26)
"""Largest step by which a clock is set back."""


@dataclass(frozen=True)
class Recurrence:
    """The times of one schedule, all in UTC; see `Timing`."""

    kind: str
    rule: str
    zone: ZoneInfo
    starts_at: datetime

    @classmethod
    def of_timing(cls, timing: Timing) -> "Recurrence":
        """Return the recurrence that a schedule's row describes.

        Raises:
            UsageError: this machine does not know its time zone (`ZoneUnknown`).
        """
        return cls(timing.kind, timing.rule, _load_zone(timing.zone), datetime.fromisoformat(timing.starts_at))

    def latest_slot(self, now: datetime) -> datetime | None:
        """Return the latest time that is not after `now`; None if there is none.

        Raises:
            UsageError: the ledger holds an invalid rule (`InvalidScheduleRule`).
        """
        if now < self.starts_at:
            return None
        if self.kind == "interval":
            step = parse_interval(self.rule)
            return self.starts_at + (now - self.starts_at) // step * step
        for wall in self._backwards(self._wall_clock(now) + self._clock_change(now)):
            slot = self._utc_time(wall)
            if slot is not None and slot <= now:
                return slot if slot >= self.starts_at else None
        return None

    def next_slots(self, after: datetime, number: int) -> list[datetime]:
        """Return the next times later than `after`, at most `number`."""
        after = max(after, self.starts_at - timedelta(microseconds=1))
        return list(islice(self._forwards(after), number))

    def slots_until(self, after: datetime, last: datetime, most: int) -> int:
        """Count the times later than `after` and not later than `last`, up to `most`."""
        after = max(after, self.starts_at - timedelta(microseconds=1))
        return sum(1 for _ in islice(takewhile(lambda at: at <= last, self._forwards(after)), most))

    def _forwards(self, after: datetime) -> Iterator[datetime]:
        if self.kind == "interval":
            step = parse_interval(self.rule)
            number = (after - self.starts_at) // step + 1
            while True:
                yield self.starts_at + number * step
                number += 1
        for wall in self._wall_times(self._wall_clock(after)):
            moment = self._utc_time(wall)
            if moment is not None and moment > after:
                yield moment

    def _wall_clock(self, at: datetime) -> datetime:
        return at.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _utc_time(self, wall: datetime) -> datetime | None:
        """Return the first instant at which the clock shows that time; None if it never does."""
        moment = wall.replace(tzinfo=self.zone).astimezone(UTC)  # fold is 0: the first of two
        return moment if self._wall_clock(moment) == wall else None

    def _clock_change(self, now: datetime) -> timedelta:
        """Return by how much the clock was recently set back: it has already shown the times just ahead of it."""
        before, after = (at.astimezone(self.zone).utcoffset() for at in (now - _CLOCK_CHANGE_MARGIN, now))
        return max((before or timedelta()) - (after or timedelta()), timedelta())

    def _wall_times(self, after: datetime) -> Iterator[datetime]:
        if self.kind == "rrule":
            return iter(_rrule_times(self.rule, self._wall_clock(self.starts_at)).xafter(after))
        return _cron_times(self.rule, after)

    def _backwards(self, until: datetime) -> Iterator[datetime]:
        """Yield the rule's times on the wall clock up to and including `until`, the latest first."""
        if self.kind == "rrule":
            rule = _rrule_times(self.rule, self._wall_clock(self.starts_at))
            slot = rule.before(until, inc=True)
            while slot is not None:
                yield slot
                slot = rule.before(slot)
            return
        yield from _cron_times(self.rule, until.replace(microsecond=0) + timedelta(seconds=1), reverse=True)


def parse_interval(rule: str) -> timedelta:
    """Parse an interval such as `6h`.

    Raises:
        UsageError: the text is no interval, or the interval is longer than ten years (`InvalidScheduleRule`).
    """
    match = _INTERVAL.fullmatch(rule)
    if match is None:
        raise _invalid_rule("interval", rule, "it is not a whole number followed by m, h, d or w")
    step = int(match[1]) * INTERVAL_UNITS[match[2]]
    if step > _LONGEST_STEP:
        raise _invalid_rule("interval", rule, "it is longer than ten years")
    return step


def parse_timing(kind: str, rule: str, zone: str, start: str | None, now: datetime) -> Timing:
    """Return the checked recurrence of a schedule's options.

    Args:
        start: a date or time on the clock of `zone`; None is the next full minute or, for an interval, one step later.

    Raises:
        UsageError: one of them is invalid (`ZoneUnknown`, `InvalidStartTime`, `InvalidScheduleRule`).
    """
    rule = " ".join(rule.split())
    where, begins = _load_zone(zone), now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if kind == "interval":
        begins += parse_interval(rule)
    if start is not None:
        begins = _parse_start(start, where)
        if begins.year > _LAST_YEAR:
            raise invalid_start(start)
    timing = Timing(kind, rule, zone, utc_now(begins))
    _require_valid_rule(timing, now)
    return timing


def _require_valid_rule(timing: Timing, now: datetime) -> None:
    """Check that the rule is valid and has a future time."""
    if len(timing.rule) > _LONGEST_RULE:
        raise _invalid_rule(timing.kind, timing.rule[:40], f"it is longer than {_LONGEST_RULE} characters")
    if timing.kind == "cron" and len(timing.rule.split()) != 5:
        raise _invalid_rule(
            timing.kind, timing.rule, "a cron line has five fields: minute, hour, day, month, day of the week"
        )
    if timing.kind == "rrule" and (frequency := _TOO_OFTEN.search(timing.rule)):
        raise _invalid_rule(timing.kind, timing.rule, f"{frequency[0]!r} is too frequent; use --cron or --every")
    try:
        coming = Recurrence.of_timing(timing).next_slots(now, 1)
    except _RULE_ERRORS:
        raise _invalid_rule(timing.kind, timing.rule, "it cannot be read") from None
    if not coming:
        raise _invalid_rule(timing.kind, timing.rule, "it is never due")


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


def _parse_start(written: str, zone: ZoneInfo) -> datetime:
    try:
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):  # the first and the last day of all years are another year's elsewhere
        raise invalid_start(written) from None


def _cron_times(rule: str, at: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError  # only schedules need it

    try:
        return CronSim(rule, at, reverse=reverse)
    except CronSimError:
        raise _invalid_rule("cron", rule, "it cannot be read") from None


def _rrule_times(rule: str, start: datetime) -> Any:
    """Return the times of a recurrence rule on a wall clock.

    Raises:
        UsageError: the rule is invalid, or its interval is zero: dateutil would search for ever.
    """
    from dateutil.rrule import rrule, rrulestr  # only schedules need it

    if "\n" in rule or "DTSTART" in rule.upper():
        raise _invalid_rule("rrule", rule, "it must be one RRULE, without a start; use --start")
    if _UNTIL_IN_UTC.search(rule):
        raise _invalid_rule("rrule", rule, "its UNTIL is in UTC; write it in the time of --zone, without Z")
    try:
        stands = any(int(each) < 1 for each in _RRULE_INTERVAL.findall(rule))
        rule_set = None if stands else rrulestr(rule, dtstart=start)
    except _RULE_ERRORS:
        raise _invalid_rule("rrule", rule, "it cannot be read") from None
    if not isinstance(rule_set, rrule):
        raise _invalid_rule("rrule", rule, "its INTERVAL is less than 1" if stands else "it is not an RRULE")
    return rule_set


def _invalid_rule(kind: str, rule: str, reason: str) -> UsageError:
    return UsageError(
        f"The {kind} {rule!r} is not a valid schedule rule: {reason}.",
        'For example --cron "0 6 * * 1", --every 12h, or --rrule "FREQ=MONTHLY;BYDAY=1MO;BYHOUR=6;BYMINUTE=0".',
        {"kind": kind, "rule": rule},
        code="InvalidScheduleRule",
    )


def invalid_start(written: str) -> UsageError:
    """Return the error of a start, or of a slot, that is no date or time."""
    return UsageError(
        f"The start {written!r} is not a date or time.",
        "Write 2027-01-04 or 2027-01-04T06:00.",
        {"start": written},
        code="InvalidStartTime",
    )
