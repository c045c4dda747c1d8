"""Review of a work pool's flow runs: those that the ledger lets go on, whose process died, or that were cancelled.

The ledger is the authority. Prefect's states say where to look; what is done to a run follows from the request's next
step. Any number of workers may review the same runs: each change is a state that Prefect may refuse, and a run that is
begun twice finds in the ledger that another process has the request.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import anyio
from httpx import HTTPStatusError
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException
from prefect.states import AwaitingRetry, Cancelled
from sqlalchemy.orm import Session

from flows.releases.next_step import next_step
from flows.releases.resume import forfeit_own_dead_attempts
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services.audit import chain
from tasks.common.progress import tell

PAGE: Final = 200
MOST_NUMBER: Final = 10**18
"""Upper bound on the number of a request; a server may name any."""
MOST_STARTS: Final = 20
"""Maximum number of starts of a flow run whose process dies; after that a person must act."""
DELAY: Final = timedelta(seconds=30)
"""Delay before a run whose process died is started again."""
LONGEST_SUBMISSION: Final = timedelta(minutes=5)
"""Time after which a run that a worker has taken and not started counts as abandoned."""
REVIEWED_STATES: Final = (
    StateType.PAUSED, StateType.PENDING, StateType.RUNNING, StateType.CRASHED, StateType.CANCELLING,
)  # fmt: skip


async def review_flow_runs(
    client: PrefectClient, pool: str, worker: str, own: Collection[UUID], home: ProjectHome
) -> None:
    """Resume, begin anew or close the flow runs of a pool, as the ledger and the state of their processes say.

    Args:
        worker: the name of the worker that asks.
        own: the flow runs whose processes are alive and its own.
    """
    runs = [run for run in await _read_flow_runs(client, pool) if run.id not in own]
    if not runs:
        return
    online = {worker, *await _read_online_workers(client, pool)}
    try:
        ready = await anyio.to_thread.run_sync(_ready_runs, home, runs)
    except AlmonerError as problem:  # the ledger does not answer: the next review asks again
        tell(f"Flow runs were not reviewed: {problem.code}: {problem.message}")
        return
    for run in runs:
        try:
            await _review_flow_run(client, run, worker, online, home, ready=run.id in ready)
        except (AlmonerError, PrefectException, HTTPStatusError) as problem:  # of one run that is no matter of others
            reason = problem.code if isinstance(problem, AlmonerError) else type(problem).__name__
            tell(f"{run.name} was not reviewed: {reason}.")


async def _review_flow_run(
    client: PrefectClient, run: FlowRun, worker: str, online: Collection[str], home: ProjectHome, *, ready: bool
) -> None:
    state = run.state
    if state is None:
        return
    holder = (run.infrastructure_pid or "").rpartition(":")[0]
    if state.type is StateType.PAUSED:
        if ready:
            await client.resume_flow_run(run.id)
    elif holder != worker and holder in online:
        return  # that worker looks after it
    elif state.type is StateType.CANCELLING:
        await anyio.to_thread.run_sync(sweep_request_of, home, run)
        await client.set_flow_run_state(run.id, Cancelled(), force=True)
    elif _is_left_behind(run, state, holder):
        again = datetime.now(UTC) + DELAY
        await client.set_flow_run_state(run.id, AwaitingRetry(scheduled_time=again), force=True)


def _is_left_behind(run: FlowRun, state: State, holder: str) -> bool:
    """Return whether a run is to be begun anew: its process died, or its worker did before it had begun a process."""
    if not holder:
        return state.type is StateType.PENDING and datetime.now(UTC) - state.timestamp > LONGEST_SUBMISSION
    never_began = state.type is StateType.CRASHED and run.run_count == 0  # it would not begin the next time either
    return run.run_count <= MOST_STARTS and not never_began


async def _read_flow_runs(client: PrefectClient, pool: str) -> list[FlowRun]:
    states = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(REVIEWED_STATES))))
    runs: list[FlowRun] = []
    while True:
        page = await client.read_flow_runs(
            flow_run_filter=states,
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=PAGE,
            offset=len(runs),
        )
        runs += page
        if len(page) < PAGE:
            return runs


async def _read_online_workers(client: PrefectClient, pool: str) -> set[str]:
    workers = await client.read_workers_for_work_pool(pool, offset=0, limit=PAGE)
    return {worker.name for worker in workers if worker.status is WorkerStatus.ONLINE}


def _ready_runs(home: ProjectHome, runs: Collection[FlowRun]) -> set[UUID]:
    """Return the suspended runs for whose requests the ledger has a next step, which may be a refusal."""
    suspended = [run for run in runs if run.state is not None and run.state.type is StateType.PAUSED]
    if not suspended:
        return set()
    with open_workspace(home).database.read() as session:
        ledger = chain.ledger_id(session)
        return {run.id for run in suspended if _is_ready(session, ledger, run)}


def _is_ready(session: Session, ledger: str, run: FlowRun) -> bool:
    request = request_of(run, ledger)
    if request is None:
        return False
    try:
        return not next_step(session, request).waits
    except (Refused, UsageError):
        return True


def request_of(run: FlowRun, ledger: str) -> int | None:
    """Return the number of the request of this ledger that a flow run is about; None if it names none."""
    number = run.parameters.get("request")
    names_one = isinstance(number, int) and not isinstance(number, bool) and 0 < number <= MOST_NUMBER
    return number if names_one and run.parameters.get("ledger") == ledger else None


def sweep_request_of(home: ProjectHome, run: FlowRun) -> None:
    """Close the attempt that the process of a cancelled run left, so that nothing stays reserved for it."""
    workspace = open_workspace(home)
    with workspace.database.read() as session:
        request = request_of(run, chain.ledger_id(session))
    if request is not None:
        forfeit_own_dead_attempts(workspace, request)
