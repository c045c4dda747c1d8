"""`almoner publish` and `almoner verify-release`: out of the house, and the check anybody can make."""

from pathlib import Path
from typing import Annotated

import typer

from cli.approve import Request
from cli.command import Answer, Opened, command
from cli.tables import table
from tasks.publishing.verify import verify_release

Key = Annotated[
    str | None, typer.Option("--key", help="The publisher's public key, got from elsewhere (64 hex digits).")
]

Later = Annotated[
    Path | None,
    typer.Option("--revocations", metavar="BUNDLE", help="A later bundle: was this release retracted since?"),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "publish")(publish)
    command(app, "verify-release")(verify)


def publish(
    opened: Opened, request: Request, to: Annotated[Path, typer.Option(help="Folder to put the bundle into.")]
) -> Answer:
    """Publish exactly the bytes that were approved, as a signed bundle.

    Example: almoner publish 1 --to out/
    """
    from flows import publish as flow

    done = flow.publish.fn(opened.home.root, request, to)
    data = {"request": request, "state": "published", "bundle": str(done.folder), "sha256": done.bundle_digest}
    return Answer(
        data,
        [f"Published: {done.folder}", f"Anyone can check it: `almoner verify-release {done.folder}`."],
    )


def verify(
    opened: Opened, folder: Annotated[Path, typer.Argument(metavar="DIR", help="A bundle.")], key: Key = None,
    revocations: Later = None,
) -> Answer:  # fmt: skip
    """Check a bundle offline: digests, signatures, approvals, and epsilon recomputed from the stored events.

    With --revocations it is held against the list that a later bundle carries: exit code 1 where it was retracted.

    Example: almoner verify-release out/clinic-release-1
    """
    report = verify_release(folder, key, revocations)
    rows = [("ok" if check.ok else "FAIL", check.name, check.detail) for check in report.checks]
    verdict = report.conclusion
    return Answer(
        report.to_json(),
        [table(("", "check", "detail"), rows), verdict],
        exit_code=0 if report.holds else 1,
    )
