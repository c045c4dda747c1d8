"""`almoner dataset erase`: permanent erasure of text from the home."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.prompts import confirm, read_line
from cli.framework.tables import fact_list
from flows.workspace.workspace import open_workspace

if TYPE_CHECKING:
    from flows.datasets.erase import ErasureListing

_WHAT_REMAINS = (
    "These stay: the spent budget, the marks that recognise units, the audit log, and published bundles. The"
    " source outside this home, backups elsewhere and copies of other homes are not almoner's: docs/erasure.md."
)
_LATER_VERSIONS = "Later versions leave this unit out, whatever their source holds."


class ErasureData(TypedDict):
    """What an erasure removes: `places` counts files and folders by kind; `erasure` is null in a dry run."""

    dataset: str
    erasure: int | None
    scope: str
    versions: list[int]
    documents: int | None
    places: dict[str, int]
    not_erased_in: list[str]


def register(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "erase")(erase_command)


def erase_command(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="One unit, in every version of the dataset; - reads its id from the first line of standard input.",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(metavar="N", min=1, help="One version.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every version.")] = False,
    reason: Annotated[
        str | None,
        typer.Option(help="Reason, recorded for good. It must not name the unit. A dry run needs none."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be erased and stop.")] = False,
    confirmed: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The dataset's name, for use without a terminal.")
    ] = None,
) -> CommandResult[ErasureData]:
    """Erase the text of a unit, a version or a whole dataset from this home. It cannot be undone.

    Typed again, it finishes an erasure that was cut short. An id on the command line stands in the list of processes
    and in the shell's history; with `--unit -` it stands in neither.

    Example: almoner dataset erase clinic --version 1 --dry-run
    """
    from flows.datasets.erase import ErasureTarget, erase, invalid_erasure_reason, list_erasure

    if unit == "-":
        unit = read_line("Id of the unit")
    target, workspace = ErasureTarget(unit, version, everything), open_workspace(context.home)
    listing = list_erasure(workspace, name, target, reason)
    if dry_run:
        return CommandResult(
            _erasure_data(listing), [*_listing_table(listing, "Would be erased"), "Dry run: nothing was changed."]
        )
    if reason is None:
        raise invalid_erasure_reason()
    confirm(name, f"This cannot be undone. Type the name of the dataset ({name})", confirmed)
    done = erase(workspace, name, target, reason)
    later = [_LATER_VERSIONS] if target.unit is not None else []
    return CommandResult(_erasure_data(done), [*_listing_table(done, "Erased"), *later])


def _erasure_data(listing: "ErasureListing") -> ErasureData:
    return ErasureData(
        dataset=listing.dataset,
        erasure=listing.number,
        scope=listing.scope,
        versions=list(listing.versions),
        documents=listing.documents,
        places=dict(listing.places),
        not_erased_in=list(listing.sharing),
    )


def _listing_table(listing: "ErasureListing", title: str) -> list[RenderableType]:
    versions = ", ".join(map(str, listing.versions)) or "none"
    counted = {} if listing.documents is None else {"documents": listing.documents}
    rows = {"versions": versions, **counted, **listing.places}
    others = ", ".join(listing.sharing)
    return [
        fact_list(rows, title=f"{title}: files and folders by kind, private"),
        *([f"Not erased, though it shares the budget: {others}; erase there by itself."] if others else []),
        _WHAT_REMAINS,
    ]
