"""Slots of schedules: which are due, the decision about each, and the runs that follow.

Deciding asks for the release as an analyst would, and the gates answer: the slot becomes a request, or it is skipped
with the name of the refusal. A failure of this machine or this home alone decides nothing; the slot waits for the next
poll.
"""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from flows.governance.policy import PolicyDiffers, redact_refusals
from flows.releases.attempt import RunInterrupted, require_data
from flows.releases.execute import execute_request
from flows.releases.propose import price_for_home, record_request
from flows.releases.resume import forfeit_attempt
from flows.schedules.poll_result import DueSlot, SlotDecision, SlotRun
from flows.schedules.recurrence import latest_time
from flows.workspace.workspace import Workspace, process_owner
from models_db.database.base import utc_now
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
from models_db.services import people, requests, schedules
from models_db.services.attempts import StillRunning
from models_db.services.audit.log import configuration_of
from models_db.services.proposals import OwnAuthorisation
from models_db.services.schedules import ScheduleNotActive, SlotTaken, Timing
from models_db.sessions.database import LedgerUnreachable, OutcomeUnknown
from models_db.tables import Lease, PolicyVersion, Proposal, Schedule, ScheduleSlot
from models_db.values.amounts import Amount
from models_db.values.request_state import RequestState
from models_db.values.requests import ReleaseRequest
from models_db.writes.database_errors import ClockWentBack, RuleViolated
from tasks.common.faults import TaskFailed
from tasks.decoding.journal import JournalInUse
from tasks.inference.backends.endpoints import EndpointUnknown
from tasks.inference.catalogue.registry import UnknownModel
from tasks.pricing.quote import written_request
from tasks.workers.backend_settings import HERE, WorkerBackend

LOCAL_REFUSALS = (
    PolicyDiffers, OwnAuthorisation, RuleViolated, SlotTaken, ScheduleNotActive, UnknownModel, EndpointUnknown,
    EnvironmentProblem,
)  # fmt: skip
"""Refusals caused by the requester or this home, and not by the slot."""
LEDGER_ERRORS = (LedgerUnreachable, OutcomeUnknown, ClockWentBack)
"""A run that ended with one of these has not failed; it resumes when the ledger is back."""
UNFINISHED_RUN_REASON = "RunBeforeUnfinished"
_RUN_LOCK = threading.Lock()


def find_due_slot(session: Session, schedule: Schedule, now: datetime) -> str | None:
    """Return the newest due time of a schedule that is not decided; older ones are skipped.

    Raises:
        UsageError: this machine cannot read the schedule (`ZoneUnknown`, `InvalidScheduleRule`).
        EnvironmentProblem: Prefect is not installed.
    """
    if schedules.state_of(session, schedule.id) != "active":
        return None
    since = datetime.fromisoformat(schedules.due_from(session, schedule))
    if newest := schedules.newest_slot(session, schedule.id):
        since = max(since, datetime.fromisoformat(newest.slot) + timedelta(microseconds=1))
    latest = latest_time(Timing.of_schedule(schedule), since, now)
    return None if latest is None else utc_now(latest)


def list_due_slots(
    workspace: Workspace, now: datetime, unread: Callable[[int, UsageError], None] = lambda schedule, problem: None
) -> list[DueSlot]:
    """Return the due slots of the whole ledger, by schedule.

    Args:
        unread: called with each schedule that this machine cannot read, for example with an unknown time zone; the
            others are still listed.
    """
    due_slots = []
    with workspace.database.read() as session:
        for schedule in schedules.list_all(session):
            try:
                slot = find_due_slot(session, schedule, now)
            except UsageError as problem:
                unread(schedule.id, problem)
                continue
            if slot is not None:
                due_slots.append(DueSlot(schedule.id, slot))
    return due_slots


# --- Deciding --------------------------------------------------------------------------------------------------


def decide_slot(workspace: Workspace, due_slot: DueSlot) -> SlotDecision:
    """Submit the request of a slot, or skip the slot.

    Raises:
        UsageError: there is no such schedule (`ScheduleUnknown`).
        SlotTaken: the slot is already decided.
        ScheduleNotActive: the schedule is paused or over.
        PolicyDiffers, OwnAuthorisation, RoleDenied, RuleViolated: the owner of this home may not request it; the slot
            stays open.
        EnvironmentProblem: this machine lacks something; the slot stays open.
    """
    with workspace.database.read() as session:
        schedule = schedules.find_schedule(session, due_slot.schedule)
        schedules.require_slot_open(session, due_slot.schedule, due_slot.slot)
        standing = session.get_one(Proposal, schedule.standing_id)
        before = _unfinished_run(session, due_slot)
    if before:
        return _skip_slot(workspace, due_slot, UNFINISHED_RUN_REASON, before)
    try:
        return _record_slot_request(workspace, due_slot, standing_request(standing), standing.id)
    except LOCAL_REFUSALS:
        raise
    except (Refused, UsageError) as refusal:
        return _skip_slot(workspace, due_slot, refusal.code, refusal.message)


def standing_request(standing: Proposal) -> ReleaseRequest:
    """Return the request that a standing authorisation allows."""
    body = configuration_of(standing)
    return written_request({**body, "dataset": {"name": body["dataset"]}})


def _record_slot_request(
    workspace: Workspace, due_slot: DueSlot, request: ReleaseRequest, standing: int
) -> SlotDecision:
    priced = price_for_home(workspace, request, standing)
    with redact_refusals(workspace):
        priced.require_affordable()
    with workspace.database.write() as session:
        schedule = _undecided_schedule(session, due_slot)
        if before := _unfinished_run(session, due_slot):  # another poller has asked for an earlier slot meanwhile
            return _record_skip(session, workspace, schedule, due_slot, UNFINISHED_RUN_REASON, before)
        recorded = record_request(session, workspace, priced, standing)
        schedules.record_slot(session, workspace.actor, schedule, due_slot.slot, request_id=recorded.id)
        return SlotDecision(due_slot.schedule, due_slot.slot, recorded.id, None, "")


