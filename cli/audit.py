"""`almoner audit`: read the record, check the chain, sign its head."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.command import Answer, Opened, command
from cli.tables import table
from flows import record
from flows.workspace import open_workspace
from flows.written import new_file
from models_db.base import moment
from models_db.errors import UsageError
from models_db.services import audits
from models_db.services.audits import LogFilter
from models_db.tables import Audit

app = typer.Typer(no_args_is_help=True, help="The record: log, verify, checkpoint, export.")

Since = Annotated[str | None, typer.Option(help="From this UTC time on, such as 2026-11-21.")]
Until = Annotated[str | None, typer.Option(help="Before this UTC time.")]


@command(app, "log")
def log(
    opened: Opened,
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.")] = None,
    release: Annotated[int | None, typer.Option(help="Only of this request.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only by this person.")] = None,
    mechanism: Annotated[str | None, typer.Option(help="Only naming this mechanism.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only kinds that begin so, such as ledger.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest this many.")] = 100,
) -> Answer:
    """What happened, oldest first.

    Example: almoner audit log --dataset clinic --kind ledger
    """
    wanted = LogFilter(dataset, release, actor, kind, mechanism, _moment(since), _moment(until), limit)
    workspace = open_workspace(opened.home)
    with workspace.database.read() as session:
        links = [_link(found) for found in audits.log(session, wanted)]
    rows = [(x["seq"], str(x["at"])[:19], x["actor"], x["kind"], x["dataset"], x["request"], _brief(x)) for x in links]
    return Answer(links, [table(("seq", "at (UTC)", "actor", "kind", "dataset", "request", "details"), rows)])


@command(app, "verify")
def verify(opened: Opened) -> Answer:
    """Walk the hash chain from its first link and compare every signed checkpoint.

    Example: almoner audit verify
    """
    workspace = open_workspace(opened.home)
    with workspace.database.read() as session:
        report = audits.verify(session)
    data = {"holds": report.holds, "links": report.links, "head": report.head.hash, "broken_at": report.broken_at,
            "reason": report.reason}  # fmt: skip
    told = (
        f"The chain holds: {report.links} links, head {report.head.hash}."
        if report.holds
        else f"THE CHAIN IS BROKEN at link {report.broken_at}: {report.reason}."
    )
    return Answer(data, [told], exit_code=0 if report.holds else 1)


@command(app, "checkpoint")
def checkpoint(opened: Opened, to: Annotated[Path, typer.Option(help="New file to write.")]) -> Answer:
    """Sign the head of the chain and write it to a file; kept elsewhere, it proves that nothing before it changed.

    Example: almoner audit checkpoint --to head-2026-11.json
    """
    signed = record.checkpoint(open_workspace(opened.home), to)
    return Answer(signed, [f"Checkpoint of link {signed['seq']} written to {to}. Keep it away from this machine."])


@command(app, "export")
def export(
    opened: Opened,
    to: Annotated[Path, typer.Option(help="New JSONL file to write.")],
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.")] = None,
) -> Answer:
    """Write the record as JSON lines.

    Example: almoner audit export --to record.jsonl
    """
    workspace = open_workspace(opened.home)
    with workspace.database.read() as session, new_file(to) as out:
        count = 0
        for link in audits.log(session, LogFilter(dataset=dataset)):
            out.write(json.dumps(_link(link), ensure_ascii=False).encode() + b"\n")
            count += 1
    return Answer({"file": str(to), "links": count}, [f"{count} links written to {to}."])


def _moment(written: str | None) -> str | None:
    """A time as the record writes it; a day is its first moment."""
    if written is None:
        return None
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        raise NotATime(written) from None
    return moment(at if at.tzinfo else at.replace(tzinfo=UTC))


class NotATime(UsageError):
    """A time in another form than ISO 8601."""

    def __init__(self, written: str) -> None:
        super().__init__(f"{written!r} is not a time.", "Write it as 2026-11-21 or 2026-11-21T08:30.")


def _link(found: Audit) -> dict[str, object]:
    return {
        "seq": found.seq,
        "at": found.at,
        "actor": found.actor,
        "kind": found.kind,
        "dataset": found.dataset,
        "request": found.request_id,
        "body": json.loads(found.body),
        "prev_hash": found.prev_hash,
        "row_hash": found.row_hash,
    }


def _brief(link: dict[str, object]) -> str:
    body = link["body"]
    if not isinstance(body, dict):
        return ""
    return ", ".join(f"{name}={_short(value)}" for name, value in body.items() if value is not None)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:12] + "..."
