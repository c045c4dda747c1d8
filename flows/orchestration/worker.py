"""Prefect worker of type `almoner`: it carries out releases in processes of its own, and looks after those that wait.

A worker of Prefect's own types runs whatever command, environment and code its server names. This one takes two things
from a flow run: the name of its flow, which must be one of ours, and its parameters, which Prefect checks. A job
template has no variables, so there is nothing else to set.

Before each poll a worker looks at the flow runs of its pool that are not ended (`review_flow_runs`): it resumes those
for which the ledger has a next step, begins those anew whose process died, and closes those that were cancelled.
"""

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import anyio
from anyio.abc import TaskStatus
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound, ParameterTypeError
from prefect.settings import get_current_settings
from prefect.states import Cancelled
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult

from flows.orchestration.release_flow import FLOWS
from flows.orchestration.review_flow_runs import review_flow_runs, sweep_request_of
from flows.orchestration.worker_settings import WorkerSettings
from models_db.errors import UsageError

WORKER_TYPE: Final = "almoner"
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

    def __init__(self, work_pool_name: str, settings: WorkerSettings | None = None, **options: Any) -> None:
        """Make a worker; without settings, as `prefect worker start` makes one, those of the environment count."""
        super().__init__(work_pool_name, **{**options, "create_pool_if_not_found": False})
        self.settings = settings or WorkerSettings.of_environment()
        self.running: set[UUID] = set()
        """The flow runs whose processes are this worker's."""

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Look after the runs of the pool that wait or died, then submit those that are due."""
        own = self.running | self._submitting_flow_run_ids
        await review_flow_runs(self.client, self._work_pool_name, self.name, own, self.settings.home)
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
        cancelled = await self._wait(process, flow_run.id)
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
