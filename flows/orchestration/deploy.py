"""Work pool, queues and deployment of releases on a Prefect server, and the deployment as a `prefect.yaml`.

Everything is made anew from the code at each call, so that a second call repairs what somebody changed there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
import yaml
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectException
from prefect.settings import PREFECT_API_URL
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from flows.orchestration.release_flow import release
from flows.workspace.yaml_files import file_unwritable
from models_db.errors import EnvironmentProblem, UsageError
from tasks.common.files import write_new
from tasks.workers.time_limit import within

WORKER_TYPE: Final = "almoner"
TAG: Final = "almoner"
SECONDS_TO_ANSWER: Final = 60
"""Seconds that a Prefect server has for what one command asks of it: its client waits so long for each piece."""
UNREACHABLE_ERRORS: Final = (httpx.HTTPError, OSError, RuntimeError, PrefectException)
QUEUES: Final = {"urgent": 1, "default": 2, "background": 3}
"""Work queues of the pool with their priorities; runs of the first are taken first. Prefect makes `default` itself."""
DEPLOYMENT: Final = "almoner"
"""Name of the deployment of the release flow: `release/almoner`."""
JOB_TEMPLATE: Final[dict[str, Any]] = {
    "job_configuration": {"name": "almoner"},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""A flow run cannot set anything of its process."""
DESCRIPTION: Final = "One release: suspended at its gates; the ledger decides each step."


@dataclass(frozen=True)
class Deployed:
    """Deployment that `almoner deploy` made on a server."""

    pool: str
    deployment: str
    queues: tuple[str, ...]


def deploy(pool: str, limit: int | None) -> Deployed:
    """Make the work pool, its queues and the deployment on the configured server.

    Args:
        limit: how many flow runs of the pool may be under way at once, on all machines; None for no limit.

    Raises:
        UsageError: Prefect takes no such name.
        EnvironmentProblem: no server is named, or it does not answer, or refuses.
    """
    require_pool_name(pool)
    require_server()
    try:
        within(SECONDS_TO_ANSWER, lambda: _deploy(pool, limit))
    except UNREACHABLE_ERRORS as problem:
        raise prefect_unreachable(problem) from None
    return Deployed(pool, f"{release.name}/{DEPLOYMENT}", tuple(QUEUES))


def _deploy(pool: str, limit: int | None) -> None:
    with get_client(sync_client=True) as client:
        create_pool(client, pool, limit)
    deployment_of(release, DEPLOYMENT, pool, description=DESCRIPTION).apply()


def deployment_of(of: Flow[..., None], name: str, pool: str, **settings: Any) -> RunnerDeployment:
    """Return the deployment of a flow in a pool; its code is imported from the installed package."""
    return RunnerDeployment.from_flow(
        of,
        name=name,
        tags=[TAG],
        work_pool_name=pool,
        enforce_parameter_schema=True,
        entrypoint_type=EntrypointType.MODULE_PATH,
        **{"work_queue_name": "default", **settings},
    )


def require_pool_name(pool: str) -> None:
    """Check that Prefect takes the name of a work pool.

    Raises:
        UsageError: it does not (`PoolNameUnfit`).
    """
    try:
        WorkPoolCreate(name=pool)
        fits = pool.isprintable()
    except ValidationError:
        fits = False
    if not fits:
        raise UsageError(
            f"Prefect takes no work pool of the name {pool!r}.",
            "Use printable characters without / % & > <, and at least one.",
            {"pool": pool},
            code="PoolNameUnfit",
        )


def require_server() -> None:
    """Check that Prefect's settings name a server.

    Raises:
        EnvironmentProblem: they name none (`PrefectNotConfigured`).
    """
    if not PREFECT_API_URL.value():
        raise EnvironmentProblem(
            "No Prefect server is configured: PREFECT_API_URL is not set.",
            "Start one (`prefect server start`) and set PREFECT_API_URL=http://127.0.0.1:4200/api.",
            code="PrefectNotConfigured",
        )


def start_release(request: int, ledger: str, queue: str) -> UUID:
    """Create a flow run of the release flow for a request of a ledger; return its id.

    Raises:
        EnvironmentProblem: no server is named, it does not answer, or it has no such deployment or queue.
    """
    require_server()
    try:
        return within(SECONDS_TO_ANSWER, lambda: _create_flow_run(request, ledger, queue))
    except ObjectNotFound:
        raise EnvironmentProblem(
            f"The Prefect server has no deployment {release.name}/{DEPLOYMENT}, or its pool has no queue {queue!r}.",
            f"Deploy it with `almoner deploy`; the queues are {', '.join(QUEUES)}.",
            {"queue": queue},
            code="NotDeployed",
        ) from None
    except UNREACHABLE_ERRORS as problem:
        raise prefect_unreachable(problem) from None


def _create_flow_run(request: int, ledger: str, queue: str) -> UUID:
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
    return run.id


def prefect_yaml(pool: str) -> dict[str, Any]:
    """Return the deployment as Prefect's own project file, for pools of its own types (process, Docker, Kubernetes).

    Their workers import the flow from the installed package, and read the home and destination from the
    environment of their job template (`flows.orchestration.worker_settings`).
    """
    return {
        "name": "almoner",
        "deployments": [
            {
                "name": DEPLOYMENT,
                "description": DESCRIPTION,
                "tags": [TAG],
                "entrypoint": f"{release.fn.__module__}.{release.fn.__name__}",
                "enforce_parameter_schema": True,
                "work_pool": {"name": pool, "work_queue_name": "default"},
            }
        ],
    }


def write_prefect_yaml(path: Path, pool: str) -> None:
    """Write `prefect_yaml` as a new file.

    Raises:
        UsageError: Prefect takes no such name.
        FileUnwritable: it exists, or cannot be written.
    """
    require_pool_name(pool)
    try:
        write_new(path, yaml.safe_dump(prefect_yaml(pool), sort_keys=False).encode(), 0o644)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None


def create_pool(client: SyncPrefectClient, pool: str, limit: int | None) -> None:
    """Make a work pool of almoner's own type, and its queues."""
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


def prefect_unreachable(problem: BaseException) -> EnvironmentProblem:
    """Return the error of a server that cannot be used, without the text of `problem`, which may repeat its address."""
    reason = type(problem).__name__
    return EnvironmentProblem(
        f"The Prefect server that PREFECT_API_URL names cannot be used: {reason}.",
        "Start it (`prefect server start`), or unset PREFECT_API_URL: `almoner serve` then starts one of its own.",
        {"reason": reason},
        code="PrefectUnreachable",
    )
