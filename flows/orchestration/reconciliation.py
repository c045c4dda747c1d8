"""Reconciliation of a work pool with the ledger before each poll: flow runs, and schedules of a home's own pool.

The ledger is the authority. Prefect's states say where to look; what is done to a run follows from the request's next
step. Any number of workers may review the same runs: each change is a state that Prefect may refuse, and a run that is
begun twice finds in the ledger that another process has the request.

Each home has a work pool of its own for schedules, whose deployments are kept equal to the ledger's active schedules:
they are created and deleted, never changed. At each time of a schedule Prefect starts a flow run, which decides the
slot in the ledger (`flows.orchestration.release_flow.decide_schedule`). What is then to be run is asked of the ledger
again, so a request is run even if the process that recorded it died.
"""

import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import anyio
from httpx import HTTPStatusError
from prefect.client.orchestration import PrefectClient, SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus
from prefect.client.schemas.schedules import construct_schedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException
from prefect.states import AwaitingRetry, Cancelled
from sqlalchemy.orm import Session

from flows.orchestration.deploy import TAG, create_pool, deployment_of
from flows.orchestration.release_flow import decide_schedule, run_waiting
from flows.releases.attempt import require_data
from flows.releases.next_step import ReleaseStep, next_step
from flows.releases.resume import forfeit_own_dead_attempts
from flows.schedules.recurrence import schedule_fields
from flows.schedules.slots import find_due_slot, waiting_requests
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import AlmonerError, Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import people, requests, schedules
from models_db.services.audit import chain
from models_db.services.schedules import Timing
from tasks.common.files import write_new
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


# --- Schedules -------------------------------------------------------------------------------------------------

RUN_QUEUE: Final = "background"
"""Queue of a home's pool whose runs generate, one after the other; decisions about slots do not wait for them."""
SECONDS_BETWEEN_CHECKS: Final = 900.0
"""Seconds between two checks for slots that Prefect has not had decided: the server was down, or a decision failed."""


