"""`almoner key`: keys of the splits of releases into batches, which got out."""

from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from flows.workspace.workspace import open_workspace

app = typer.Typer(no_args_is_help=True, help="Record that keys of splits into batches got out: compromised.")


class KeysCompromised(TypedDict):
    """Releases whose smaller epsilon ends (or would, in a dry run), and those that are not produced yet."""

    recorded: list[int]
    unfinished: list[int]


@command(app, "compromised")
def compromised(
    context: CommandContext,
    since: Annotated[
        str, typer.Option(metavar="DAY", help="First day (UTC) others could read journals or the memory of runs.")
    ],
    reason: Annotated[str, typer.Option(help="How they got out, recorded in the audit log.")],
    dataset: Annotated[str | None, typer.Option(help="Only releases on the budget of this dataset.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the releases and record nothing.")] = False,
) -> CommandResult[KeysCompromised]:
    """Record that the keys of all splits since a day got out: the smaller epsilon of every affected release ends.

    Each release has a key of its own, which is destroyed after its draws, so releases that were published before are
    not affected. Requests that were charged and have produced nothing are: a failed run leaves its key. `almoner
    release mark-exposed` records it for one request. It cannot be taken back.

    Example: almoner key compromised --since 2026-11-20 --reason "a copy of the disk was stolen"
    """
    from flows.governance.exposure import record_key_compromise

    found = record_key_compromise(open_workspace(context.home), since, reason, dataset, dry_run=dry_run)
    numbers = ", ".join(map(str, found.recorded)) or "none"
    if dry_run:
        lines = [f"Releases whose epsilon while their assignment is secret would end: {numbers}. Nothing was recorded."]
    else:
        lines = [
            f"Releases whose epsilon while their assignment was secret has ended with it: {numbers}.",
            "Their unconditional epsilon holds. Bundles published from now on name them in `revocations.json`.",
        ]
    if found.unfinished:
        waiting = ", ".join(map(str, found.unfinished))
        lines.append(
            f"The same of requests that were charged and have produced nothing: {waiting}. What they produce later has"
            " the unconditional epsilon alone; submit them again for a smaller one."
        )
    data = KeysCompromised(recorded=list(found.recorded), unfinished=list(found.unfinished))
    return CommandResult(data, lines)
