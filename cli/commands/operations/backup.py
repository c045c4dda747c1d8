"""`almoner backup` and `almoner restore`: a home and its ledger in one file, and back into an empty home."""

from pathlib import Path
from typing import Annotated

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from models_db.errors import UsageError
from tasks.object_storage.address import parse_place


class BackupData(TypedDict):
    """A backup; `link` is the newest link of the ledger in it, or that the home has seen."""

    file: str
    at: str
    ledger: str
    link: int
    files: int


class RestoredData(TypedDict):
    """A restored home, or a restored ledger alone; `head` is its newest link now."""

    home: str
    taken_at: str
    link: int
    head: int
    record_only: bool


Against = Annotated[
    list[str] | None,
    typer.Option(
        help="A bundle (or s3://...), or a file of `audit checkpoint`: it must lie on the chain. May be repeated."
    ),
]
OldHome = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The lost home, if its folder still exists: the newest link that it has seen is compared."
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(help="Reason why nothing was done in the ledger after this backup; recorded in the audit log."),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "backup")(backup)
    command(app, "restore")(restore)


def backup(
    context: CommandContext, to: Annotated[Path, typer.Option(help="New file to write; it will hold the keys.")]
) -> CommandResult[BackupData]:
    """Back up the home and its ledger into one file while others work; without a ledger on PostgreSQL.

    Example: almoner backup --to /backup/clinic-2026-11-21.tar
    """
    from flows.backup.backup import create_backup
    from flows.workspace.workspace import open_workspace

    taken = create_backup(open_workspace(context.home), to)
    data = BackupData(file=str(taken.file), at=taken.at, ledger=taken.ledger, link=taken.seq, files=taken.files)
    sentences = [
        f"{taken.files} files and the keys are in {taken.file} (0600). The ledger ends there at link {taken.seq}."
    ]
    if taken.ledger != "sqlite":
        sentences.append("The ledger is not in it: back it up with the tools of PostgreSQL (docs/backup.md).")
    return CommandResult(
        data, [*sentences, "This file contains the private texts and your signing key. Protect it accordingly."]
    )


def restore(
    context: CommandContext,
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `almoner backup`.")],
    reason: Reason = None,
    against: Against = None,
    old_home: OldHome = None,
    record_only: Annotated[bool, typer.Option("--record-only", help="Restore the ledger alone, read-only.")] = False,
) -> CommandResult[RestoredData]:
    """Restore a backup into an empty home, if it is whole and no anchor shows a newer ledger.

    Example: almoner restore /backup/clinic-2026-11-21.tar --reason "the disk failed" --against out/clinic-release-1
    """
    from flows.backup.restore import restore_home, restore_ledger

    if record_only:
        done = restore_ledger(archive, context.home)
        sentences = [f"The ledger as of {done.taken_at} is in {done.home}, read-only: `almoner audit log`."]
    elif reason is None or not reason.strip():
        raise UsageError(
            "A backup does not show whether budget was spent after it. Say why none was: --reason TEXT.",
            "Add the evidence: bundles and signed heads with --against, the old home with --old-home."
            " To only read an old ledger, use --record-only.",
            code="RestoreReasonMissing",
        )
    else:
        done = restore_home(archive, context.home, reason, [parse_place(each) for each in against or ()], old_home)
        sentences = [
            f"The home is back at {done.home}. Its ledger goes on behind link {done.seq}; link {done.head} says so.",
            "Interrupted runs start again. Check the home: `almoner doctor`, `almoner run sweep`.",
        ]
    data = RestoredData(
        home=str(done.home), taken_at=done.taken_at, link=done.seq, head=done.head, record_only=record_only
    )
    return CommandResult(data, sentences)
