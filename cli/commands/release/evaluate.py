"""`almoner evaluate`: metrics of a release after the fact."""

from typing import Annotated

import typer

from cli.commands.release.approve import Request
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import table
from models_db.errors import UsageError

Internal = Annotated[
    bool, typer.Option("--internal", help="Also compare with the private corpus; only after the publish decision.")
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "evaluate")(evaluate)


def evaluate(context: CommandContext, request: Request, internal: Internal = False) -> CommandResult:
    """Compute internal metrics of a decided release: overlap, perplexity gap. They stay in this home.


    A decision that has seen such a number is not differentially private; so before it, on governed data, this is
    refused (docs/privacy-guarantee.md).

    Example: almoner evaluate 1 --internal
    """
    if not internal:
        raise NothingToDo
    from flows.releases.evaluate_internal import evaluate_internally

    with progress_bar(context):
        results = evaluate_internally(context.home.root, request)
    rows = [(result.name, result.exposure, result.line) for result in results]
    data = {"request": request, "metrics": [result.to_json() for result in results]}
    return CommandResult(
        data, [table(("metric", "exposure", "result"), rows), "Internal: not for a card, a log or a meeting."]
    )


class NothingToDo(UsageError):
    """Public metrics are computed by the run itself."""

    def __init__(self) -> None:
        super().__init__(
            "A release's public and charged metrics are computed by its run and shown at the publish gate.",
            "For internal metrics after the decision, add --internal.",
        )
