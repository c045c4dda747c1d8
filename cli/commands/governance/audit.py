"""`almoner audit`: read the audit log, check the chain, sign its head.

Only `write_checkpoint` needs a key and writes.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import table
from flows.audit.export import ExportFormat, link_details, link_to_json, require_known_names
from flows.audit.export import export_links as write_export
from flows.workspace.workspace import ReadOnlyWorkspace, open_read_only, open_workspace
from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services.audit import log as audit_log
from models_db.services.audit.log import Details, LogFilter, LoggedLink, details_of_links
from models_db.services.audit.verify_chain import AnchorPlacement
from tasks.object_storage.address import parse_place

if TYPE_CHECKING:
    from flows.audit.verify import Anchor, AuditVerification

app = typer.Typer(
    no_args_is_help=True,
    help="Read and verify the audit log: log, verify, checkpoint, export.",
)


class LinkData(TypedDict):
    """A link of the audit log. `details` has the rows that its transaction added (of a table at most 100).

    `body` commits to them all. Where no reader can parse it, `body` is null, and `unreadable` says so.
    """

    seq: int
    at: str
    actor: str
    kind: str
    dataset: str | None
    request: int | None
    details: list[dict[str, object]]
    body: dict[str, object] | None
    prev_hash: str
    row_hash: str
    unreadable: NotRequired[str]


class PlacedAnchor(TypedDict):
    """A bundle or checkpoint and its place on the chain."""

    file: str
    hash: str
    genuine: bool
    signer: str | None
    public_key: str
    link: int | None
    verdict: str
    detail: str


class AuditVerificationData(TypedDict):
    """What a verification of the audit log found; `sound` is false, with exit code 1, if it objects to anything."""

    sound: bool
    holds: bool
    links: int
    head: str
    broken_at: int | None
    reason: str
    clock_back: list[int]
    unreadable: list[int]
    differences: list[str]
    unsigned_checkpoints: list[str]
    home: str
    against: list[PlacedAnchor]


class CheckpointData(TypedDict):
    """The signed head of the chain, as it is in the file."""

    format: str
    seq: int
    hash: str
    at: str
    public_key: str
    signature: str


class AuditExport(TypedDict):
    """A file of links."""

    file: str
    format: Literal["jsonl", "csv"]
    links: int
    unreadable: list[int]


Dataset = Annotated[str | None, typer.Option(help="Only links of this dataset.")]
Release = Annotated[int | None, typer.Option(help="Only links of this request.")]
By = Annotated[str | None, typer.Option(help="Only links by this person.")]
Mechanism = Annotated[
    str | None, typer.Option(help="Only links of releases by this mechanism: submission, decisions, charges.")
]
Kind = Annotated[str | None, typer.Option(help="Only links with a kind that begins with this, such as ledger.")]
Since = Annotated[str | None, typer.Option(help="From this UTC time on, such as 2026-11-21.")]
Until = Annotated[str | None, typer.Option(help="Before this UTC time.")]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help="A bundle (or s3://...), its checkpoint.json or a file of `audit checkpoint`; may be given several times."
    ),
]


@command(app, "log")
def show_log(
    context: CommandContext,
    dataset: Dataset = None,
    release: Release = None,
    actor: By = None,
    mechanism: Mechanism = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[int | None, typer.Option(min=1, help="Only links with a lower number: the next page.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of links to show, newest first.")] = 100,
) -> CommandResult[list[LinkData]]:
    """Show the newest links of the audit log that match, oldest first.

    Example: almoner audit log --dataset clinic --kind ledger
    """
    search = LogFilter(dataset, release, actor, kind, mechanism, _parse_time(since), _parse_time(until))
    opened_record = _open_with_warning(context)
    with opened_record.database.read() as session:
        require_known_names(session, search)
        page = audit_log.read_page(session, search, limit, before)
        details = details_of_links(session, page.links)
    links = [cast(LinkData, link_to_json(link, details[link.seq])) for link in page.links]
    rows = [(link.seq, str(link.at)[:19], _link_summary(link, details[link.seq])) for link in page.links]
    shown = table(("seq", "at (UTC)", "what, by whom, about what"), rows)
    more = [f"There are older ones: add --before {page.next_before}."] if page.next_before else []
    return CommandResult(links, [shown, *more])


@command(app, "verify")
def verify_audit(context: CommandContext, against: Against = None) -> CommandResult[AuditVerificationData]:
    """Verify the hash chain from its first link; compare every row with its link, and every anchor with the chain.

    The chain alone reveals an alteration inside it. A bundle or a checkpoint kept elsewhere also reveals that the
    chain was rewritten as a whole, cut at its end or replaced by an older copy.

    Example: almoner audit verify --against out/clinic-release-1
    """
    with progress_bar(context):
        from flows.audit.verify import verify_record  # verifying bundles loads the mechanisms

        verification = verify_record(_open_with_warning(context), [parse_place(each) for each in against or ()])
    chain = verification.chain
    data = AuditVerificationData(
        sound=verification.is_sound,
        holds=chain.holds,
        links=chain.links,
        head=chain.head.hash,
        broken_at=chain.broken_at,
        reason=chain.reason,
        clock_back=list(chain.clock_back),
        unreadable=list(chain.unreadable),
        differences=list(verification.differences),
        unsigned_checkpoints=list(verification.unsigned),
        home=verification.warning,
        against=[_anchor_row(witness, placed) for witness, placed in verification.anchors],
    )
    return CommandResult(data, _verification_lines(verification), exit_code=0 if verification.is_sound else 1)


@command(app, "checkpoint")
def write_checkpoint(
    context: CommandContext, to: Annotated[Path, typer.Option(help="New file to write.")]
) -> CommandResult[CheckpointData]:
    """Sign the head of the chain and write it to a file; kept elsewhere, it proves that no earlier link changed.

    Example: almoner audit checkpoint --to head-2026-11.json
    """
    from flows.audit.verify import sign_checkpoint

    signed = sign_checkpoint(open_workspace(context.home), to)
    sentence = f"Checkpoint of link {signed.seq} written to {to}. Keep it away from this machine."
    return CommandResult(cast(CheckpointData, signed.model_dump()), [sentence])


@command(app, "export")
def export_audit(
    context: CommandContext,
    to: Annotated[Path, typer.Option(help="New file to write.")],
    form: Annotated[ExportFormat, typer.Option("--format", help="Format of the file.")] = ExportFormat.JSONL,
    dataset: Dataset = None,
    release: Release = None,
    actor: By = None,
    mechanism: Mechanism = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
) -> CommandResult[AuditExport]:
    """Export the audit log to a file, as JSON lines or CSV.

    In CSV, a text that a spreadsheet could take for a formula gets a quote before it.

    Example: almoner audit export --format csv --dataset clinic --to record.csv
    """
    search = LogFilter(dataset, release, actor, kind, mechanism, _parse_time(since), _parse_time(until))
    opened_record = _open_with_warning(context)
    with progress_bar(context):
        done = write_export(opened_record, search, form, to)
    data = AuditExport(file=str(to), format=form.value, links=done.count, unreadable=list(done.unreadable))
    sentences = [f"{done.count} links written to {to}."]
    if done.unreadable:
        sentences.append(f"Unreadable: link {', '.join(map(str, done.unreadable))}; `almoner audit verify` says more.")
    return CommandResult(data, sentences)


def _open_with_warning(context: CommandContext) -> ReadOnlyWorkspace:
    """Open the audit log; a warning of its home is printed at once, because everything read from it is in doubt."""
    record = open_read_only(context.home)
    if record.warning:
        context.print_progress(f"WARNING: {record.warning}")
    return record


def _verification_lines(verification: "AuditVerification") -> list[str]:
    chain = verification.chain
    lines = [
        f"The chain holds: {chain.links} links, head {chain.head.hash}."
        if chain.holds
        else f"THE CHAIN IS BROKEN at link {chain.broken_at}: {chain.reason}."
    ]
    if chain.clock_back:
        places = ", ".join(map(str, chain.clock_back))
        lines.append(f"THE CLOCK WENT BACK at link {places}: expired approvals may have held there.")
    if chain.unreadable:
        places = ", ".join(map(str, chain.unreadable))
        lines.append(f"NO READER CAN PARSE link {places}: almoner cannot have written them.")
    lines.append(
        f"THE TABLES DIFFER FROM THE CHAIN: {'; '.join(verification.differences)}."
        if verification.differences
        else "Every row of the ledger has its link, and every link agrees with its rows."
    )
    if verification.unsigned:
        lines.append(f"Not signed by their keys, so they prove nothing: {'; '.join(verification.unsigned)}.")
    return lines + [_anchor_to_json(witness, placed) for witness, placed in verification.anchors]


def _anchor_to_json(witness: "Anchor", placed: AnchorPlacement) -> str:
    if not witness.is_genuine:
        return f"{witness.path}: ITS SIGNATURE DOES NOT FIT; it was altered and proves nothing."
    signer = f"by {placed.signer}" if placed.signer else "by a key that this ledger does not know"
    signed = f"signed {signer} (key {witness.fingerprint})"
    if placed.link is not None:
        return f"{witness.path}: lies on the chain ({placed.detail}), {signed}."
    return f"{witness.path}: DOES NOT LIE ON THE CHAIN ({placed.verdict}: {placed.detail}), {signed}."


def _anchor_row(witness: "Anchor", placed: AnchorPlacement) -> PlacedAnchor:
    return PlacedAnchor(
        file=str(witness.path),
        hash=witness.anchor.hash,
        genuine=witness.is_genuine,
        signer=placed.signer,
        public_key=witness.anchor.public_key,
        link=placed.link,
        verdict=placed.verdict,
        detail=placed.detail,
    )


def _parse_time(written: str | None) -> str | None:
    """Return a time in the format of the audit log; a day becomes its first moment."""
    if written is None:
        return None
    try:
        at = datetime.fromisoformat(written)
        return utc_now(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{written!r} is not a time.", "Write it as 2026-11-21 or 2026-11-21T08:30.", code="InvalidTime"
        ) from None


def _link_summary(link: LoggedLink, details: Details | None) -> str:
    """Return what a link says: its kind first, then who, about what, and its details."""
    about = [link.actor, link.dataset, None if link.request_id is None else f"request {link.request_id}"]
    said = [f"{name}={text if len(text) <= 40 else text[:12] + '...'}" for name, text in link_details(link, details)]
    return f"{link.kind}: {', '.join(filter(None, about))}; {', '.join(said)}"
