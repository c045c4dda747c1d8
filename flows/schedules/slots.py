"""Slots of schedules: which are due, the decision about each, and the runs of what is approved.

Deciding asks for the release as an analyst would, and the gates answer: the slot becomes a request, or it is skipped
with the name of the refusal. A failure of this machine or this home alone decides nothing; the slot stays open.
Everything is in the ledger, so any number of processes may do the same at the same time.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from flows.governance.policy import PolicyDiffers, redact_refusals
from flows.releases.attempt import RunInterrupted, require_data
from flows.releases.execute import execute_request
from flows.releases.propose import price_for_home, record_request
from flows.releases.resume import forfeit_attempt
from flows.schedules.recurrence import due_times, latest_time, parse_time
from flows.schedules.schedules import DueProblem, DueResult, DueSlot, SlotDecision, SlotRun
from flows.workspace.workspace import Workspace, process_owner
from models_db.database.base import utc_now
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
from models_db.services import attempts, people, requests, schedules
from models_db.services.attempts import StillRunning
from models_db.services.audit.stored_text import configuration_of
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


@dataclass(frozen=True)
class RunOptions:
    """The options of `almoner run` for the runs of schedules."""

    device: str = "auto"
    workers: int = 1
    backend: WorkerBackend = HERE


DEFAULT_OPTIONS: Final = RunOptions()


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


# --- Deciding --------------------------------------------------------------------------------------------------


def decide_due_slot(workspace: Workspace, schedule: int, now: datetime) -> SlotDecision | None:
    """Decide the slot of a schedule that is due at `now`; return None if none is, or if another process decides it.

    Raises:
        as `find_due_slot` and `decide_slot`.
    """
    with workspace.database.read() as session:
        slot = find_due_slot(session, schedules.find_schedule(session, schedule), now)
    if slot is not None:
        with suppress(SlotTaken, ScheduleNotActive):  # somebody else was faster
            return decide_slot(workspace, DueSlot(schedule, slot))
    return None


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
        if before := _unfinished_run(session, due_slot):  # another process has asked for an earlier slot meanwhile
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


def waiting_requests(workspace: Workspace, schedule: int | None = None, *, approved: bool = False) -> list[int]:
    """Return the requests that this home may run now, as the ledger has them, those of slots first.

    Args:
        schedule: only of this schedule.
        approved: also the requests that stewards have approved one by one.
    """
    with workspace.database.read() as session:
        slots = schedules.unfinished_slots(session, schedule)
        waiting = [each.request_id or 0 for each in slots]
        if approved:
            resumable = sorted(attempts.resumable_requests(session))
            waiting += [number for number in resumable if _is_approved_by_hand(session, number)]
    return [number for number in waiting if may_run(workspace, number)]


def _is_approved_by_hand(session: Session, number: int) -> bool:
    if requests.find_request(session, number).standing_id is not None:
        return False
    try:
        attempts.require_startable(session, number)
    except Refused:
        return False
    return True


def run_request(
    workspace: Workspace,
    number: int,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    approved: bool = False,
) -> SlotRun | None:
    """Run the request of a slot, or resume it after a dead process; return None if there is nothing to run here.

    A slot's run that ended without an artifact is given up, and so is one that a rule forbids: repeated attempts would
    use up the authorisation. A person may still run it (`almoner run`). The ledger is read again for this, because
    other runs may have taken hours since the request was found.

    Args:
        approved: also run a request that stewards have approved one by one.

    Raises:
        RunInterrupted: Ctrl-C was pressed; the request can be resumed later.
        The errors of `flows.releases.execute.execute_request` of a request that was approved by hand.
    """
    if number not in waiting_requests(workspace, approved=approved):
        return None
    with workspace.database.read() as session:
        slot = next((each for each in schedules.unfinished_slots(session) if each.request_id == number), None)
    begun = count_attempts(workspace, number)
    try:
        spent = _execute(workspace, number, options)
    except (StillRunning, JournalInUse, OwnAuthorisation):
        return None
    except AlmonerError as problem:
        if slot is None:
            raise
        return _slot_run_of_error(workspace, slot, problem, begun)
    return None if spent is None else SlotRun(None if slot is None else slot.schedule_id, number, "produced", "", "")


def _execute(workspace: Workspace, number: int, options: RunOptions) -> Amount | None:
    """Run a request in this process; return the spent amount, None if the request is already finished."""
    require_data(workspace, number)  # before an attempt is begun, which would use up a run of the authorisation
    _close_own_attempt(workspace, number)
    try:
        return execute_request(
            workspace.home.root, number, options.device, workers=options.workers, backend=options.backend
        ).spent
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


def count_attempts(workspace: Workspace, number: int) -> int:
    """Return how often a run of a request was begun."""
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
    tried = count_attempts(workspace, number) > begun
    if lost or (isinstance(problem, EnvironmentProblem) and not isinstance(problem, TaskFailed) and not tried):
        return SlotRun(slot.schedule_id, number, "not now", problem.code, problem.message)
    with workspace.database.write() as session:
        schedules.end_slot(session, workspace.actor, slot, problem.code, problem.message)
    return SlotRun(slot.schedule_id, number, "given up", problem.code, problem.message)


# --- Both, in this process -------------------------------------------------------------------------------------


def run_due(workspace: Workspace, now: datetime, options: RunOptions = DEFAULT_OPTIONS) -> DueResult:
    """Decide every slot that is due at `now`, then run the requests of slots.

    The roles of the home's owner decide what is done: an analyst requests, a runner runs. A failure of one schedule or
    request hinders no other.
    """
    done = DueResult()
    with workspace.database.read() as session:
        may_ask = "analyst" in people.roles_of(session, workspace.actor.id)
        numbers = [schedule.id for schedule in schedules.list_all(session)] if may_ask else []
    for number in numbers:
        with _collect_problem(f"schedule {number}", done):
            decided = decide_due_slot(workspace, number, now)
            done.slots.extend([decided] if decided is not None else [])
    _run_waiting(workspace, done, options)
    return done


def run_schedule_now(
    workspace: Workspace, number: int, slot: str | None, now: datetime, options: RunOptions = DEFAULT_OPTIONS
) -> DueResult:
    """Decide a slot and run its request; without `slot`, decide the due slot and run the requests that wait.

    Raises:
        UsageError: there is no such schedule (`ScheduleUnknown`).
        UsageError: the schedule has no slot at that time, or it is not due yet (`NoSuchSlot`); or `slot` is no time.
        Refused: no slot is due, and no request waits (`NothingDue`).
        SlotTaken: the slot is already decided.
        ScheduleNotActive: the schedule is paused or over.
        The errors of `decide_slot`.
    """
    with workspace.database.read() as session:
        schedule = schedules.find_schedule(session, number)
        due_slot = find_due_slot(session, schedule, now) if slot is None else _parse_slot_time(schedule, slot, now)
        waiting = schedules.unfinished_slots(session, number)
    if due_slot is None and not waiting:
        raise Refused(
            f"Schedule {number} has no slot that is due.",
            f"See its rule and its slots with `almoner schedule show {number}`.",
            {"schedule": number},
            code="NothingDue",
        )
    done = DueResult()
    if due_slot is not None:
        done.slots.append(decide_slot(workspace, DueSlot(number, due_slot)))
    _run_waiting(workspace, done, options, number)
    return done


def _run_waiting(workspace: Workspace, done: DueResult, options: RunOptions, schedule: int | None = None) -> None:
    for number in waiting_requests(workspace, schedule):
        with _collect_problem(f"request {number}", done):
            ran = run_request(workspace, number, options)
            done.runs.extend([ran] if ran is not None else [])


def _parse_slot_time(schedule: Schedule, written: str, now: datetime) -> str:
    """Return a slot that somebody typed, in UTC."""
    at = parse_time(written, schedule.zone)
    if at > now or due_times(Timing.of_schedule(schedule), at, at) != [at]:
        raise UsageError(
            f"Schedule {schedule.id} has no slot at {written} that is due.",
            f"See its slots with `almoner schedule show {schedule.id}`.",
            {"schedule": schedule.id, "slot": written},
            code="NoSuchSlot",
        )
    return utc_now(at)


@contextmanager
def _collect_problem(what: str, result: DueResult) -> Iterator[None]:
    """Collect an error of the block as a failure, so that the rest goes on; Ctrl-C passes."""
    try:
        yield
    except RunInterrupted:
        raise
    except AlmonerError as problem:
        result.problems.append(DueProblem(what, problem.code, problem.message))
