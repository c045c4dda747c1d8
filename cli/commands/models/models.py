"""`almoner models`: which models are here, fetching the offline ones, and those behind an API."""

from typing import Annotated

import typer

from cli.commands.models import endpoint
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import table
from tasks.common import progress

app = typer.Typer(no_args_is_help=True, help="Manage models: list, pull, endpoint.")
app.add_typer(endpoint.app, name="endpoint")

DEFAULT_MODEL = "smollm2-135m-instruct"


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult:
    """List the language models that a request can name, and the embedder of metrics.

    Example: almoner models list
    """
    from tasks.inference.catalogue.registry import list_models

    rows = [(m.name, m.source, m.licence, "yes" if m.installed else "no", m.note) for m in list_models()]
    columns = ("name", "source", "licence", "installed", "note")
    return CommandResult([dict(zip(columns, row, strict=True)) for row in rows], [table(columns, rows)])


@command(app, "pull")
def pull_model(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="A model of `almoner models list`.")] = DEFAULT_MODEL,
) -> CommandResult:
    """Download a model, check its SHA-256 and unpack it into the cache. Needed once per machine.

    Example: almoner models pull smollm2-135m-instruct
    """
    from tasks.inference.loading.download import pull as fetch

    size = "as large as its page says" if "/" in name else "about 100 MB; a language model then takes half a minute"
    context.print_progress(f"Fetching {name} if it is not here yet ({size}).")
    with progress_bar(context):
        model = fetch(name, lambda stage: progress.report(stage, 0, 1))
    return CommandResult(
        {"model": name, "sha256": model.digest}, [f"{name} is ready; its weights have SHA-256 {model.digest}."]
    )
