"""Schedules as Prefect deployments, and Prefect's runner beside the loop of `almoner serve`.

Only where PREFECT_API_URL names a server: the temporary one that Prefect would start schedules nothing.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
from prefect.exceptions import PrefectException

from flows.schedules.poller import PollerSettings
from flows.schedules.recurrence import schedule_fields
from flows.workspace.prefect_flow import set_environment
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import EnvironmentProblem, UsageError
from models_db.home import ProjectHome
from models_db.services import schedules
from models_db.services.audit import chain
from models_db.services.schedules import Timing
from tasks.workers.time_limit import within

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

TAG, THREAD = "almoner", "prefect"
SECONDS_TO_ANSWER = 60
"""Seconds that a Prefect server has for what one command asks of it: its client waits so long for each piece."""
UNREACHABLE_ERRORS = (httpx.HTTPError, OSError, RuntimeError, PrefectException)


def deployments(workspace: Workspace) -> "list[RunnerDeployment]":
    """Return a deployment for every active schedule whose rule Prefect can also read.

    Its runs call `flows.schedules.prefect_trigger.run_due_slot`. The loop of `almoner serve` serves the other
    schedules. A server learns the number of a schedule and the hash that names its ledger.
    """
    with workspace.database.read() as session:
        timings = [
            (schedule.id, chain.ledger_id(session), Timing.of_schedule(schedule))
            for schedule in schedules.list_all(session)
            if schedules.state_of(session, schedule.id) == "active"
        ]
    candidates = [_schedule_deployment(*each) for each in timings]
    return [each for each in candidates if each is not None]


def _schedule_deployment(number: int, ledger: str, timing: Timing) -> "RunnerDeployment | None":
    from prefect.client.schemas.schedules import construct_schedule
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    from flows.schedules.prefect_trigger import run_due_slot

    try:
        schedule = construct_schedule(**schedule_fields(timing))
    except (ValueError, UsageError):  # pydantic's ValidationError is a ValueError
        return None
    return RunnerDeployment.from_flow(
        run_due_slot,
        name=f"{ledger[:12]}-{number}",
        schedules=[schedule],
        parameters={"schedule": number, "ledger": ledger},
        tags=[TAG],
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


@contextmanager
def start_prefect_runner(home: ProjectHome, settings: PollerSettings) -> Iterator[None]:
    """Run Prefect's runner in a thread for the duration of the block.

    A server that becomes unreachable later does not stop the loop, which needs none.

    Raises:
        EnvironmentProblem: the configured server does not answer, or is no Prefect server.
    """
    from prefect.runner import Runner

    runner = Runner(name=TAG, pause_on_shutdown=False)
    schedule_deployments = deployments(open_workspace(home))
    try:
        within(SECONDS_TO_ANSWER, lambda: [runner.add_deployment(each) for each in schedule_deployments])
    except UNREACHABLE_ERRORS as problem:
        raise prefect_unreachable(problem) from None
    loop = asyncio.new_event_loop()
    serving = loop.create_task(runner.start())
    thread = threading.Thread(target=_serve_deployments, args=(loop, serving), name=THREAD, daemon=True)
    with set_environment(settings.environment):  # for the processes of flow runs
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join(timeout=60)


def _serve_deployments(loop: asyncio.AbstractEventLoop, serving: "asyncio.Task[None]") -> None:
    with suppress(asyncio.CancelledError, ExceptionGroup, *UNREACHABLE_ERRORS):
        loop.run_until_complete(serving)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def prefect_unreachable(problem: BaseException) -> EnvironmentProblem:
    """Return the error of a server that cannot be used, without the text of `problem`, which may repeat its address."""
    reason = type(problem).__name__
    return EnvironmentProblem(
        f"The Prefect server that PREFECT_API_URL names cannot be used: {reason}.",
        "Start it (`prefect server start`), or serve without it: `almoner serve --without-prefect`.",
        {"reason": reason},
        code="PrefectUnreachable",
    )
