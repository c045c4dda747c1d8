"""`almoner evaluate`: metrics of a release after the fact."""

from typing import Annotated, cast

import typer
from typing_extensions import TypedDict

from cli.commands.release.approve import Request
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.result_types import MetricData
from cli.framework.run_options import Runner, RunnerAddress
from cli.framework.tables import table
from models_db.errors import UsageError


class ReleaseMetrics(TypedDict):
    """Metrics of a release."""

    request: int
    metrics: list[MetricData]


Internal = Annotated[
    bool, typer.Option("--internal", help="Also compare with the private corpus; only after the publish decision.")
]
Readers = Annotated[
    int, typer.Option("--workers", min=1, max=64, help="Workers that read the corpus; they need no model.")
]

Embedder = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        metavar="NAME",
        help="Make points of texts with this embedder, such as all-mpnet-base-v2; by default the request's own.",
    ),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "evaluate")(evaluate)


def evaluate(
    context: CommandContext,
    request: Request,
    internal: Internal = False,
    embedder: Embedder = None,
    workers: Readers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> CommandResult[ReleaseMetrics]:
    """Compute internal metrics of a decided release: overlap, perplexity gap. They stay in this home.


    A decision that has seen such a number is not differentially private; so before it, on governed data, this is
    refused (docs/privacy-guarantee.md).

    With several workers, they read the corpus for the metric that reads all of it (docs/distributed.md).

    Example: almoner evaluate 1 --internal --embedder all-mpnet-base-v2
    """
    if not internal:
        raise UsageError(
            "A release's public and charged metrics are computed by its run and shown at the publish gate.",
            "For internal metrics after the decision, add --internal.",
            code="NothingToDo",
        )
    from flows.releases.evaluate_internal import evaluate_internally
    from tasks.workers.backend_settings import WorkerBackend

    backend = WorkerBackend.of(runner, runner_address)
    with progress_bar(context):
        results = evaluate_internally(context.home.root, request, embedder, workers=workers, backend=backend)
    rows = [(result.name, result.exposure, result.line) for result in results]
    data = ReleaseMetrics(request=request, metrics=[cast(MetricData, result.to_json()) for result in results])
    return CommandResult(
        data, [table(("metric", "exposure", "result"), rows), "Internal: not for a card, a log or a meeting."]
    )
