"""Schedules: creation, views of their recurrence, authorisation and slots, and the results of due slots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from flows.approvals.propose_change import require_reason
from flows.datasets.budget import count_runs
from flows.governance.exposure import orders_budget
from flows.governance.policy import hides_balances
from flows.schedules.recurrence import MOST_TIMES, due_times, parse_timing
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import budget, cohorts, proposals, requests, schedules
from models_db.services.audit.stored_text import configuration_of
from models_db.services.schedules import Timing
from models_db.tables import Dataset, Proposal, Schedule, ScheduleSlot
from models_db.values.request_state import UNRUN_STATES
from models_db.values.standing_terms import cost_of
from tasks.planning.block_selection import reading_of_request

SLOTS_SHOWN = 3
LIVE_STATES = ("open", "carried")


@dataclass(frozen=True)
class SlotRow:
    """State of one slot: `skipped`, or the state of its request; with a reason if there is one."""

    slot: str
    request: int | None
    state: str
    reason: str
    detail: str


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule as lists show it.

    Attributes:
        standing: the standing authorisation it draws on, its state, and the runs it has used.
        last: its newest slot.
    """

    schedule: int
    dataset: str
    state: str
    standing: int
    standing_state: str
    used: int
    runs: int
    until: str
    kind: str
    rule: str
    zone: str
    starts_at: str
    creator: str
    reason: str
    last: SlotRow | None


@dataclass(frozen=True)
class ScheduleWithSlots(ScheduleRow):
    """A schedule with its newest slots, the newest first."""

    slots: tuple[SlotRow, ...]


@dataclass(frozen=True)
class CreatedSchedule:
    """A new schedule or, in a dry run, a preview of it.

    Attributes:
        schedule: the number of the schedule; None in a dry run.
        coming: its first times.
        slots_until_it_ends: the number of its times until the authorisation ends, counted up to 1000.
        runs_left: the number of unused runs of the authorisation, including runs for other schedules.
        last_run: the time of the last run if every time becomes a run; None if the authorisation ends before, or if
            more runs are left than times are counted.
        afforded: the number of runs that the remaining budget affords; None if the policy hides it, or if a run costs
            nothing.
    """

    schedule: int | None
    dataset: str
    standing: int
    kind: str
    rule: str
    zone: str
    starts_at: str
    coming: tuple[str, ...]
    slots_until_it_ends: int
    runs_left: int
    last_run: str | None
    afforded: int | None


@dataclass(frozen=True)
class DueSlot:
    """A due slot of a schedule that is not decided."""

    schedule: int
    slot: str


@dataclass(frozen=True)
class SlotDecision(DueSlot):
    """Decision about a slot: the request's number, or the name of the refusal and its public message."""

    request: int | None
    skipped: str | None
    detail: str


@dataclass(frozen=True)
class SlotRun:
    """End of a run: `produced`, `given up`, or `not now` with the name of the reason.

    Attributes:
        schedule: None if the request was approved by hand.
    """

    schedule: int | None
    request: int
    outcome: str
    reason: str
    detail: str


@dataclass(frozen=True)
class DueProblem:
    """Failure of one step: the name of the error and its public message."""

    what: str
    error: str
    message: str


@dataclass(frozen=True)
class DueResult:
    """Decisions, runs and failures of `run_due`."""

    slots: list[SlotDecision] = field(default_factory=list)
    runs: list[SlotRun] = field(default_factory=list)
    problems: list[DueProblem] = field(default_factory=list)


def create_schedule(
    workspace: Workspace,
    standing: int,
    kind: str,
    rule: str,
    *,
    zone: str = "UTC",
    start: str | None = None,
    reason: str,
    dry_run: bool = False,
) -> CreatedSchedule:
    """Create a schedule that draws on a standing authorisation.

    Raises:
        ProposalReasonMissing: there is no reason.
        UsageError: the rule, the zone or the start is invalid.
        ProposalUnknown: there is no such authorisation.
        Refused: it is over, or no standing authorisation (`AuthorisationNotSchedulable`).
        RoleDenied: only an analyst creates a schedule.
    """
    require_reason(reason)
    now = datetime.now(UTC)
    timing = parse_timing(kind, rule, zone, start, now)
    with workspace.database.read() as session:
        proposal = _live_authorisation(session, standing)
        dataset = session.get_one(Dataset, proposal.dataset_id)
        runs_left = (proposal.runs or 0) - proposals.count_uses(session, proposal)
        hidden = hides_balances(session, workspace.actor)
        runs = None if hidden else _affordable_runs(session, dataset, configuration_of(proposal))
    coming = tuple(map(utc_now, due_times(timing, now, most=SLOTS_SHOWN)))
    until = due_times(timing, now, datetime.fromisoformat(str(proposal.until)), MOST_TIMES)
    last = utc_now(until[runs_left - 1]) if 0 < runs_left <= len(until) else None
    return CreatedSchedule(
        schedule=None if dry_run else _record_schedule(workspace, standing, timing, reason),
        dataset=dataset.name,
        standing=standing,
        kind=timing.kind,
        rule=timing.rule,
        zone=timing.zone,
        starts_at=timing.starts_at,
        coming=coming,
        slots_until_it_ends=len(until),
        runs_left=runs_left,
        last_run=last,
        afforded=runs,
    )


