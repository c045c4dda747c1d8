"""One schedule carried out by hand: what is due now, or a moment that somebody names."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from flows.schedules.poller import Look, Poller, Settings
from flows.schedules.recurrence import StartUnfit, Timetable
from flows.schedules.slots import Due, due_slot
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.home import ProjectHome
from models_db.services.catalogue import schedules
from models_db.services.catalogue.schedules import Timing
from models_db.tables import Schedule


def carry_out(
    home: ProjectHome, number: int, slot: str | None, now: datetime, settings: Settings | None = None
) -> Look:
    """Decide a slot and run what it has become; without a `slot`, what is due and what is still to be run.

    Raises:
        ScheduleUnknown: there is no such schedule.
        NotASlot: it is due at no such moment, or not yet.
        NothingDue: nothing is due, and nothing is to be run.
        SlotTaken, ScheduleIdle: it is decided, or the schedule is paused or over.
        And as `flows.schedules.slots.decide`.
    """
    workspace = open_workspace(home)
    with workspace.database.read() as session:
        schedule = schedules.find_schedule(session, number)
        wanted = due_slot(session, schedule, now) if slot is None else _named(schedule, slot, now)
        waiting = schedules.unfinished_slots(session, number)
    poller = Poller(home, settings or Settings())
    if wanted is not None:
        return poller.slot(Due(number, wanted))
    if not waiting:
        raise NothingDue(number)
    return poller.unfinished(number)


def _named(schedule: Schedule, written: str, now: datetime) -> str:
    """The moment that somebody has written, on the schedule's clock unless it says which."""
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        raise StartUnfit(written) from None
    at = (found if found.tzinfo else found.replace(tzinfo=ZoneInfo(schedule.zone))).astimezone(UTC)
    if at > now or Timetable.of(Timing.of_schedule(schedule)).newest(at) != at:
        raise NotASlot(schedule.id, written)
    return utc_now(at)


class NotASlot(UsageError):
    """A moment at which a schedule is not due, or not yet."""

    def __init__(self, number: int, written: str) -> None:
        super().__init__(
            f"{written} is no moment of schedule {number} that has come.",
            f"See its moments with `almoner schedule show {number}`.",
            {"schedule": number, "slot": written},
        )


class NothingDue(Refused):
    """Everything that has come is decided and run."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Nothing of schedule {number} is due, and nothing is to be run.",
            f"See when it is due next: `almoner schedule show {number}`.",
            {"schedule": number},
        )
