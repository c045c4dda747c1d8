"""`almoner rehearse`: a request on public data, at the same noise, beside both references."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from rich.panel import Panel

from cli.commands.release.release import RehearsalData
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import plain_text, table
from flows.workspace.yaml_files import read_fields
from models_db.values.requests import ReleaseRequest
from models_db.values.untrusted_text import parse_digits

if TYPE_CHECKING:
    from flows.rehearsals.rehearse import RehearsalOutcome
    from tasks.rehearsal.result import RehearsalResult

RELEASE_NAMES = {"public_only": "the public model", "request": "this request", "non_private": "no privacy"}
SHOWN_TEXTS = 2


class RehearsalDone(RehearsalData):
    """A rehearsal with the texts of each of its releases; `recorded` is false where it was recorded before."""

    recorded: bool
    releases: dict[str, list[str]]


def register(root: typer.Typer) -> None:
    """Register `almoner rehearse`."""
    command(root, "rehearse")(rehearse)


def rehearse(
    context: CommandContext,
    request: Annotated[str, typer.Argument(metavar="ID_OR_FILE", help="A request's number, or a request file.")],
    on: Annotated[str, typer.Option(metavar="DATASET", help="The public dataset to rehearse on.")],
    texts: Annotated[
        int | None, typer.Option(help="Number of texts of each release. Default: 24, at most the request's.")
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Discard the texts of an earlier rehearsal.")] = False,
    device: Annotated[str, typer.Option(help="Device that runs the models: auto, cpu or cuda.")] = "auto",
) -> CommandResult[RehearsalDone]:
    """Rehearse a request on public data, beside the public model's own texts and texts without privacy.

    Nothing of governed data is read and nothing is charged; the result is public, belongs to every request of the same
    content and is shown at the spend gate (docs/rehearsing.md). After Ctrl-C the same command goes on.

    Example: almoner rehearse request.yaml --on public-notes
    """
    from flows.rehearsals.rehearse import RehearsalOptions, rehearse_request

    number = parse_digits(request)
    source = read_fields(Path(request), request, ReleaseRequest.model_fields) if number is None else number
    with progress_bar(context):
        outcome = rehearse_request(context.home.root, RehearsalOptions(source, on, texts, anew), device)
    figures = cast(RehearsalData, outcome.result.model_dump(mode="json"))
    releases = {name: list(texts) for name, texts in outcome.texts.items()}
    data = RehearsalDone(**figures, recorded=outcome.recorded, releases=releases)
    return CommandResult(data, [*_result_tables(outcome.result), *_samples(outcome), _next_step(number, outcome)])


def _result_tables(result: "RehearsalResult") -> list[RenderableType]:
    rows = [(one.name, one.public_only, one.request, one.non_private, one.way) for one in result.metrics]
    columns = ("metric", *RELEASE_NAMES.values(), "share of the way, 95 % interval")
    fewer = result.declared is not None and result.people < result.declared
    people = [f"The public data has fewer people: the twin has {result.people_of_declared}."] if fewer else []
    read = f"Each text reads about {result.units_per_text} people, in the request about {result.asked_units_per_text}."
    return [
        table(columns, rows, f"Rehearsal on {result.twin.name}: {result.extent}"),
        *people,
        f"{read} Texts are compared with {result.held_out} documents of people who were not read.",
        *(f"Not measured: {reason}." for reason in result.left_out),
    ]


def _samples(outcome: "RehearsalOutcome") -> list[RenderableType]:
    """Return the first texts of each release."""
    return [
        Panel(plain_text(text), title=plain_text(f"{name}, text {number}"), title_align="left")
        for release, name in RELEASE_NAMES.items()
        for number, text in enumerate(outcome.texts.get(release, ())[:SHOWN_TEXTS], 1)
    ]


def _next_step(number: int | None, outcome: "RehearsalOutcome") -> str:
    recorded = "Recorded" if outcome.recorded else "It was recorded before (`--anew` rehearses again)"
    if number is None:
        return f"{recorded}: the spend gate of every request with exactly this content shows it."
    return f"{recorded}: the spend gate of request {number} shows it, and `almoner release show {number}`."
