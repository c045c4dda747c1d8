"""`almoner report`: report of a release for stewards or readers, as one page and as JSON."""

from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from typing_extensions import TypedDict

from cli.commands.release.approve import Request
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from models_db.errors import UsageError


class ReportData(TypedDict):
    """A report: its facts by section, null or empty where the reader's version has none."""

    format: str
    version: Literal["public", "steward", "internal"]
    release: dict[str, object] | None
    claim: dict[str, object] | None
    no_claim: dict[str, object] | None
    budget: dict[str, object] | None
    lengths: dict[str, object] | None
    map: dict[str, object] | None
    twin: dict[str, object] | None
    gate: dict[str, object] | None
    sections: list[dict[str, object]]
    bounds: list[dict[str, object]]
    metrics: list[dict[str, object]]
    samples: list[dict[str, object]]
    text_pages: list[dict[str, object]]
    tradeoff: list[dict[str, object]]
    attacks: list[dict[str, object]]
    mechanisms: list[dict[str, object]]
    parameters: list[dict[str, object]]
    decisions: list[dict[str, object]]


Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write this new file: a page, or JSON where its name ends in .json."),
]
Public = Annotated[bool, typer.Option("--public", help="The public version, as it is in the bundle.")]
Internal = Annotated[
    bool,
    typer.Option("--internal", help="Also figures that read private data unprotected; after the publish decision."),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "report")(report)


def report(
    context: CommandContext, request: Request, out: Out = None, public: Public = False, internal: Internal = False
) -> CommandResult[ReportData]:
    """Write a report on a release as one HTML page: claim, budget, measurements, texts, attacks.

    Without a version it is the steward's, for the publish gate: public and charged figures, and what the ledger says.
    Without --out the page is written into the home, and a later one takes its place.

    Example: almoner report 1 --out report.html
    """
    from flows.releases.publish import find_artifact
    from flows.reports.build import replace_page, write_report
    from flows.workspace.workspace import open_workspace
    from tasks.reporting.report_parts import Version
    from tasks.text.doubts import describe_doubts

    if public and internal:
        raise UsageError(
            "A report is public or internal, not both.",
            "Leave one of --public and --internal out.",
            code="ConflictingVersions",
        )
    version: Version = "public" if public else "internal" if internal else "steward"
    workspace = open_workspace(context.home)
    with progress_bar(context):
        find_artifact(workspace, request)  # refused at once where there is nothing to report; what follows loads torch
        from flows.reports.build import build_report

        content = build_report(workspace, request, version)
    if out is not None:
        path = write_report(workspace.home, out, content)
    elif not context.as_json:
        path = replace_page(workspace.home, content)
    else:
        return CommandResult(cast(ReportData, content))
    pages = content["text_pages"]
    doubtful, texts = sum(page["doubtful"] for page in pages), sum(len(page["texts"]) for page in pages)
    lines = [f"The report is in {path}; open it in a browser.", *([describe_doubts(doubtful, texts)] if texts else [])]
    return CommandResult(cast(ReportData, content), [*lines, *_audience_sentence(version)])


def _audience_sentence(version: str) -> list[str]:
    return {
        "steward": ["It holds unpublished texts and balances: keep it as private as the quarantine folder."],
        "internal": ["INTERNAL: not for a card, a log or a meeting."],
        "public": ["It may be read by everybody once the release is published."],
    }[version]
