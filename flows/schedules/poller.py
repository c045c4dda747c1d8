"""Poller of schedules: due slots and their runs, requests that were approved by hand, and one schedule run by hand.

A poll needs no Prefect server. Between two polls a process remembers only its failed attempts; everything else is in
the ledger, so any number of pollers may run at the same time.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from flows.releases.attempt import RunInterrupted
from flows.schedules import slots
from flows.schedules.poll_result import DueSlot, PollProblem, PollResult, SlotRun
from flows.schedules.recurrence import due_times, parse_time
from flows.workspace.workspace import Workspace, open_workspace
from models_db.database.base import utc_now
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import attempts, people, requests, schedules
from models_db.services.schedules import ScheduleNotActive, SlotTaken, Timing
from models_db.tables import Schedule
from tasks.workers.backend_settings import HERE, WorkerBackend

DEVICE_VARIABLE: Final = "ALMONER_DEVICE"
WORKERS_VARIABLE: Final = "ALMONER_WORKERS"
BACKEND_VARIABLE: Final = "ALMONER_RUNNER"
ADDRESS_VARIABLE: Final = "ALMONER_RUNNER_ADDRESS"


@dataclass(frozen=True)
class PollerSettings:
    """Settings of a poller.

    Attributes:
        device, workers, backend: the options of `almoner run`.
        approved: whether the poller also runs requests that were approved by hand.
    """

    device: str = "auto"
    workers: int = 1
    approved: bool = False
    backend: WorkerBackend = HERE

    @property
    def run_options(self) -> tuple[str, int, WorkerBackend]:
        """Return the options of the poller's runs."""
        return self.device, self.workers, self.backend

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables from which `of_environment` reads the options of the poller's runs."""
        return {
            DEVICE_VARIABLE: self.device,
            WORKERS_VARIABLE: str(self.workers),
            BACKEND_VARIABLE: self.backend.kind,
            ADDRESS_VARIABLE: self.backend.address or "",
        }

    @classmethod
    def of_environment(cls) -> "PollerSettings":
        """Return the settings that the environment names.

        Raises:
            RunnerUnknown, RunnerAddressUnfit: it names no possible workers.
        """
        device, workers, kind, address = map(os.environ.get, cls().environment)
        backend = WorkerBackend.of(kind or HERE.kind, address)
        return cls(device or "auto", int(workers or 1), backend=backend)


@dataclass
class Poller:
    """Polls for the owner of a home, within their roles: analysts request, runners run."""

    home: ProjectHome
    settings: PollerSettings = field(default_factory=PollerSettings)
    failed_requests: set[int] = field(default_factory=set)
    """Requests approved by hand whose run failed here; only a person runs them again."""

    def poll(self, now: datetime, schedule: int | None = None) -> PollResult:
        """Do all work due at `now` once, or that of one schedule.

        The home is opened again, because its policy may have changed.
        """
        done, workspace = PollResult([], [], []), open_workspace(self.home)

        def add_unreadable(number: int, problem: UsageError) -> None:
            done.problems.append(PollProblem(f"schedule {number}", problem.code, problem.message))

        roles = _own_roles(workspace)
        if "analyst" in roles:
            for due_slot in slots.list_due_slots(workspace, now, add_unreadable):
                if schedule not in (None, due_slot.schedule):
                    continue
                with (
                    _collect_problem(f"slot {due_slot.slot} of schedule {due_slot.schedule}", done),
                    suppress(SlotTaken, ScheduleNotActive),  # somebody else was faster
                ):
                    done.slots.append(slots.decide_slot(workspace, due_slot))
        if "runner" in roles:
            self.run_pending(workspace, done, schedule)
            if self.settings.approved:
                self._run_approved(workspace, done)
        return done

    def run_pending(self, workspace: Workspace, result: PollResult, schedule: int | None = None) -> None:
        """Run the pending requests of all schedules, or of one, for an owner who is a runner."""
        with workspace.database.read() as session:
            pending = schedules.unfinished_slots(session, schedule)
        for slot in pending:
            with _collect_problem(f"request {slot.request_id} of schedule {slot.schedule_id}", result):
                ran = slots.run_slot(workspace, slot, *self.settings.run_options)
                result.runs.extend([ran] if ran is not None else [])

    def _run_approved(self, workspace: Workspace, result: PollResult) -> None:
        for number in _approved_requests(workspace):
            if number in self.failed_requests or not slots.may_run(workspace, number):
                continue
            self.failed_requests.add(number)
            with _collect_problem(f"request {number}", result):
                if slots.run_once(workspace, number, *self.settings.run_options) is not None:
                    result.runs.append(SlotRun(None, number, "produced", "", ""))


def run_schedule_now(
    home: ProjectHome, number: int, slot: str | None, now: datetime, settings: PollerSettings
) -> PollResult:
    """Decide a slot and run its request; without `slot`, decide the due slot and run the pending requests.

    Raises:
        UsageError: there is no such schedule (`ScheduleUnknown`).
        UsageError: the schedule has no slot at that time, or it is not due yet (`NoSuchSlot`); or `slot` is no time.
        Refused: no slot is due, and no request is pending (`NothingDue`).
        SlotTaken: the slot is already decided.
        ScheduleNotActive: the schedule is paused or over.
        The errors of `flows.schedules.slots.decide_slot`.
    """
    workspace = open_workspace(home)
    with workspace.database.read() as session:
        schedule = schedules.find_schedule(session, number)
        due_slot = (
            slots.find_due_slot(session, schedule, now) if slot is None else _parse_slot_time(schedule, slot, now)
        )
        waiting = schedules.unfinished_slots(session, number)
    if due_slot is None and not waiting:
        raise Refused(
            f"Schedule {number} has no slot that is due.",
            f"See its rule and its slots with `almoner schedule show {number}`.",
            {"schedule": number},
            code="NothingDue",
        )
    done = PollResult([], [], [])
    if due_slot is not None:
        done.slots.append(slots.decide_slot(workspace, DueSlot(number, due_slot)))
    if "runner" in _own_roles(workspace):
        Poller(home, settings).run_pending(workspace, done, number)
    return done


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
def _collect_problem(what: str, result: PollResult) -> Iterator[None]:
    """Collect an error of the block as a failure, so that the rest of the poll goes on; Ctrl-C passes."""
    try:
        yield
    except RunInterrupted:
        raise
    except AlmonerError as problem:
        result.problems.append(PollProblem(what, problem.code, problem.message))


def _own_roles(workspace: Workspace) -> frozenset[str]:
    with workspace.database.read() as session:
        return people.roles_of(session, workspace.actor.id)


def _approved_requests(workspace: Workspace) -> list[int]:
    """Return the requests that stewards have approved one by one and that no process runs now."""
    with workspace.database.read() as session:
        return [number for number in sorted(attempts.resumable_requests(session)) if _is_startable(session, number)]


def _is_startable(session: Session, number: int) -> bool:
    if requests.find_request(session, number).standing_id is not None:
        return False
    try:
        attempts.require_startable(session, number)
    except Refused:
        return False
    return True
