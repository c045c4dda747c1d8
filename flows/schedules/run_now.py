"""Run of one schedule by hand: its due slots, or one named slot."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from flows.schedules.poller import Poller, PollerSettings, PollResult
from flows.schedules.recurrence import due_times, invalid_start
from flows.schedules.slots import DueSlot, find_due_slot
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import schedules
from models_db.services.schedules import Timing
from models_db.tables import Schedule


def run_schedule_now(
    home: ProjectHome, number: int, slot: str | None, now: datetime, settings: PollerSettings | None = None
) -> PollResult:
    """Decide a slot and run its request; without `slot`, decide the due slot and run the pending requests.

    Raises:
        UsageError: there is no such schedule (`ScheduleUnknown`).
        UsageError: the schedule has no slot at that time, or it is not due yet (`NoSuchSlot`).
        Refused: no slot is due, and no request is pending (`NothingDue`).
        SlotTaken: the slot is already decided.
        ScheduleNotActive: the schedule is paused or over.
        The errors of `flows.schedules.slots.decide_slot`.
    """
    workspace = open_workspace(home)
    with workspace.database.read() as session:
        schedule = schedules.find_schedule(session, number)
        due_slot = find_due_slot(session, schedule, now) if slot is None else _parse_slot_time(schedule, slot, now)
        waiting = schedules.unfinished_slots(session, number)
    poller = Poller(home, settings or PollerSettings())
    if due_slot is not None:
        return poller.run_slot(DueSlot(number, due_slot))
    if not waiting:
        raise Refused(
            f"Schedule {number} has no slot that is due.",
            f"See its rule and its slots with `almoner schedule show {number}`.",
            {"schedule": number},
            code="NothingDue",
        )
    return poller.run_unfinished(number)


def _parse_slot_time(schedule: Schedule, written: str, now: datetime) -> str:
    """Parse a time, on the schedule's clock unless the text names a zone."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise invalid_start(written) from None
    at = (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(schedule.zone))).astimezone(UTC)
    if at > now or due_times(Timing.of_schedule(schedule), at, at) != [at]:
        raise UsageError(
            f"Schedule {schedule.id} has no slot at {written} that is due.",
            f"See its slots with `almoner schedule show {schedule.id}`.",
            {"schedule": schedule.id, "slot": written},
            code="NoSuchSlot",
        )
    return utc_now(at)
