"""Work pool, queues, deployments and automations of releases on a Prefect server, and the same as a `prefect.yaml`.

Everything is made anew from the code at each call, so that a second call repairs what somebody changed there.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.events.actions import RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.flows import Flow
from prefect.settings import PREFECT_API_URL
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from flows.observability.prefect_report import TAG
from flows.orchestration.release_flow import release, send_notices
from flows.orchestration.worker import WORKER_TYPE
from flows.schedules.prefect_deployments import UNREACHABLE_ERRORS, PrefectUnreachable
from flows.workspace.yaml_files import FileUnwritable
from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.files import write_new

QUEUES: Final = {"urgent": 1, "default": 2, "background": 3}
"""Work queues of the pool with their priorities; runs of the first are taken first. Prefect makes `default` itself."""
DEPLOYMENT: Final = "almoner"
"""Name of the deployment of each flow: `release/almoner`."""
HOURS_BEFORE_REMINDER: Final = 24
JOB_TEMPLATE: Final[dict[str, Any]] = {
    "job_configuration": {"name": "almoner"},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""A flow run cannot set anything of its process."""
FLOWS_AND_DESCRIPTIONS: Final = (
    (release, "One release: suspended at its gates; the ledger decides each step."),
    (send_notices, "Sends the notices that are due."),
)


@dataclass(frozen=True)
class Deployed:
    """Deployment that `almoner deploy` made on a server."""

    pool: str
    deployments: tuple[str, ...]
    queues: tuple[str, ...]
    automations: tuple[str, ...]


def deploy(pool: str, limit: int | None) -> Deployed:
    """Make the work pool, its queues, the deployments and the automations on the configured server.

    Args:
        limit: how many flow runs of the pool may be under way at once, on all machines; None for no limit.

    Raises:
        PoolNameUnfit.
        PrefectNotConfigured: no server is named.
        PrefectUnreachable: it does not answer, or refuses.
    """
    require_pool_name(pool)
    require_server()
    try:
        with get_client(sync_client=True) as client:
            _create_pool(client, pool, limit)
            identifiers = {
                flow.name: cast(UUID, _runner_deployment(flow, description, pool).apply())
                for flow, description in FLOWS_AND_DESCRIPTIONS
            }
            automations = _automations(identifiers[send_notices.name])
            for automation in automations:
                _replace_automation(client, automation)
    except UNREACHABLE_ERRORS as problem:
        raise PrefectUnreachable(type(problem).__name__) from None
    names = tuple(f"{flow.name}/{DEPLOYMENT}" for flow, _ in FLOWS_AND_DESCRIPTIONS)
    return Deployed(pool, names, tuple(QUEUES), tuple(each.name for each in automations))


def require_pool_name(pool: str) -> None:
    """Check that Prefect takes the name of a work pool.

    Raises:
        PoolNameUnfit.
    """
    try:
        WorkPoolCreate(name=pool)
    except ValidationError:
        raise PoolNameUnfit(pool) from None
    if not pool.isprintable():
        raise PoolNameUnfit(pool)


def require_server() -> None:
    """Check that Prefect's settings name a server.

    Raises:
        PrefectNotConfigured.
    """
    if not PREFECT_API_URL.value():
        raise PrefectNotConfigured


def start_release(request: int, ledger: str, queue: str) -> UUID:
    """Create a flow run of the release flow for a request of a ledger; return its id.

    Raises:
        PrefectNotConfigured, PrefectUnreachable: as `deploy`.
        NotDeployed: the server has no such deployment or queue.
    """
    require_server()
    try:
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment_by_name(f"{release.name}/{DEPLOYMENT}")
            if deployment.work_pool_name:
                client.read_work_queue_by_name(queue, work_pool_name=deployment.work_pool_name)
            run = client.create_flow_run_from_deployment(
                deployment.id,
                parameters={"request": request, "ledger": ledger},
                name=f"release-request-{request}",
                tags=[TAG, f"request:{request}"],
                work_queue_name=queue,
            )
    except ObjectNotFound:
        raise NotDeployed(queue) from None
    except UNREACHABLE_ERRORS as problem:
        raise PrefectUnreachable(type(problem).__name__) from None
    return run.id


