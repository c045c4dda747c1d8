"""Prefect worker of type `almoner`: it carries out releases in processes of its own, and looks after those that wait.

A worker of Prefect's own types runs whatever command, environment and code its server names. This one takes two things
from a flow run: the name of its flow, which must be one of ours, and its parameters, which Prefect checks. A job
template has no variables, so there is nothing else to set.

Before each poll a worker looks at the flow runs of its pool that are not ended (`review_flow_runs`): it resumes those
for which the ledger has a next step, begins those anew whose process died, and closes those that were cancelled. The
worker of `almoner serve` also keeps its pool's schedules (`flows.orchestration.reconciliation`).
"""

import asyncio
import inspect
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final
from uuid import UUID

import anyio
from anyio.abc import TaskStatus
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound, ParameterTypeError
from prefect.settings import get_current_settings
from prefect.states import Cancelled
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult

from flows.orchestration.deploy import (
    SECONDS_TO_ANSWER,
    UNREACHABLE_ERRORS,
    WORKER_TYPE,
    prefect_unreachable,
    require_pool_name,
    require_server,
)
from flows.orchestration.reconciliation import ScheduleKeeper, review_flow_runs, sweep_request_of
from flows.orchestration.release_flow import FLOWS
from flows.orchestration.worker_settings import WorkerSettings
from flows.schedules.slots import DEFAULT_OPTIONS, RunOptions
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import people
from tasks.common.progress import tell
from tasks.workers.time_limit import within

PROCESS_MODULE: Final = "flows.orchestration.flow_run_process"
SECONDS_BETWEEN_LOOKS: Final = 2.0
"""Seconds between a worker's checks whether its run was cancelled."""
SECONDS_TO_END: Final = 30.0
"""Seconds that a cancelled process has to close its attempt before it is killed."""
CANCELLED: Final = (StateType.CANCELLING, StateType.CANCELLED)


class ReleaseJobConfiguration(BaseJobConfiguration):
    """Job configuration without anything that a server could set."""


class ReleaseVariables(BaseVariables):
    """Job variables: those that every worker has. This one ignores them."""


class ReleaseWorkerResult(BaseWorkerResult):
    """Result of a flow run's process."""


