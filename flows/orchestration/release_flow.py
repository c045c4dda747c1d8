"""Prefect flows of a release, of a schedule and of a run: before each step they ask the ledger.

Prefect starts, suspends, resumes and cancels; it decides nothing. A release waits, suspended, at each gate: a run that
somebody resumes by hand finds in the ledger that its gate is closed, and is suspended again. A run that begins anew
after a crash goes on where the ledger is. So no result of a step is kept anywhere: a task returns nothing, and its
parameter is a number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from prefect import Flow, Task, flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.flow_runs import suspend_flow_run

from flows.orchestration.worker_settings import WorkerSettings, describe_links
from flows.releases.attempt import RunInterrupted
from flows.releases.next_step import ReleaseStep, next_step
from flows.schedules.slots import LEDGER_ERRORS, decide_due_slot, run_request
from flows.workspace.prefect_flow import PRIVATE_FLOW, call_outside_engine
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.services.attempts import StillRunning
from models_db.services.audit import chain
from tasks.common.faults import SECONDS_BEFORE_RETRIES, TaskFailed, is_temporary
from tasks.common.progress import tell
from tasks.decoding.journal import JournalInUse

PRIVATE_TASK: Final[dict[str, Any]] = {"cache_policy": NO_CACHE, "persist_result": False, "log_prints": False}
EXECUTE_TAG: Final = "almoner-execute"
"""Tag of the task that generates: a concurrency limit of Prefect's on it bounds the generations of all its pools."""
NEXT_COMMAND: Final = {
    ReleaseStep.AWAIT_SPEND_GATE: "It waits at the spend gate: `almoner approve {number} --gate spend`.",
    ReleaseStep.AWAIT_PUBLISH_GATE: (
        "It waits at the publish gate: read it with `almoner release texts {number}`, then"
        " `almoner approve {number} --gate publish`."
    ),
    ReleaseStep.AWAIT_OTHER_RUN: "It waits for a run of the request that another process has begun.",
}


class StepFailed(Exception):
    """A step of a release failed. Prefect keeps the name of the error; its text is on the worker's error stream.

    Attributes:
        temporary: whether the error was a fault that may pass (`tasks.common.faults.is_temporary`).
    """

    def __init__(self, name: str, *, temporary: bool) -> None:
        super().__init__(name)
        self.temporary = temporary


class RunLost(BaseException):
    """The process of a run was stopped, or its ledger does not answer. For Prefect the run has crashed; a worker begins
    it anew, and it goes on from what was paid."""


@contextmanager
def _errors_by_name(step: str) -> Iterator[None]:
    """Raise every error of the block as a `StepFailed`, whose text Prefect may keep.

    A run that was interrupted, or has lost its ledger, has not failed: it raises `RunLost`.
    """
    try:
        yield
    except (RunInterrupted, *LEDGER_ERRORS) as problem:
        raise RunLost(problem.code) from None
    except AlmonerError as problem:
        failed = _failure_of(step, problem)
    except Exception as problem:  # noqa: BLE001  # its text may quote private text
        failed = _failure_of(step, TaskFailed.of(step, problem))
    else:
        return
    raise failed


def _failure_of(step: str, problem: AlmonerError) -> StepFailed:
    tell(f"{step}: {problem.code}: {problem.message}")
    return StepFailed(problem.code, temporary=is_temporary(problem))


def _may_pass(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, StepFailed) and state.data.temporary


REPEATABLE: Final[dict[str, Any]] = {
    **PRIVATE_TASK,
    "retries": len(SECONDS_BEFORE_RETRIES),
    "retry_delay_seconds": list(SECONDS_BEFORE_RETRIES),
    "retry_condition_fn": _may_pass,
}
"""Settings of a task that costs no budget and may be done twice."""


@task(name="propose", task_run_name="propose", **REPEATABLE)
def confirm_request(request: int, ledger: str) -> None:
    """Confirm that this machine's ledger has the request, and that the machine knows where to publish."""
    with _errors_by_name("propose"):
        settings = WorkerSettings.of_environment()
        _ = settings.place
        with _open_ledger(settings, ledger).database.read() as session:
            next_step(session, request)


def _open_ledger(settings: WorkerSettings, ledger: str) -> Workspace:
    """Open this machine's home.

    Raises:
        UsageError: it has another ledger than the flow run names (`OtherLedger`).
    """
    workspace = open_workspace(settings.home)
    with workspace.database.read() as session:
        if chain.ledger_id(session) != ledger:
            raise UsageError(
                "The flow run names another ledger than that of this machine's home.",
                "Give each ledger a work pool of its own: `almoner deploy --pool NAME`.",
                code="OtherLedger",
            )
    return workspace


