"""`almoner dataset erase`: text leaves the home for good."""

import unicodedata
from typing import Annotated

import typer
from rich.console import RenderableType

from cli.asking import ConfirmationWrong, confirm
from cli.command import Answer, Opened, command
from cli.tables import facts
from flows.erasure import Listing, Target, erase
from flows.workspace import open_workspace

_STAYS = (
    "What stays: the budget that was spent, the marks that recognise units, the record, and what was published. The"
    " source outside this home, backups elsewhere and copies of other homes are not almoner's: docs/erasure.md."
)
_LATER = "Later versions leave this unit out, whatever their source holds."


def add_to(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "erase")(erase_)


def erase_(
    opened: Opened,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    reason: Annotated[str, typer.Option(help="Why; recorded for good. It must not name the unit.")],
    unit: Annotated[str | None, typer.Option(metavar="ID", help="One unit, in every version of the dataset.")] = None,
    version: Annotated[int | None, typer.Option(metavar="N", min=1, help="One version.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every version.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be erased and stop.")] = False,
    confirmed: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The dataset's name, where nobody can type it.")
    ] = None,
) -> Answer:
    """Erase the text of a unit, a version or a whole dataset from this home. It cannot be undone.

    Typed again, it finishes an erasure that was cut short.

    Example: almoner dataset erase clinic --version 1 --reason "agreed until May" --dry-run
    """
    target, workspace = Target(unit, version, everything), open_workspace(opened.home)
    listing = erase(workspace, name, target, reason, dry_run=True)
    if dry_run:
        return Answer(listing.to_json(), [*_shown(listing, "Would be erased"), "Dry run: nothing was changed."])
    _require_confirmed(name, confirmed)
    done = erase(workspace, name, target, reason)
    later = [_LATER] if target.unit is not None else []
    return Answer(done.to_json(), [*_shown(done, "Erased"), *later])


def _require_confirmed(name: str, confirmed: str | None) -> None:
    """Have the dataset's name typed, or compare the one that the command names.

    Raises:
        ConfirmationMissing, ConfirmationWrong.
    """
    if confirmed is None:
        confirm(name, f"This cannot be undone. Type the name of the dataset ({name})")
    elif unicodedata.normalize("NFC", confirmed.strip()) != unicodedata.normalize("NFC", name):
        raise ConfirmationWrong


def _shown(listing: Listing, title: str) -> list[RenderableType]:
    versions = ", ".join(map(str, listing.versions)) or "none"
    rows = {"versions": versions, "documents": listing.documents, **listing.places}
    others = ", ".join(listing.sharing)
    return [
        facts(rows, title=f"{title}: files and folders by kind, private"),
        *([f"Not erased, though it shares the budget: {others}; erase there by itself."] if others else []),
        _STAYS,
    ]