def prefect_yaml(pool: str) -> dict[str, Any]:
    """Return the deployments as Prefect's own project file, for pools of its own types (process, Docker, Kubernetes).

    Their workers import the flows from the installed package, and read the home and destination from the
    environment of their job template (`flows.orchestration.worker_settings`).
    """
    return {
        "name": "almoner",
        "deployments": [
            {
                "name": DEPLOYMENT,
                "description": description,
                "tags": [TAG],
                "entrypoint": _entrypoint(flow),
                "enforce_parameter_schema": True,
                "work_pool": {"name": pool, "work_queue_name": "default"},
            }
            for flow, description in FLOWS_AND_DESCRIPTIONS
        ],
    }


def write_prefect_yaml(path: Path, pool: str) -> None:
    """Write `prefect_yaml` as a new file.

    Raises:
        PoolNameUnfit.
        FileUnwritable: it exists, or cannot be written.
    """
    require_pool_name(pool)
    try:
        write_new(path, yaml.safe_dump(prefect_yaml(pool), sort_keys=False).encode(), 0o644)
    except OSError as problem:
        raise FileUnwritable(path, problem.strerror or type(problem).__name__) from None


def _entrypoint(flow: Flow[Any, Any]) -> str:
    return f"{flow.fn.__module__}.{flow.fn.__name__}"


def _create_pool(client: SyncPrefectClient, pool: str, limit: int | None) -> None:
    wanted = WorkPoolCreate(
        name=pool,
        type=WORKER_TYPE,
        description="Machines that carry out releases of one ledger.",
        base_job_template=JOB_TEMPLATE,
        concurrency_limit=limit,
    )
    client.create_work_pool(wanted, overwrite=True)
    for name, priority in QUEUES.items():
        try:
            client.create_work_queue(name, priority=priority, work_pool_name=pool)
        except ObjectAlreadyExists:
            queue = client.read_work_queue_by_name(name, work_pool_name=pool)
            client.update_work_queue(queue.id, priority=priority)


def _runner_deployment(flow: Flow[Any, Any], description: str, pool: str) -> RunnerDeployment:
    return RunnerDeployment.from_flow(
        flow,
        name=DEPLOYMENT,
        description=description,
        tags=[TAG],
        work_pool_name=pool,
        work_queue_name="default",
        enforce_parameter_schema=True,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _automations(notices: UUID) -> tuple[AutomationCore, ...]:
    """Two rules that send notices: when a release failed, and when a gate has kept one waiting for a day.

    Prefect counts from the first event of `after`, and from a later one only if `expect` has that event too: without
    it, a release that passed one gate would not be missed at the next one on the same day.
    """
    action = RunDeployment(source="selected", deployment_id=notices)
    runs = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})
    releases = ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": release.name})
    failed = EventTrigger(
        match=runs,
        match_related=releases,
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
    )
    waiting = EventTrigger(
        match=runs,
        match_related=releases,
        after={"prefect.flow-run.Suspended"},
        expect={"prefect.flow-run.Suspended", "prefect.flow-run.Running", "prefect.flow-run.Cancelled"},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=timedelta(hours=HOURS_BEFORE_REMINDER),
    )
    return (
        AutomationCore(name="almoner: a release failed", trigger=failed, actions=[action]),
        AutomationCore(name="almoner: a gate has waited for a day", trigger=waiting, actions=[action]),
    )


def _replace_automation(client: SyncPrefectClient, automation: AutomationCore) -> None:
    for earlier in client.read_automations_by_name(automation.name):
        client.delete_automation(earlier.id)
    client.create_automation(automation)


class PoolNameUnfit(UsageError):
    """Name of a work pool that Prefect does not take."""

    def __init__(self, pool: str) -> None:
        super().__init__(
            f"Prefect takes no work pool of the name {pool!r}.",
            "Use printable characters without / % & > <, and at least one.",
            {"pool": pool},
        )


class PrefectNotConfigured(EnvironmentProblem):
    """A command needs a Prefect server, and no setting names one."""

    def __init__(self) -> None:
        super().__init__(
            "No Prefect server is configured: PREFECT_API_URL is not set.",
            "Start one (`prefect server start`) and set PREFECT_API_URL=http://127.0.0.1:4200/api.",
        )


class NotDeployed(EnvironmentProblem):
    """The server does not know the release flow, or not the queue."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"The Prefect server has no deployment {release.name}/{DEPLOYMENT}, or its pool has no queue {queue!r}.",
            f"Deploy it with `almoner deploy`; the queues are {', '.join(QUEUES)}.",
            {"queue": queue},
        )