@task(name="execute", task_run_name="execute", tags={EXECUTE_TAG}, retries=0, **PRIVATE_TASK)
def execute_release(request: int) -> None:
    """Run the request: hold, arm, generate, evaluate, commit. It pays, so it is never retried."""
    from flows.releases.execute import execute_request

    settings = WorkerSettings.of_environment()
    with _errors_by_name("execute"):
        try:
            call_outside_engine(lambda: execute_request(settings.home.root, request, settings.options.device))
        except (StillRunning, JournalInUse) as elsewhere:
            tell(elsewhere.message)


@task(name="report", task_run_name="report", **REPEATABLE)
def write_steward_report(request: int) -> None:
    """Write the stewards' page for the publish gate into this machine's home, if its owner may see one."""
    from flows.reports.build import build_report, replace_page

    with _errors_by_name("report"):
        workspace = open_workspace(WorkerSettings.of_environment().home)
        try:
            replace_page(workspace.home, build_report(workspace, request, "steward"))
        except Refused as refusal:
            tell(f"No report was written: {refusal.message}")


@task(name="publish", task_run_name="publish", **REPEATABLE)
def publish_and_deliver(request: int) -> None:
    """Publish the approved bytes. The publication is recorded once, however often its delivery is tried."""
    from flows.releases.publish import publish_release

    settings = WorkerSettings.of_environment()
    with _errors_by_name("publish"):
        call_outside_engine(lambda: publish_release(settings.home.root, request, settings.place))


@flow(name="release", flow_run_name="release-request-{request}", **PRIVATE_FLOW)
def release(request: int, ledger: str) -> None:
    """Carry a recorded request from its spend gate to its delivered bundle, or to where stewards end it.

    Args:
        request: the request's number.
        ledger: the hash of the first link of its ledger, because another team's request may have the same number.

    Raises:
        StepFailed: a step was refused or failed; another run of this flow goes on where the ledger is.
    """
    confirm_request(request, ledger)
    while (step := _read_next_step(request)) is not ReleaseStep.END:
        match step:
            case ReleaseStep.EXECUTE:
                execute_release(request)
                if _read_next_step(request) is ReleaseStep.AWAIT_PUBLISH_GATE:
                    write_steward_report(request)
            case ReleaseStep.PUBLISH:
                publish_and_deliver(request)
            case _:
                _suspend(request, step)


def _read_next_step(request: int) -> ReleaseStep:
    with (
        _errors_by_name("ledger"),
        open_workspace(WorkerSettings.of_environment().home).database.read() as session,
    ):
        return next_step(session, request)


def _suspend(request: int, step: ReleaseStep) -> None:
    """End this process; a worker resumes the run when the ledger no longer says that it waits.

    The key is new each time, because Prefect lets a run that was resumed pass a suspension of the same key.
    """
    page = f"{NEXT_COMMAND[step].format(number=request)}\n\n{describe_links(request)}"
    create_markdown_artifact(page, key=f"request-{request}")
    suspend_flow_run(key=str(uuid4()))


# --- Schedules -------------------------------------------------------------------------------------------------


@flow(name="schedule", flow_run_name="schedule-{schedule}", **PRIVATE_FLOW)
def decide_schedule(schedule: int, ledger: str) -> None:
    """Decide the slot of a schedule that is due now, in one transaction of the ledger; it runs nothing.

    Args:
        schedule: the schedule's number.
        ledger: as of `release`.

    Raises:
        StepFailed: nothing was decided; a later run of this flow decides the slot.
    """
    with _errors_by_name("schedule"):
        workspace = _open_ledger(WorkerSettings.of_environment(), ledger)
        decided = call_outside_engine(lambda: decide_due_slot(workspace, schedule, datetime.now(UTC)))
        if decided is not None:
            became = f"request {decided.request}" if decided.request else f"{decided.skipped}: {decided.detail}"
            tell(f"Slot {decided.slot} of schedule {schedule}: {became}")


@flow(name="run", flow_run_name="run-request-{request}", **PRIVATE_FLOW)
def run_waiting(request: int, ledger: str) -> None:
    """Run the request of a slot or, where the machine is set to, one that stewards have approved one by one.

    Args:
        request, ledger: as of `release`.

    Raises:
        StepFailed: the run was refused or failed.
        RunLost: it could not begin here now, or was interrupted; a worker begins it anew.
    """
    settings = WorkerSettings.of_environment()
    with _errors_by_name("run"):
        workspace = _open_ledger(settings, ledger)
        ran = call_outside_engine(lambda: run_request(workspace, request, settings.options, approved=settings.approved))
    if ran is not None:
        tell(f"Request {request}: {' '.join(filter(None, (ran.outcome, ran.reason, ran.detail)))}")
        if ran.outcome == "given up":
            raise StepFailed(ran.reason, temporary=False)
        if ran.outcome == "not now":
            raise RunLost(ran.reason)


FLOWS: Final[dict[str, Flow[..., None]]] = {each.name: each for each in (release, decide_schedule, run_waiting)}
"""The flows that a worker runs, by name. It runs no other, even if a Prefect server names one."""