@dataclass
class ScheduleKeeper:
    """Keeps the work pool of a home as the ledger says, within the roles of its owner: analysts request, runners run.

    Attributes:
        approved: whether requests that stewards have approved one by one are run, too.
    """

    home: ProjectHome
    approved: bool = False
    _ledger: str = ""
    _checked_at: float | None = None
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read the ledger's name."""
        with open_workspace(self.home).database.read() as session:
            self._ledger = chain.ledger_id(session)

    @property
    def pool(self) -> str:
        """Name of the home's work pool: the ledger's, and a random number that the home keeps."""
        self.home.prefect.mkdir(mode=0o700, exist_ok=True)
        file = self.home.prefect / "pool"
        with suppress(FileExistsError):
            write_new(file, secrets.token_hex(4).encode(), 0o600)
        return f"{TAG}-{self._ledger[:12]}-{file.read_text()}"

    def prepare(self) -> None:
        """Make the work pool and the deployment of runs; at most one run of the pool is under way at once."""
        with get_client(sync_client=True) as client:
            create_pool(client, self.pool, None)
            queue = client.read_work_queue_by_name(RUN_QUEUE, work_pool_name=self.pool)
            client.update_work_queue(queue.id, concurrency_limit=1)
        deployment_of(run_waiting, self.pool, self.pool, work_queue_name=RUN_QUEUE).apply()

    def keep(self) -> None:
        """Keep the deployments, start the decision of late slots, and start what the ledger has to be run.

        A late slot is looked for in a new deployment, and in all of them at the start and at times: each is started
        once a day at most, as is each request of a slot, and a request that was approved by hand once.

        Raises:
            AlmonerError: the ledger cannot be read.
            The errors of a Prefect server that cannot be used (`flows.orchestration.deploy.UNREACHABLE_ERRORS`).
        """
        workspace, today = open_workspace(self.home), datetime.now(UTC).date()
        with get_client(sync_client=True) as client:
            deployments, new = self._keep_deployments(client, workspace)
            now = time.monotonic()
            if self._checked_at is None or now - self._checked_at > SECONDS_BETWEEN_CHECKS:
                new, self._checked_at = set(deployments), now
            for number, slot in self._late_slots(workspace, new).items():
                key = f"{self.pool}-schedule-{number}-{slot}-{today}"
                client.create_flow_run_from_deployment(deployments[number], idempotency_key=key)
            runs = client.read_deployment_by_name(f"{run_waiting.name}/{self.pool}").id
            for number, by_hand in self._startable_requests(workspace).items():
                key = f"{self.pool}-request-{number}" + ("" if by_hand else f"-{today}")
                parameters = {"request": number, "ledger": self._ledger}
                client.create_flow_run_from_deployment(runs, parameters=parameters, idempotency_key=key)

    def _keep_deployments(self, client: SyncPrefectClient, workspace: Workspace) -> tuple[dict[int, UUID], set[int]]:
        """Return the deployment of each active schedule, and the schedules whose deployment is new."""
        active = self._active_schedules(workspace)
        there = self._read_deployments(client)
        wanted = {f"{self.pool}-{number}": number for number in active}
        for name in there.keys() - wanted.keys():
            client.delete_deployment(there.pop(name))
        new = set[int]()
        for name in wanted.keys() - there.keys():
            number = wanted[name]
            try:
                schedule = construct_schedule(**schedule_fields(active[number]))
            except (ValueError, UsageError) as problem:  # pydantic's ValidationError is a ValueError
                code = problem.code if isinstance(problem, UsageError) else type(problem).__name__
                self._tell_once(f"Schedule {number} is not served: {code}.")
                continue
            parameters = {"schedule": number, "ledger": self._ledger}
            made = deployment_of(decide_schedule, name, self.pool, schedules=[schedule], parameters=parameters).apply()
            there[name] = UUID(str(made))
            new.add(number)
        return {wanted[name]: identifier for name, identifier in there.items()}, new

    def _active_schedules(self, workspace: Workspace) -> Mapping[int, Timing]:
        with workspace.database.read() as session:
            if "analyst" not in people.roles_of(session, workspace.actor.id):
                return {}
            return {
                schedule.id: Timing.of_schedule(schedule)
                for schedule in schedules.list_all(session)
                if schedules.state_of(session, schedule.id) == "active"
            }

    def _read_deployments(self, client: SyncPrefectClient) -> dict[str, UUID]:
        deployments: dict[str, UUID] = {}
        while True:
            page = client.read_deployments(
                flow_filter=FlowFilter(name=FlowFilterName(any_=[decide_schedule.name])),
                work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[self.pool])),
                limit=PAGE,
                offset=len(deployments),
            )
            deployments |= {each.name: each.id for each in page}
            if len(page) < PAGE:
                return deployments

    def _late_slots(self, workspace: Workspace, numbers: set[int]) -> dict[int, str]:
        with workspace.database.read() as session:
            found = {
                number: find_due_slot(session, schedules.find_schedule(session, number), datetime.now(UTC))
                for number in sorted(numbers)
            }
        return {number: slot for number, slot in found.items() if slot is not None}

    def _startable_requests(self, workspace: Workspace) -> dict[int, bool]:
        """Return the requests to start, with whether each was approved by hand.

        One that another process runs is none, nor is one whose data another home has.
        """
        startable = dict[int, bool]()
        for number in waiting_requests(workspace, approved=self.approved):
            try:
                require_data(workspace, number)
            except AlmonerError as problem:
                self._tell_once(f"Request {number} is not run here: {problem.code}: {problem.message}")
                continue
            with workspace.database.read() as session:
                try:
                    elsewhere = next_step(session, number) is ReleaseStep.AWAIT_OTHER_RUN
                except (Refused, UsageError):  # the run is refused, and a slot's is then given up
                    elsewhere = False
                if not elsewhere:
                    startable[number] = requests.find_request(session, number).standing_id is None
        return startable

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            tell(line)
