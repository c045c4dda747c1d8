"""`almoner deploy` and `almoner worker`: releases as flow runs of a Prefect server."""

from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_lines
from cli.framework.run_options import Device
from cli.framework.tables import fact_list


class PrefectFile(TypedDict):
    """A prefect.yaml that was written."""

    file: str
    pool: str


class DeployedData(TypedDict):
    """What was made on the Prefect server."""

    pool: str
    deployment: str
    queues: list[str]


class WorkerStopped(TypedDict):
    """A worker that has stopped."""

    pool: str


Pool = Annotated[str, typer.Option(help="Name of the Prefect work pool.")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=1000, help="Most releases that run at once on all machines. Default: no limit.")
]
Write = Annotated[
    Path | None,
    typer.Option(
        "--write",
        metavar="FILE",
        help="Write a new prefect.yaml for work pools of Prefect's own types, and touch no server.",
    ),
]
To = Annotated[
    str,
    typer.Option(
        envvar="ALMONER_PUBLISH_TO", metavar="PLACE", help="Folder or s3://bucket/prefix that receives the bundles."
    ),
]
Queues = Annotated[list[str] | None, typer.Option("--queue", help="Work queue to serve; repeat it. Default: all.")]
AtOnce = Annotated[int, typer.Option("--limit", min=1, max=64, help="Most flow runs of this machine at once.")]
Name = Annotated[
    str | None, typer.Option(help="Name of the worker on Prefect's page. Default: this host and a random number.")
]
Once = Annotated[bool, typer.Option("--once", help="Take what is due, wait for it to end, and stop.")]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "deploy")(deploy_command)
    command(app, "worker")(worker_command)


def deploy_command(
    context: CommandContext, pool: Pool = "almoner", limit: Limit = None, write: Write = None
) -> CommandResult[PrefectFile | DeployedData]:
    """Deploy the release flow to a Prefect server: work pool, queues, deployment.

    Safe to repeat: it makes everything anew as this version of almoner knows it.

    Example: almoner deploy --limit 2
    """
    from flows.orchestration import deploy

    if write is not None:
        deploy.write_prefect_yaml(write, pool)
        return CommandResult(
            PrefectFile(file=str(write), pool=pool), [f"Written: {write}.", "Next: `prefect deploy --all`."]
        )
    done = deploy.deploy(pool, limit)
    return CommandResult(
        DeployedData(pool=done.pool, deployment=done.deployment, queues=[*done.queues]),
        [
            f"Work pool {pool!r} is ready.",
            fact_list({"deployment": done.deployment, "queues": ", ".join(done.queues)}),
            f"Next: `almoner worker --pool {pool} --to PLACE` on each machine, then `almoner release start ID`.",
        ],
    )


def worker_command(
    context: CommandContext,
    to: To,
    pool: Pool = "almoner",
    queue: Queues = None,
    limit: AtOnce = 1,
    device: Device = "auto",
    name: Name = None,
    once: Once = False,
) -> CommandResult[WorkerStopped]:
    """Carry out the releases of a Prefect work pool until stopped, each in a process of its own.

    The home must be a runner's. The ledger decides each step; Prefect says only which request to look at.

    Example: almoner worker --pool almoner --to bundles/
    """
    from flows.orchestration.worker import serve_pool
    from flows.schedules.slots import RunOptions

    with progress_lines(context):
        serve_pool(
            context.home, pool, to, options=RunOptions(device), queues=queue or [], limit=limit, name=name, once=once
        )
    return CommandResult(WorkerStopped(pool=pool), ["The worker has stopped."])