class ReleaseWorker(BaseWorker[ReleaseJobConfiguration, ReleaseVariables, ReleaseWorkerResult]):
    """Worker that carries out releases of one home."""

    type = WORKER_TYPE
    job_configuration = ReleaseJobConfiguration
    job_configuration_variables = ReleaseVariables
    _display_name = "almoner"
    _description = "Carries out releases of one project home; the ledger decides each step."

    def __init__(
        self,
        work_pool_name: str,
        settings: WorkerSettings | None = None,
        keeper: ScheduleKeeper | None = None,
        **options: Any,
    ) -> None:
        """Make a worker; without settings, as `prefect worker start` makes one, those of the environment count.

        Args:
            keeper: keeps the schedules of the pool, which is the home's own.
        """
        super().__init__(work_pool_name, **{**options, "create_pool_if_not_found": False})
        self.settings = settings or WorkerSettings.of_environment()
        self.keeper = keeper
        self.running: set[UUID] = set()
        """The flow runs whose processes are this worker's."""

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Look after the runs of the pool that wait or died, then submit those that are due."""
        own = self.running | self._submitting_flow_run_ids
        await review_flow_runs(self.client, self._work_pool_name, self.name, own, self.settings.home)
        if self.keeper is not None:
            try:
                await anyio.to_thread.run_sync(self.keeper.keep)
            except (AlmonerError, *UNREACHABLE_ERRORS) as problem:  # the next poll tries again
                code = problem.code if isinstance(problem, AlmonerError) else type(problem).__name__
                tell(f"The schedules were not kept: {code}.")
        return await super().get_and_submit_flow_runs()

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ReleaseJobConfiguration,
        task_status: TaskStatus[int] | None = None,
    ) -> ReleaseWorkerResult:
        """Carry out a flow run in a process of its own, which ends with this worker.

        Raises:
            UsageError: its flow is not one of almoner's, or it has other parameters than its flow.
        """
        name = (await self.client.read_flow(flow_run.flow_id)).name
        require_runnable(name, flow_run.parameters)
        self.running.add(flow_run.id)
        try:
            return await self._run_process(flow_run, name, task_status)
        finally:
            self.running.discard(flow_run.id)

    async def _run_process(
        self, flow_run: FlowRun, flow_name: str, task_status: TaskStatus[int] | None
    ) -> ReleaseWorkerResult:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROCESS_MODULE, str(flow_run.id), flow_name,
            stdin=asyncio.subprocess.PIPE, env=self._process_environment(),
        )  # fmt: skip
        if task_status is not None:
            task_status.started(f"{self.name}:{process.pid}")  # type: ignore[arg-type]  # Prefect makes a text of it
        try:
            cancelled = await self._wait(process, flow_run.id)
        except asyncio.CancelledError:  # this worker was stopped, and a server beside it ends with it
            process.send_signal(signal.SIGINT)
            with anyio.CancelScope(shield=True):
                await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=SECONDS_TO_END)
            raise
        if cancelled:
            await self._close_cancelled(flow_run)
        status = 0 if cancelled else process.returncode
        return ReleaseWorkerResult(identifier=str(process.pid), status_code=-1 if status is None else status)

    def _process_environment(self) -> dict[str, str]:
        """Return this machine's environment with this worker's settings; nothing of it comes from the server."""
        prefect = get_current_settings().to_environment_variables(exclude_unset=True)
        return {**os.environ, **prefect, **self.settings.environment}

    async def _wait(self, process: asyncio.subprocess.Process, flow_run: UUID) -> bool:
        """Wait until a process has ended; return whether its run was cancelled, and it therefore stopped."""
        waiting = asyncio.ensure_future(process.wait())
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=SECONDS_BETWEEN_LOOKS)
            if not waiting.done() and await self._is_cancelled(flow_run):
                process.send_signal(signal.SIGINT)
                await asyncio.wait({waiting}, timeout=SECONDS_TO_END)
                if not waiting.done():
                    process.kill()
                await waiting
                return True
        return False

    async def _is_cancelled(self, flow_run: UUID) -> bool:
        """Return whether Prefect says that a run was cancelled; a server that does not answer says nothing."""
        try:
            state = (await self.client.read_flow_run(flow_run)).state
        except Exception:  # noqa: BLE001  # the run goes on without a server
            return False
        return state is not None and state.type in CANCELLED

    async def _close_cancelled(self, flow_run: FlowRun) -> None:
        await anyio.to_thread.run_sync(sweep_request_of, self.settings.home, flow_run)
        try:
            await self.client.set_flow_run_state(flow_run.id, Cancelled(), force=True)
        except ObjectNotFound:
            self._logger.debug("The cancelled flow run was deleted.")


def require_runnable(flow_name: str, parameters: Mapping[str, Any]) -> None:
    """Check that a flow run is of a flow of ours and has its parameters, before a process is started for it.

    Raises:
        UsageError: it is not (`UnknownFlow`), or has not (`ParametersUnfit`).
    """
    if flow_name not in FLOWS:
        raise UsageError(
            f"An almoner worker runs the flows {', '.join(sorted(FLOWS))}, and not {flow_name!r}.",
            "Give its deployment a work pool of another type.",
            {"flow": flow_name},
            code="UnknownFlow",
        )
    flow = FLOWS[flow_name]
    try:
        inspect.signature(flow.fn).bind(**parameters)
        flow.validate_parameters(dict(parameters))
    except (TypeError, ParameterTypeError):
        raise UsageError(  # the parameters are not repeated, because anybody may have typed them
            f"The parameters of this run are not those of the flow {flow_name!r}.",
            "Start a release with `almoner release start ID`.",
            {"flow": flow_name},
            code="ParametersUnfit",
        ) from None


# --- Loops -----------------------------------------------------------------------------------------------------


def serve_pool(
    home: ProjectHome,
    pool: str,
    destination: str,
    *,
    options: RunOptions = DEFAULT_OPTIONS,
    queues: Sequence[str] = (),
    limit: int = 1,
    name: str | None = None,
    once: bool = False,
) -> None:
    """Take flow runs of a work pool, at most `limit` at once, until Ctrl-C or SIGTERM; `once`: those that are due.

    A run that is under way when the worker is stopped ends as with Ctrl-C, and another worker goes on with it.

    Raises:
        UsageError: Prefect takes no such name of a pool.
        Refused: the home's owner is no runner, and could run nothing.
        EnvironmentProblem: no server is named, it does not answer, or it has no such work pool, or one of another type.
        And as `flows.workspace.workspace.open_workspace` and `tasks.object_storage.address.parse_place`.
    """
    require_pool_name(pool)
    settings = WorkerSettings(home, destination, options)
    _ = settings.place
    _require_runner(home)
    require_server()
    _require_pool(pool)
    _work(ReleaseWorker(pool, settings, work_queues=[*queues], limit=limit, name=name or _new_name()), once=once)


def serve_schedules(settings: WorkerSettings, *, once: bool = False) -> None:
    """Keep the schedules of a home on the configured server, and carry out their runs, until Ctrl-C or SIGTERM.

    Two processes at once: one generates, and the other one decides about slots.

    Raises:
        EnvironmentProblem: no server is named, or it does not answer, or refuses.
        As `flows.workspace.workspace.open_workspace`.
    """
    require_server()
    keeper = ScheduleKeeper(settings.home, settings.approved)
    try:
        within(SECONDS_TO_ANSWER, keeper.prepare)
    except UNREACHABLE_ERRORS as problem:
        raise prefect_unreachable(problem) from None
    _work(ReleaseWorker(keeper.pool, settings, keeper, limit=2, name=_new_name()), once=once)


def _work(worker: ReleaseWorker, *, once: bool) -> None:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(worker.start(run_once=once, printer=tell))
    except* UNREACHABLE_ERRORS as problems:
        raise prefect_unreachable(problems.exceptions[0]) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _new_name() -> str:
    """Return a name that no earlier worker had: runs of a worker that is gone are recognised by its name."""
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


def _require_runner(home: ProjectHome) -> None:
    workspace = open_workspace(home)
    with workspace.database.read() as session:
        if "runner" not in people.roles_of(session, workspace.actor.id):
            name = workspace.actor.name
            raise Refused(
                f"{name} is not a runner, so a worker from this home could run nothing.",
                f"An admin grants the role: `almoner user grant {name} runner`.",
                {"principal": name},
                code="RunnerRoleMissing",
            )


def _kind_of_pool(pool: str) -> str:
    with get_client(sync_client=True) as client:
        return client.read_work_pool(pool).type


def _require_pool(pool: str) -> None:
    try:
        kind = within(SECONDS_TO_ANSWER, lambda: _kind_of_pool(pool))
    except ObjectNotFound:
        kind = "none"
    except UNREACHABLE_ERRORS as problem:
        raise prefect_unreachable(problem) from None
    if kind != WORKER_TYPE:
        found = "has no such work pool" if kind == "none" else f"has a work pool of that name and of the type {kind!r}"
        raise EnvironmentProblem(
            f"An almoner worker cannot serve the pool {pool!r}: the Prefect server {found}.",
            f"Make it with `almoner deploy --pool {pool}`.",
            {"pool": pool, "type": kind},
            code="PoolMissing",
        )
