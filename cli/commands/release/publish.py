"""`almoner publish` and `almoner verify-release`: delivery of a bundle, and its check by anybody."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.commands.release.release import RequestId
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.result_types import SecretFigure
from cli.framework.tables import table
from flows.workspace.workspace import open_workspace
from models_db.services import artifacts
from tasks.object_storage.address import parse_place

if TYPE_CHECKING:
    from tasks.publishing.verify import VerificationReport


class ReleasePublished(TypedDict):
    """A published bundle."""

    request: int
    state: str
    bundle: str
    sha256: str


class BundleCheck(TypedDict):
    """One check of a bundle."""

    name: str
    ok: bool
    detail: str


class VerificationData(TypedDict):
    """What was checked of a bundle; exit code 1 unless `holds`. `authentic` needs --key; what it lacks is null."""

    holds: bool
    authentic: bool
    conclusion: str
    dataset: str | None
    release: int | None
    artifact_sha256: str | None
    epsilon: str | None
    delta: str | None
    rho: str | None
    recomputed_epsilon: str | None
    secret_assignment: SecretFigure | None
    assignment_exposed: bool
    public_key: str | None
    passed_over: list[str]
    checks: list[BundleCheck]


Key = Annotated[
    str | None, typer.Option("--key", help="The publisher's public key, got from elsewhere (64 hex digits).")
]

Later = Annotated[
    str | None,
    typer.Option("--revocations", metavar="BUNDLE", help="A later bundle: was this release retracted since?"),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "publish")(publish)
    command(app, "verify-release")(verify_bundle)


def publish(
    context: CommandContext,
    request: RequestId,
    to: Annotated[str, typer.Option(help="Folder or s3://bucket/prefix to put the bundle into.")],
) -> CommandResult[ReleasePublished]:
    """Publish exactly the bytes that were approved, as a signed bundle.

    Example: almoner publish 1 --to out/
    """
    destination = parse_place(to)
    with open_workspace(context.home).database.read() as session:
        artifacts.require_publishable(session, request)  # before the libraries of bundles are loaded
    from flows.releases import publish as flow

    done = flow.publish_release(context.home.root, request, destination)
    data = ReleasePublished(request=request, state="published", bundle=str(done.place), sha256=done.bundle_digest)
    return CommandResult(
        data,
        [f"Published: {done.place}", f"Anyone can check it: `almoner verify-release {done.place}`."],
    )


def verify_bundle(
    context: CommandContext,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A bundle: a folder, or s3://bucket/prefix/name.")],
    key: Key = None,
    revocations: Later = None,
    details: Annotated[bool, typer.Option("--details", help="List every check, also where all of them hold.")] = False,
) -> CommandResult[VerificationData]:
    """Verify a bundle offline: digests, signatures, approvals, and epsilon recomputed from the stored events.

    If all checks hold, it counts them by kind; if one fails, it lists all of them.

    With --revocations it is held against the list that a later bundle carries: exit code 1 if it was retracted. If the
    list says that its assignment got out, the epsilon while that is secret is not shown any more.

    It does not read what the Hugging Face Hub, git and file managers add: .gitattributes, .git, .cache, .DS_Store and
    Thumbs.db. Any other file that does not belong there fails the check.

    Example: almoner verify-release out/clinic-release-1
    """
    from flows.workspace.object_stores import open_bundle_folder
    from tasks.publishing.verify import verify_release

    with ExitStack() as held:
        bundle_folder = held.enter_context(open_bundle_folder(context.home, parse_place(folder)))
        later = None
        if revocations is not None:
            later = held.enter_context(open_bundle_folder(context.home, parse_place(revocations)))
        report = verify_release(bundle_folder, key, later)
    data = cast(VerificationData, report.to_json())
    if report.holds and not details:
        return CommandResult(data, _verified(report))
    rows = [("ok" if check.ok else "FAIL", check.name, check.detail) for check in report.checks]
    return CommandResult(
        data,
        [table(("", "check", "detail"), rows), report.conclusion],
        exit_code=0 if report.holds else 1,
    )


def _verified(report: "VerificationReport") -> list[RenderableType]:
    """Return the verdict on a bundle that holds: its claim, the number of checks of each kind, the conclusion."""
    from tasks.planning.secret_assignment import while_secret

    claim = "no privacy is claimed"
    if report.epsilon is not None and report.delta is not None:
        claim = f"epsilon {report.epsilon} at delta {report.delta}"
        if report.recomputed_epsilon is not None:
            claim += f", recomputed as {report.recomputed_epsilon}"
    secret = report.secret_assignment
    charge = next(check.detail for check in report.checks if check.name == "charge")
    rows = [("ok", kind, count) for kind, count in report.count_by_kind().items()]
    return [
        f"All {len(report.checks)} checks hold: {claim}. `--details` lists them.",
        *([] if secret is None else [f"Second figure: {while_secret(secret)}."]),
        f"Charge: {charge}.",
        table(("", "about", "checks"), rows),
        *([f"Not read, and no part of the bundle: {', '.join(report.passed_over)}."] if report.passed_over else []),
        report.conclusion,
    ]