def _skip_slot(workspace: Workspace, due_slot: DueSlot, reason: str, detail: str) -> SlotDecision:
    with workspace.database.write() as session:
        return _record_skip(session, workspace, _undecided_schedule(session, due_slot), due_slot, reason, detail)


def _record_skip(
    session: Session, workspace: Workspace, schedule: Schedule, due_slot: DueSlot, reason: str, detail: str
) -> SlotDecision:
    schedules.record_slot(session, workspace.actor, schedule, due_slot.slot, skipped=reason, detail=detail)
    return SlotDecision(due_slot.schedule, due_slot.slot, None, reason, detail)


def _unfinished_run(session: Session, due_slot: DueSlot) -> str:
    """Return which run of the schedule is not finished; empty if all are."""
    unfinished = schedules.unfinished_slots(session, due_slot.schedule)
    if not unfinished:
        return ""
    newest = unfinished[-1]
    return f"request {newest.request_id} of the slot {newest.slot} has not been run yet"


def _undecided_schedule(session: Session, due_slot: DueSlot) -> Schedule:
    """Return the schedule of a slot that nobody has decided."""
    schedules.require_slot_open(session, due_slot.schedule, due_slot.slot)
    return schedules.find_schedule(session, due_slot.schedule)


# --- Running ---------------------------------------------------------------------------------------------------


def run_slot(
    workspace: Workspace, slot: ScheduleSlot, device: str = "auto", workers: int = 1, backend: WorkerBackend = HERE
) -> SlotRun | None:
    """Run the request of a slot, or resume it after a dead process; return None if another process will run it.

    A run that ended without an artifact is given up, and so is one that a rule forbids: repeated attempts of a poller
    would use up the authorisation. A person may still run it (`almoner run`). The ledger is read again for this,
    because other runs may have taken hours since the slot was found.
    """
    number = slot.request_id or 0
    if _is_given_up(workspace, slot) or not may_run(workspace, number):
        return None
    begun = _count_attempts(workspace, number)
    try:
        outcome = run_once(workspace, number, device, workers, backend)
    except (StillRunning, JournalInUse, OwnAuthorisation):
        return None
    except AlmonerError as problem:
        return _slot_run_of_error(workspace, slot, problem, begun)
    return None if outcome is None else SlotRun(slot.schedule_id, number, "produced", "", "")


def run_once(
    workspace: Workspace, number: int, device: str, workers: int, backend: WorkerBackend = HERE
) -> Amount | None:
    """Run a request in this process, one at a time; return the spent amount, None if the request is already finished.

    Raises:
        VersionMissing: another home has the data. That is found before the flow begins, so no page shows a failed run.
        RunInterrupted: Ctrl-C was pressed; the request can be resumed later.
        The errors of `flows.releases.execute.execute_request`.
    """
    require_data(workspace, number)
    with _RUN_LOCK:
        _close_own_attempt(workspace, number)
        try:
            return execute_request(workspace.home.root, number, device, workers=workers, backend=backend).spent
        except requests.WrongState as moved:
            if moved.facts["state"] == "expired":
                raise
            return None  # another process was faster


def _close_own_attempt(workspace: Workspace, number: int) -> None:
    """Close an attempt leased by this idle process: its run lost the connection to the ledger."""
    with workspace.database.read() as session:
        lease = session.get(Lease, number)
        running = lease is not None and requests.state_of(session, number) == RequestState.RUNNING
    if lease is not None and running and lease.owner == process_owner():
        forfeit_attempt(workspace, lease)


def may_run(workspace: Workspace, number: int) -> bool:
    """Return whether the owner of this home may run a request: a runner, and not its requester if roles are separate.

    The check precedes the attempt, because an attempt uses a run of the authorisation.
    """
    with workspace.database.read() as session:
        request = requests.find_request(session, number)
        separate = not session.get_one(PolicyVersion, request.policy_id).several_roles
        own = separate and request.requester_id == workspace.actor.id
        return not own and "runner" in people.roles_of(session, workspace.actor.id)


def _is_given_up(workspace: Workspace, slot: ScheduleSlot) -> bool:
    with workspace.database.read() as session:
        return schedules.find_slot_end(session, slot.id) is not None


def _count_attempts(workspace: Workspace, number: int) -> int:
    with workspace.database.read() as session:
        return sum(step.to_state == RequestState.RUNNING for step in requests.history(session, number))


def _is_running(workspace: Workspace, number: int) -> bool:
    with workspace.database.read() as session:
        return requests.state_of(session, number) == RequestState.RUNNING


def _slot_run_of_error(workspace: Workspace, slot: ScheduleSlot, problem: AlmonerError, begun: int) -> SlotRun:
    """Return the slot's result after a run without an artifact."""
    number = slot.request_id or 0
    if isinstance(problem, RunInterrupted):
        raise problem
    lost = isinstance(problem, LEDGER_ERRORS) or _is_running(workspace, number)
    tried = _count_attempts(workspace, number) > begun
    if lost or (isinstance(problem, EnvironmentProblem) and not isinstance(problem, TaskFailed) and not tried):
        return SlotRun(slot.schedule_id, number, "not now", problem.code, problem.message)
    with workspace.database.write() as session:
        schedules.end_slot(session, workspace.actor, slot, problem.code, problem.message)
    return SlotRun(slot.schedule_id, number, "given up", problem.code, problem.message)
