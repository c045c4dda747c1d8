"""Schedules and their slots: creation, changes, and exactly one decision for each moment at which a schedule was due.

A slot is decided in one row: it became a request, or was skipped. The row, the request and the link that records both
are one transaction, so a process that dies before its end has decided nothing. Slots of a schedule only go forward: one
transaction writes at a time, so after a clock was set back, beside a second process and after a restart, that slot or a
later one is already decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import people, requests
from models_db.services.audit.chain import Actor
from models_db.tables import Dataset, Proposal, Schedule, ScheduleChange, ScheduleSlot, SlotEnd, Transition
from models_db.values.request_state import UNRUN_STATES, RequestState
from models_db.writes.database_errors import RuleViolated, role_denied
from models_db.writes.insert import insert_row

STATE_AFTER_CHANGE = {"paused": "paused", "resumed": "active", "ended": "ended"}
FINISHED_STATES = (RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.PRODUCED)
"""Steps after which nothing is left to be run."""

_BY_RIGHT = "only a steward, or who made it, changes a schedule; what somebody else has paused a steward resumes"


class SlotTaken(Refused):
    """The slot of a schedule, or a later slot, is already decided."""

    def __init__(self, number: int, slot: str) -> None:
        super().__init__(
            f"The slot {slot} of schedule {number}, or a later one, is decided already.",
            f"See the outcome with `almoner schedule show {number}`.",
            {"schedule": number, "slot": slot},
        )


class ScheduleNotActive(Refused):
    """A schedule that is paused or over takes no slot, and not every change."""

    def __init__(self, number: int, state: str) -> None:
        super().__init__(
            f"Schedule {number} is {state}.",
            f"See it with `almoner schedule show {number}`; a paused one goes on with `almoner schedule resume`.",
            {"schedule": number, "state": state},
        )


@dataclass(frozen=True)
class Timing:
    """Recurrence of a schedule: the kind of the rule, the rule, its time zone and its start."""

    kind: str
    rule: str
    zone: str
    starts_at: str

    @classmethod
    def of_schedule(cls, schedule: Schedule) -> "Timing":
        """Return the recurrence of a recorded schedule."""
        return cls(schedule.kind, schedule.rule, schedule.zone, schedule.starts_at)


def create(
    session: Session, actor: Actor, dataset: Dataset, standing: Proposal, timing: Timing, reason: str
) -> Schedule:
    """Record a schedule.

    Raises:
        RoleDenied: the actor is no analyst.
        RuleViolated: the proposal is no standing authorisation of that dataset.
    """
    if standing.kind != "standing" or standing.dataset_id != dataset.id:
        raise RuleViolated("a schedule draws on a standing authorisation of its own dataset")
    return insert_row(
        session,
        Schedule(dataset_id=dataset.id, standing_id=standing.id, kind=timing.kind, rule=timing.rule, zone=timing.zone,
                 starts_at=timing.starts_at, reason=reason, created_at=utc_now(), created_by=actor.id),
    )  # fmt: skip


def find_schedule(session: Session, number: int) -> Schedule:
    """Return the schedule with that number.

    Raises:
        UsageError: there is none (`ScheduleUnknown`).
    """
    schedule = session.get(Schedule, number)
    if schedule is None:
        raise UsageError(
            f"There is no schedule {number}.",
            "See them with `almoner schedule list`.",
            {"schedule": number},
            code="ScheduleUnknown",
        )
    return schedule


def list_all(session: Session, dataset: str | None = None) -> Sequence[Schedule]:
    """Return all schedules, or those of one dataset, oldest first."""
    query = select(Schedule).order_by(Schedule.id)
    if dataset is not None:
        query = query.join(Dataset, Dataset.id == Schedule.dataset_id).where(Dataset.name == dataset)
    return session.scalars(query).all()


def list_changes(session: Session, number: int) -> Sequence[ScheduleChange]:
    """Return every change of a schedule, oldest first."""
    query = select(ScheduleChange).where(ScheduleChange.schedule_id == number)
    return session.scalars(query.order_by(ScheduleChange.number)).all()


def state_of(session: Session, number: int) -> str:
    """Return the state of a schedule: active, paused or ended."""
    changes = list_changes(session, number)
    return STATE_AFTER_CHANGE[changes[-1].kind] if changes else "active"


def due_from(session: Session, schedule: Schedule) -> str:
    """Return the moment before which nothing is due: slots during a pause are not caught up."""
    resumed = [change.at for change in list_changes(session, schedule.id) if change.kind == "resumed"]
    return max([schedule.starts_at, *resumed])


def record_change(session: Session, actor: Actor, number: int, kind: str, reason: str) -> None:
    """Pause, resume or end a schedule.

    Raises:
        UsageError: there is none (`ScheduleUnknown`).
        ScheduleNotActive: it is not where this change begins.
        RoleDenied: only a steward or its creator changes it, and only a steward resumes it after another paused it.
    """
    schedule = find_schedule(session, number)
    allowed_states = {"paused": ("active",), "resumed": ("paused",), "ended": ("active", "paused")}[kind]
    state = state_of(session, number)
    if state not in allowed_states:
        raise ScheduleNotActive(number, state)
    earlier = list_changes(session, number)
    own = schedule.created_by == actor.id and (kind != "resumed" or earlier[-1].actor_id == actor.id)
    if not own and "steward" not in people.roles_of(session, actor.id):
        raise role_denied(_BY_RIGHT)
    change = ScheduleChange(schedule_id=number, number=len(earlier) + 1, kind=kind, reason=reason, at=utc_now(),
                            actor_id=actor.id)  # fmt: skip
    insert_row(session, change)


def newest_slot(session: Session, number: int) -> ScheduleSlot | None:
    """Return the last slot of a schedule that was decided."""
    query = select(ScheduleSlot).where(ScheduleSlot.schedule_id == number)
    return session.scalars(query.order_by(ScheduleSlot.slot.desc()).limit(1)).one_or_none()


def newest_slots(session: Session, number: int, limit: int = 20) -> Sequence[ScheduleSlot]:
    """Return the newest slots of a schedule, newest first."""
    query = select(ScheduleSlot).where(ScheduleSlot.schedule_id == number)
    return session.scalars(query.order_by(ScheduleSlot.slot.desc()).limit(limit)).all()


def require_slot_open(session: Session, number: int, slot: str) -> None:
    """Check that a slot is still to be decided; the caller has locked the schedule.

    Raises:
        ScheduleNotActive: the schedule is paused or over.
        SlotTaken: that slot or a later one is decided.
    """
    if (state := state_of(session, number)) != "active":
        raise ScheduleNotActive(number, state)
    newest = newest_slot(session, number)
    if newest is not None and newest.slot >= slot:
        raise SlotTaken(number, slot)


def record_slot(
    session: Session,
    actor: Actor,
    schedule: Schedule,
    slot: str,
    *,
    request_id: int | None = None,
    skipped: str | None = None,
    detail: str = "",
) -> ScheduleSlot:
    """Record the decision on a slot: its request, or the name of the refusal for which it was skipped.

    Raises:
        SlotTaken: that slot or a later one is decided.
        ScheduleNotActive: the schedule is paused or over.
        RoleDenied, RuleViolated: the actor may not decide it, or it has not come.
    """
    require_slot_open(session, schedule.id, slot)
    now = utc_now()
    if not schedule.starts_at <= slot <= now:
        raise RuleViolated("a slot is not taken before it has come")
    slot_row = ScheduleSlot(schedule_id=schedule.id, slot=slot, request_id=request_id, skipped=skipped, detail=detail,
                            at=now, actor_id=actor.id)  # fmt: skip
    return insert_row(session, slot_row)


def find_slot_end(session: Session, slot_id: int) -> SlotEnd | None:
    """Return why the run of a slot was given up, if it was."""
    return session.scalars(select(SlotEnd).where(SlotEnd.slot_id == slot_id)).one_or_none()


def unfinished_slots(session: Session, number: int | None = None) -> Sequence[ScheduleSlot]:
    """Slots whose request is still to be run or runs, oldest first; of one schedule, if it is named."""
    over = select(Transition.request_id).where(Transition.to_state.in_(FINISHED_STATES))
    query = select(ScheduleSlot).where(
        ScheduleSlot.request_id.is_not(None),
        ScheduleSlot.request_id.not_in(over),
        ScheduleSlot.id.not_in(select(SlotEnd.slot_id)),
    )
    if number is not None:
        query = query.where(ScheduleSlot.schedule_id == number)
    return session.scalars(query.order_by(ScheduleSlot.slot, ScheduleSlot.id)).all()


def end_slot(session: Session, actor: Actor, slot: ScheduleSlot, reason: str, detail: str) -> None:
    """Record that the run of a slot is not tried again by itself.

    Args:
        reason: the error's name.
        detail: its message, which is public.

    Raises:
        AlreadyRecorded: it was given up before.
        RuleViolated, RoleDenied: its request runs, or has run, or the actor is no runner.
    """
    if slot.request_id is None or requests.state_of(session, slot.request_id) not in UNRUN_STATES:
        raise RuleViolated("what runs or has run is not given up")
    insert_row(session, SlotEnd(slot_id=slot.id, reason=reason, detail=detail, at=utc_now(), actor_id=actor.id))
