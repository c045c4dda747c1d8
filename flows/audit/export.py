"""Export of the audit log: JSON lines, or a table for spreadsheets."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from flows.audit.known_names import require_known_names
from flows.workspace.workspace import ReadOnlyWorkspace
from flows.workspace.yaml_files import new_file
from models_db.services.audit import chain, log
from models_db.services.audit.link_body import parse_body
from models_db.services.audit.log import LogFilter, LoggedLink
from models_db.values.amounts import Amount
from models_db.values.digits import parse_digits
from models_db.values.printable_text import escape_controls, json_text
from tasks.common.number_format import format_small
from tasks.common.progress import report

CSV_COLUMNS = ("seq", "at", "actor", "kind", "dataset", "request", "body", "prev_hash", "row_hash")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
"""First characters that a spreadsheet may take for a formula, and the quote that prevents it."""
MOST_NUMBERS_SHOWN = 20
"""Largest number of unreadable links that an export names."""
PROGRESS_STEP = 1000
"""Number of links between two progress reports."""


class ExportFormat(StrEnum):
    """Format of an export."""

    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True)
class ExportSummary:
    """Result of an export: its number of lines, and the numbers of the first links that no reader can parse."""

    count: int
    unreadable: tuple[int, ...]


@dataclass
class UnreadableLinks:
    """The first links, by number, that an export could not parse."""

    links: list[int] = field(default_factory=list)

    def add(self, link: LoggedLink) -> None:
        """Count one more link."""
        if len(self.links) < MOST_NUMBERS_SHOWN and link.seq not in self.links:
            self.links.append(link.seq)


def export_links(workspace: ReadOnlyWorkspace, log_filter: LogFilter, form: ExportFormat, to: Path) -> ExportSummary:
    """Write the matching links to a new file, oldest first, in constant memory; a failed export leaves no file.

    Returns:
        The number of written links, and the links that no reader can parse.

    Raises:
        DatasetUnknown, RequestUnknown, PrincipalNotFound, SearchedNameUnknown: the filter has a name that is unknown.
        FileUnwritable: the file exists, or cannot be written.
    """
    count, damaged = 0, UnreadableLinks()
    with workspace.database.read() as session:
        require_known_names(session, log_filter)
    with _new_complete_file(to) as out, workspace.database.read() as session:
        if form is ExportFormat.CSV:
            out.write(_csv_row(CSV_COLUMNS))
        for line in _export_lines(session, log_filter, form, damaged):
            out.write(line)
            count += 1
    return ExportSummary(count, tuple(damaged.links))


def link_to_json(link: LoggedLink) -> dict[str, object]:
    """Return a link as JSON for programs; an unreadable `body` is null, explained by `unreadable_body_text`.

    So is a `request` that is no number, which only an altered row has; `audit verify` names the link.
    """
    body = parse_body(link.body)
    return {
        "seq": link.seq,
        "at": link.at,
        "actor": link.actor,
        "kind": link.kind,
        "dataset": link.dataset,
        "request": link.request_id if isinstance(link.request_id, int) else None,
        "body": body,
        "prev_hash": link.prev_hash,
        "row_hash": link.row_hash,
        **({} if body is not None else {"unreadable": unreadable_body_text(link)}),
    }


def link_details(link: LoggedLink) -> Iterator[tuple[str, str]]:
    """Yield what the body of a link says, field by field, for people.

    Amounts of the budget are decimals, as on other screens, where the body has integers. What is empty, and what
    commits to rows, is left out; an export has it.
    """
    body = parse_body(link.body)
    if body is None:
        yield "unreadable", unreadable_body_text(link)
        return
    if str(link.kind).startswith("ledger."):
        body = body | _decimal_amounts(body)
    for name, value in body.items():
        if value is not None and name != "rows":
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield escape_controls(name), escape_controls(text)


def _decimal_amounts(body: Mapping[str, object]) -> dict[str, str]:
    rho, delta = (parse_digits(str(body.get(name))) for name in ("rho", "delta"))
    return {
        **({} if rho is None else {"rho": Amount(rho).rho_text}),
        **({} if delta is None else {"delta": format_small(Amount(delta=delta).delta_text)}),
    }


def unreadable_body_text(link: LoggedLink) -> str:
    """Return the text that replaces a body that no reader can parse; it repeats nothing of the body."""
    return f"link {link.seq}: a body of {len(link.body)} characters that almoner cannot have written"


def link_to_cells(link: LoggedLink) -> tuple[str, ...]:
    """Return a link as a row for spreadsheets: text that looks like a formula gets a quote before it.

    A text that begins with a quote gets one more, so that removing one quote always restores the text.
    """
    body = unreadable_body_text(link) if parse_body(link.body) is None else link.body
    cells = (link.seq, link.at, link.actor, link.kind, link.dataset, link.request_id, body)
    texts = ("" if cell is None else str(cell) for cell in (*cells, link.prev_hash, link.row_hash))
    return tuple("'" + text if text.startswith(FORMULA_STARTS) else text for text in texts)


def _export_lines(
    session: Session, log_filter: LogFilter, form: ExportFormat, damaged: UnreadableLinks
) -> Iterator[bytes]:
    links = _collect_unreadable(_report_progress(session, log.stream_links(session, log_filter)), damaged)
    if form is ExportFormat.CSV:
        return (_csv_row(link_to_cells(link)) for link in links)
    return (json_text(link_to_json(link)).encode() + b"\n" for link in links)


def _collect_unreadable(links: Iterable[LoggedLink], damaged: UnreadableLinks) -> Iterator[LoggedLink]:
    for link in links:
        if parse_body(link.body) is None:
            damaged.add(link)
        yield link


def _csv_row(cells: Iterable[str]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()


def _report_progress(session: Session, links: Iterable[LoggedLink]) -> Iterator[LoggedLink]:
    """Yield the same links and report the progress along the chain."""
    end = chain.read_chain_head(session).seq
    for number, link in enumerate(links):
        if number % PROGRESS_STEP == 0:
            report("links", link.seq, end)
        yield link
    report("links", end, end)


@contextmanager
def _new_complete_file(to: Path) -> Iterator[BinaryIO]:
    with new_file(to) as out:
        try:
            yield out
        except BaseException:
            to.unlink(missing_ok=True)
            raise
