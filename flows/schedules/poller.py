"""Poller of schedules: due slots and their runs, and requests that were approved by hand.

A poll needs no Prefect. Between two polls a process remembers only its failed attempts; everything else is in the
ledger, so any number of pollers may run at the same time.
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
from flows.schedules.slots import DueSlot, SlotDecision, SlotRun
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import attempts, people, requests, schedules
from models_db.services.schedules import ScheduleNotActive, SlotTaken
from models_db.tables import ScheduleSlot
from models_db.values.canonical_json import Json
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


@dataclass(frozen=True)
class PollProblem:
    """Failure of one step of a poll: the name of the error and its public message."""

    what: str
    name: str
    message: str

    def to_json(self) -> dict[str, Json]:
        """Return the result as JSON for programs."""
        return {"what": self.what, "error": self.name, "message": self.message}


@dataclass
class PollResult:
    """Slots, runs and failures of one poll."""

    decided: list[SlotDecision] = field(default_factory=list)
    ran: list[SlotRun] = field(default_factory=list)
    problems: list[PollProblem] = field(default_factory=list)

    def add_unreadable_schedule(self, schedule: int, problem: UsageError) -> None:
        """Note a schedule that cannot be read here."""
        self.problems.append(PollProblem(f"schedule {schedule}", problem.code, problem.message))

    def to_json(self) -> dict[str, Json]:
        """Return the result as JSON for programs."""
        return {
            "slots": [each.to_json() for each in self.decided],
            "runs": [each.to_json() for each in self.ran],
            "problems": [each.to_json() for each in self.problems],
        }


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
        done, workspace = PollResult(), open_workspace(self.home)
        roles = _own_roles(workspace)
        if "analyst" in roles:
            for due_slot in slots.list_due_slots(workspace, now, done.add_unreadable_schedule):
                if schedule not in (None, due_slot.schedule):
                    continue
                with _collect_problem(due_slot, done):
                    _decide_slot(workspace, due_slot, done)
        if "runner" in roles:
            self._run_slots(workspace, done, schedule)
            if self.settings.approved:
                self._run_approved(workspace, done)
        return done

    def run_slot(self, due_slot: DueSlot) -> PollResult:
        """Decide one slot, unless it is decided, and run the pending requests of its schedule.

        Raises:
            SlotTaken: another poller was faster.
            ScheduleNotActive: the schedule is paused or over.
        """
        done, workspace = PollResult(), open_workspace(self.home)
        done.decided.append(slots.decide_slot(workspace, due_slot))
        if "runner" in _own_roles(workspace):
            self._run_slots(workspace, done, due_slot.schedule)
        return done

    def run_unfinished(self, schedule: int) -> PollResult:
        """Run the pending requests of one schedule."""
        done, workspace = PollResult(), open_workspace(self.home)
        if "runner" in _own_roles(workspace):
            self._run_slots(workspace, done, schedule)
        return done

    def _run_slots(self, workspace: Workspace, result: PollResult, schedule: int | None = None) -> None:
        with workspace.database.read() as session:
            unfinished = schedules.unfinished_slots(session, schedule)
        for slot in unfinished:
            with _collect_problem(slot, result):
                ran = slots.run_slot(workspace, slot, *self.settings.run_options)
                result.ran.extend([ran] if ran is not None else [])

    def _run_approved(self, workspace: Workspace, result: PollResult) -> None:
        for number in _approved_requests(workspace):
            if number in self.failed_requests or not slots.may_run(workspace, number):
                continue
            self.failed_requests.add(number)
            with _collect_problem(number, result):
                if slots.run_once(workspace, number, *self.settings.run_options) is not None:
                    result.ran.append(SlotRun(None, number, "produced"))


@contextmanager
def _collect_problem(what: object, result: PollResult) -> Iterator[None]:
    """Collect an error of the block as a failure, so that the rest of the poll goes on; Ctrl-C passes."""
    try:
        yield
    except RunInterrupted:
        raise
    except AlmonerError as problem:
        result.problems.append(PollProblem(_problem_subject(what), problem.code, problem.message))


def _decide_slot(workspace: Workspace, due_slot: DueSlot, result: PollResult) -> None:
    with suppress(SlotTaken, ScheduleNotActive):  # somebody else was faster
        result.decided.append(slots.decide_slot(workspace, due_slot))


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


def _problem_subject(what: object) -> str:
    match what:
        case DueSlot():
            return f"slot {what.slot} of schedule {what.schedule}"
        case ScheduleSlot():
            return f"request {what.request_id} of schedule {what.schedule_id}"
        case _:
            return f"request {what}"