def _affordable_runs(session: Session, dataset: Dataset, configuration: Mapping[str, Any]) -> int | None:
    blocks = reading_of_request(configuration, cohorts.blocks_per_cohort(session, dataset.account_id)).blocks
    left = budget.balance(session, dataset.account_id, blocks).remaining
    orders = orders_budget(session, dataset.account_id)
    return count_runs(cost_of(configuration), left, configuration["plan"], blocks, orders)


def _record_schedule(workspace: Workspace, standing: int, timing: Timing, reason: str) -> int:
    with workspace.database.write() as session:
        proposal = _live_authorisation(session, standing)
        dataset = session.get_one(Dataset, proposal.dataset_id)
        return schedules.create(session, workspace.actor, dataset, proposal, timing, reason).id


def _live_authorisation(session: Session, standing: int) -> Proposal:
    proposal = proposals.find_proposal(session, standing)
    state = proposals.state_of(session, proposal)
    if proposal.kind != "standing" or state not in LIVE_STATES or str(proposal.until) <= utc_now():
        state_text = f"is {state}" if proposal.kind == "standing" else f"is a {proposal.kind} proposal"
        finding = "is over" if state_text == "is carried" else state_text
        raise Refused(
            f"Proposal {standing} {finding}; a schedule needs a standing authorisation that is open or in force.",
            "See them with `almoner standing list`; propose one: `almoner standing propose FILE.yaml`.",
            {"proposal": standing},
            code="AuthorisationNotSchedulable",
        )
    return proposal


def change_schedule(workspace: Workspace, number: int, kind: str, reason: str) -> ScheduleRow:
    """Pause (`paused`), resume (`resumed`) or end (`ended`) a schedule; return it after the change.

    Raises:
        ProposalReasonMissing: there is no reason.
        UsageError: there is no such schedule (`ScheduleUnknown`).
        ScheduleNotActive: the state of the schedule does not allow the change.
        RoleDenied: only a steward or the creator of the schedule may change it.
    """
    require_reason(reason)
    with workspace.database.write() as session:
        schedules.record_change(session, workspace.actor, number, kind, reason)
        return schedule_row(session, schedules.find_schedule(session, number))


def list_schedules(workspace: Workspace, dataset: str | None = None) -> list[ScheduleRow]:
    """Return all schedules, or those of one dataset, oldest first."""
    with workspace.database.read() as session:
        return [schedule_row(session, schedule) for schedule in schedules.list_all(session, dataset)]


def load_schedule(workspace: Workspace, number: int, limit: int = 20) -> ScheduleWithSlots:
    """Return one schedule and its newest slots.

    Raises:
        UsageError: there is no such schedule (`ScheduleUnknown`).
    """
    with workspace.database.read() as session:
        row = schedule_row(session, schedules.find_schedule(session, number))
        slots = [slot_row(session, slot) for slot in schedules.newest_slots(session, number, limit)]
        return ScheduleWithSlots(**vars(row), slots=tuple(slots))


def schedule_row(session: Session, schedule: Schedule) -> ScheduleRow:
    """Read one schedule from the ledger."""
    proposal = session.get_one(Proposal, schedule.standing_id)
    newest = schedules.newest_slot(session, schedule.id)
    return ScheduleRow(
        schedule=schedule.id,
        dataset=session.get_one(Dataset, schedule.dataset_id).name,
        state=schedules.state_of(session, schedule.id),
        standing=proposal.id,
        standing_state=proposals.state_of(session, proposal),
        used=proposals.count_uses(session, proposal),
        runs=proposal.runs or 0,
        until=str(proposal.until),
        kind=schedule.kind,
        rule=schedule.rule,
        zone=schedule.zone,
        starts_at=schedule.starts_at,
        creator=requests.principal_name(session, schedule.created_by),
        reason=schedule.reason,
        last=None if newest is None else slot_row(session, newest),
    )


def slot_row(session: Session, slot: ScheduleSlot) -> SlotRow:
    """Read one slot from the ledger."""
    if slot.request_id is None:
        return SlotRow(slot.slot, None, "skipped", str(slot.skipped), slot.detail)
    ended = schedules.find_slot_end(session, slot.id)
    state = requests.state_of(session, slot.request_id)
    if ended is not None and state in UNRUN_STATES:
        return SlotRow(slot.slot, slot.request_id, "given up", ended.reason, ended.detail)
    return SlotRow(slot.slot, slot.request_id, state, "", "")
