"""Search and export of the audit log: known names, JSON lines, or a table for spreadsheets."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.workspace.workspace import ReadOnlyWorkspace
from flows.workspace.yaml_files import new_file
from models_db.errors import UsageError
from models_db.services import datasets, people, requests
from models_db.services.audit import chain, log
from models_db.services.audit.log import Details, LogFilter, LoggedLink, details_of_links, parse_body
from models_db.tables.audit_log import AuditLink
from models_db.values.amounts import Amount
from models_db.values.untrusted_text import escape_controls, json_text
from tasks.common.progress import report
from tasks.common.published_values import format_small


def require_known_names(session: Session, search: LogFilter) -> None:
    """Check that the names of a search exist: in the audit log, or else in the ledger, or as names of this version.

    A dataset, a request or a person is known if a link names it or the ledger has it; a kind or a mechanism, if a link
    has it or this version of almoner could write it.

    Raises:
        DatasetUnknown, RequestUnknown, PrincipalNotFound, SearchedNameUnknown: one of them does not.
    """
    for name, find in (
        ("dataset", datasets.find_dataset),
        ("request_id", requests.find_request),
        ("actor", people.find_principal),
    ):
        value, column = getattr(search, name), getattr(AuditLink, name)
        if value is not None and session.scalars(select(AuditLink.seq).where(column == value).limit(1)).first() is None:
            find(session, value)
    if (kind := search.kind) is not None and not any(known.startswith(kind) for known in log.KINDS):
        _require_link(session, LogFilter(kind=kind), "kind", log.KINDS)
    if (mechanism := search.mechanism) is not None:
        from tasks.mechanisms.registry import MECHANISMS  # other searches need neither of the two
        from tasks.systems.registry import SYSTEMS

        if mechanism not in MECHANISMS and mechanism not in SYSTEMS:
            _require_link(session, LogFilter(mechanism=mechanism), "mechanism", (*SYSTEMS, *MECHANISMS))


def _require_link(session: Session, search: LogFilter, what: str, known: Iterable[str]) -> None:
    """Check that a link of the ledger fits, though this version of almoner would not write its name."""
    if not log.read_page(session, search, 1).links:
        written = str(getattr(search, what))
        raise _searched_name_unknown(what, written, sorted(known))


def _searched_name_unknown(what: str, written: str, known: Sequence[str]) -> UsageError:
    near = get_close_matches(written, known, 3)
    areas = dict.fromkeys(name.partition(".")[0] for name in known)
    return UsageError(
        f"Neither this version of almoner nor this ledger knows the {what} {written!r}.",
        f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(areas)}.",
        {what: written, "near": near},
        code="SearchedNameUnknown",
    )


CSV_COLUMNS = ("seq", "at", "actor", "kind", "dataset", "request", "details", "body", "prev_hash", "row_hash")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
"""First characters that a spreadsheet may take for a formula, and the quote that prevents it."""
MOST_NUMBERS_SHOWN = 20
"""Largest number of unreadable links that an export names."""
MOST_VALUES_SHOWN = 5
"""Largest number of different values of a column that a line for people names."""
AMOUNTS = ("rho", "delta", "delta_fail", "rho_max", "delta_max")


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


def link_to_json(link: LoggedLink, details: Details | None) -> dict[str, object]:
    """Return a link as JSON for programs; an unreadable `body` is null, explained by `unreadable_body_text`.

    So is a `request` that is no number, which only an altered row has; `audit verify` names the link.

    Args:
        details: what its rows say (`details_of_links`); amounts are integers as text.
    """
    return {
        "seq": link.seq,
        "at": link.at,
        "actor": link.actor,
        "kind": link.kind,
        "dataset": link.dataset,
        "request": link.request_id if isinstance(link.request_id, int) else None,
        "details": [] if details is None else [_integers_as_text(row) for row in details],
        "body": parse_body(link.body),
        "prev_hash": link.prev_hash,
        "row_hash": link.row_hash,
        **({"unreadable": unreadable_body_text(link)} if details is None else {}),
    }


def _integers_as_text(row: Mapping[str, object]) -> dict[str, object]:
    return {name: str(value) if name in AMOUNTS else value for name, value in row.items()}


def link_details(link: LoggedLink, details: Details | None) -> Iterator[tuple[str, str]]:
    """Yield what the rows of a link say, column by column, for people: the values of all rows that have it.

    Amounts of the budget are decimals, as on other screens, where the rows have integers.
    """
    if details is None:
        yield "unreadable", unreadable_body_text(link)
        return
    values: dict[str, dict[str, None]] = {}
    for row in details:
        for name, value in row.items():
            if name not in ("table", "id") and value != "":
                decimal = _decimal(name, value)
                text = decimal if isinstance(decimal, str) else json.dumps(decimal, ensure_ascii=False)
                values.setdefault(escape_controls(name), {})[escape_controls(text)] = None
    for name, texts in values.items():
        shown = [*texts][:MOST_VALUES_SHOWN]
        yield name, ", ".join(shown) + (f" and {len(texts) - len(shown)} more" if len(texts) > len(shown) else "")


def _decimal(name: str, value: object) -> object:
    if name not in AMOUNTS or type(value) is not int or value < 0:
        return value
    return Amount(value).rho_text if name.startswith("rho") else format_small(Amount(delta=value).delta_text)


def unreadable_body_text(link: LoggedLink) -> str:
    """Return the text that replaces a body that no reader can parse; it repeats nothing of the body."""
    return f"link {link.seq}: a body of {len(link.body)} characters that almoner cannot have written"


def link_to_cells(link: LoggedLink, details: Details | None) -> tuple[str, ...]:
    """Return a link as a row for spreadsheets: text that looks like a formula gets a quote before it.

    A text that begins with a quote gets one more, so that removing one quote always restores the text.
    """
    body = unreadable_body_text(link) if details is None else link.body
    said = "; ".join(f"{name}={text}" for name, text in link_details(link, details))
    cells = (link.seq, link.at, link.actor, link.kind, link.dataset, link.request_id, said, body)
    texts = ("" if cell is None else str(cell) for cell in (*cells, link.prev_hash, link.row_hash))
    return tuple("'" + text if text.startswith(FORMULA_STARTS) else text for text in texts)


def _export_lines(
    session: Session, log_filter: LogFilter, form: ExportFormat, damaged: UnreadableLinks
) -> Iterator[bytes]:
    end = chain.read_chain_head(session).seq
    for chunk in log.stream_chunks(session, log_filter):
        report("links", chunk[0].seq, end)
        details = details_of_links(session, chunk)
        for link in chunk:
            if details[link.seq] is None:
                damaged.add(link)
            if form is ExportFormat.CSV:
                yield _csv_row(link_to_cells(link, details[link.seq]))
            else:
                yield json_text(link_to_json(link, details[link.seq])).encode() + b"\n"
    report("links", end, end)


def _csv_row(cells: Iterable[str]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()


@contextmanager
def _new_complete_file(to: Path) -> Iterator[BinaryIO]:
    with new_file(to) as out:
        try:
            yield out
        except BaseException:
            to.unlink(missing_ok=True)
            raise
