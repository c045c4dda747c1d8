"""The record as a file for other tools: JSON lines, a table for spreadsheets, or OpenLineage events."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from sqlalchemy.orm import Session

from flows.workspace import Record
from flows.written import new_file
from models_db.services import audit_log, audits
from models_db.services.audit_log import Link, LogFilter
from tasks.progress import report

COLUMNS = ("seq", "at", "actor", "kind", "dataset", "request", "body", "prev_hash", "row_hash")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")
"""Beginnings that a spreadsheet may take for a formula, and the sign that tells it not to."""
STEP = 1000
"""Links between two reports of progress."""


class Form(StrEnum):
    """How an export is written."""

    JSONL = "jsonl"
    CSV = "csv"
    OPENLINEAGE = "openlineage"


def export(record: Record, wanted: LogFilter, form: Form, to: Path) -> int:
    """Write what fits to a new file, oldest first, in constant memory; of a failed export nothing is left.

    Returns:
        how many links, or OpenLineage events, were written.

    Raises:
        FileUnwritable: the file is there already or cannot be written.
    """
    count = 0
    with _new_or_nothing(to) as out, record.database.read() as session:
        if form is Form.CSV:
            out.write(_row(COLUMNS))
        for line in _lines(session, wanted, form):
            out.write(line)
            count += 1
    return count


def as_json(link: Link) -> dict[str, object]:
    """A link as programs read it."""
    return {
        "seq": link.seq,
        "at": link.at,
        "actor": link.actor,
        "kind": link.kind,
        "dataset": link.dataset,
        "request": link.request_id,
        "body": json.loads(link.body),
        "prev_hash": link.prev_hash,
        "row_hash": link.row_hash,
    }


def as_cells(link: Link) -> tuple[str, ...]:
    """A link as the row of a table that a spreadsheet may open: text that looks like a formula gets a quote before it.

    A text that begins with a quote gets one more, so that whoever takes one away has the text again.
    """
    given = (link.seq, link.at, link.actor, link.kind, link.dataset, link.request_id, link.body)
    texts = ("" if cell is None else str(cell) for cell in (*given, link.prev_hash, link.row_hash))
    return tuple("'" + text if text.startswith(FORMULA) else text for text in texts)


def _lines(session: Session, wanted: LogFilter, form: Form) -> Iterator[bytes]:
    if form is Form.OPENLINEAGE:
        from flows.lineage import events  # a third of a second to import, which no other command should wait for

        return (event.encode() + b"\n" for event in events(session, wanted, lambda links: _told(session, links)))
    links = _told(session, audit_log.stream(session, wanted))
    if form is Form.CSV:
        return (_row(as_cells(link)) for link in links)
    return (json.dumps(as_json(link), ensure_ascii=False).encode() + b"\n" for link in links)


def _row(cells: Iterable[str]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()


def _told(session: Session, links: Iterable[Link]) -> Iterator[Link]:
    """The same links; how far along the chain they are is reported on the way."""
    end = audits.head(session).seq
    for number, link in enumerate(links):
        if number % STEP == 0:
            report("links", link.seq, end)
        yield link
    report("links", end, end)


@contextmanager
def _new_or_nothing(to: Path) -> Iterator[BinaryIO]:
    with new_file(to) as out:
        try:
            yield out
        except BaseException:
            to.unlink(missing_ok=True)
            raise
