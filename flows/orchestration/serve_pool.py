"""Loop of `almoner worker`: one worker of a pool, until it is stopped."""

import asyncio
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from flows.orchestration.deploy import require_pool_name, require_server
from flows.orchestration.worker import WORKER_TYPE, ReleaseWorker
from flows.orchestration.worker_settings import WorkerSettings
from flows.schedules.prefect_deployments import SECONDS_TO_ANSWER, UNREACHABLE_ERRORS, prefect_unreachable
from flows.workspace.workspace import open_workspace
from models_db.errors import EnvironmentProblem, Refused
from models_db.home import ProjectHome
from models_db.services import people
from tasks.common.progress import tell
from tasks.workers.time_limit import within


def serve_pool(
    home: ProjectHome,
    pool: str,
    destination: str,
    *,
    device: str = "auto",
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
    settings = WorkerSettings(home, destination, device)
    _ = settings.place
    _require_runner(home)
    require_server()
    _require_pool(pool)
    worker = ReleaseWorker(pool, settings, work_queues=[*queues], limit=limit, name=name or _new_name())
    try:
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(worker.start(run_once=once, printer=tell))
    except* UNREACHABLE_ERRORS as problems:
        raise prefect_unreachable(problems.exceptions[0]) from None


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
