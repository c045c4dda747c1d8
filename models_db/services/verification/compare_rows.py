"""Comparison of rows with the links that commit to them, in the order of the chain; memory does not grow with either.

For each link the digests of its rows are computed anew, and then its whole content: kind, actor, dataset, request and
body. A link that cannot be read is reported by its number. Only an anchor reveals a chain that was rewritten as a
whole (`verify_chain`).
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services.audit.link_body import parse_body
from models_db.services.audit.log import LoggedLink
from models_db.services.audit.stored_text import UNREADABLE_ERRORS
from models_db.writes.link_content import TABLE_RANKS, digest_of_contents, link_body, row_content
from models_db.writes.links import BudgetSteps, row_contents, view_of

BUDGET_STEP_KINDS = ("ledger.hold", "ledger.arm", "ledger.release", "ledger.commit", "ledger.forfeit")
"""Kinds of links that record a step of the budget in several rows, without a leading row."""
MOST_DIFFERENCES = 20
"""Maximum number of differences in a report."""

_BATCH_ROWS = 20_000
_STREAMED_ROWS = 2_000
_ID_BATCH = 10_000
_MOST = 4 * len(TABLE_RANKS)
"""More groups of rows than one transaction makes: a table is named once or twice by a link."""
_LAST = 2**63 - 1
"""The last number that a row can have."""
_RANGES_PATTERN = re.compile(r"[1-9]\d{0,18}(-[1-9]\d{0,18})?(,[1-9]\d{0,18}(-[1-9]\d{0,18})?)*|0(,[1-9][\d,-]*)?")

IdRange = tuple[int, int]


class CoveredIds:
    """Numbers that were named, as ranges: few of them, because rows are numbered one after the other."""

    def __init__(self) -> None:
        self.ranges: list[IdRange] = []

    def add(self, first: int, last: int) -> bool:
        """Add a range. Returns whether all of it is new."""
        at = bisect_right(self.ranges, (first, last))
        before = self.ranges[at - 1] if at else (-2, -2)
        after = self.ranges[at] if at < len(self.ranges) else None
        if before[1] >= first or (after and after[0] <= last):
            return False
        low, high = at, at
        if before[1] == first - 1:
            low, first = at - 1, before[0]
        if after and after[0] == last + 1:
            high, last = at + 1, after[1]
        self.ranges[low:high] = [(first, last)]
        return True

    def lacks(self, numbers: Iterable[int]) -> Iterator[int]:
        """Yield which of some ascending numbers were not named."""
        remaining_ranges = iter(self.ranges)
        now = next(remaining_ranges, None)
        for number in numbers:
            while now and now[1] < number:
                now = next(remaining_ranges, None)
            if now is None or number < now[0]:
                yield number


@dataclass(frozen=True)
class NamedRows:
    """Rows of one table, as a link names them."""

    table: str
    ids: str
    ranges: tuple[IdRange, ...]
    content: str

    @property
    def size(self) -> int:
        """Number of rows."""
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def numbers(self) -> list[int]:
        """The ids; only of few rows."""
        return [number for first, last in self.ranges for number in range(first, last + 1)]


@dataclass
class Comparison:
    """Running comparison along the links of the chain."""

    session: Session
    differences: list[str] = field(default_factory=list)
    covered: dict[str, CoveredIds] = field(default_factory=lambda: {table: CoveredIds() for table in TABLE_RANKS})
    _newest: dict[str, int] = field(default_factory=dict)

    def add_difference(self, difference: str) -> None:
        """Add a difference; only the first ones are named."""
        if len(self.differences) <= MOST_DIFFERENCES:
            self.differences.append(difference if len(self.differences) < MOST_DIFFERENCES else "and more")

    def compare(self, links: Iterable[LoggedLink]) -> None:
        """Compare the contents of links with the rows, in batches."""
        batch: list[tuple[LoggedLink, tuple[NamedRows, ...]]] = []
        size = 0
        for link in links:
            rows = self._rows_of_link(link)
            if rows:
                batch.append((link, rows))
                size += sum(min(each.size, _STREAMED_ROWS) for each in rows)
            if size > _BATCH_ROWS:
                self._compare_batch(batch)
                batch, size = [], 0
        self._compare_batch(batch)

    def finish(self) -> None:
        """Add the rows without links, after the last link of the chain."""
        for table, covered in self.covered.items():
            query = text(f"SELECT id FROM {table} ORDER BY id")  # noqa: S608  (the name of a table)
            ids = self.session.connection().execute(query, execution_options={"yield_per": _ID_BATCH}).scalars()
            for number in covered.lacks(ids):
                self.add_difference(f"{table} {number} has no link")

    def _rows_of_link(self, link: LoggedLink) -> tuple[NamedRows, ...]:
        body = parse_body(link.body)
        if body is None:
            self.add_difference(f"link {link.seq} cannot be read")
            return ()
        if "rows" not in body:
            self.add_difference(f"link {link.seq} names no row")
            return ()
        rows = _rows_named_by(body["rows"])
        if not rows:
            self.add_difference(f"link {link.seq} names no row")
        return rows

    def _compare_batch(self, batch: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]) -> None:
        spelled = self._spell_batch(batch)
        whole = [(link, rows) for link, rows in batch if self._rows_agree(link, rows, spelled)]
        views = self._views_of_rows(whole)
        named = [group for link, rows in whole if link.kind in BUDGET_STEP_KINDS for group in rows]
        steps = BudgetSteps.load(self.session, _numbers(named, "entry"), _numbers(named, "invocation"))
        for link, rows in whole:
            try:
                link_view = (
                    steps.link_fields(_numbers(rows, "entry"), _numbers(rows, "invocation"))
                    if link.kind in BUDGET_STEP_KINDS
                    else views.get(_leading_row(rows))
                )
                says_rows = link_view is not None and _expected_link_fields(link_view, rows) == (*link[4:8], link.body)
            except UNREADABLE_ERRORS:
                self.add_difference(f"{rows[0].table} {rows[0].ids} cannot be read")
                continue
            if not says_rows:
                self.add_difference(f"link {link.seq} differs from its rows")

    def _spell_batch(self, batch: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]) -> dict[str, dict[int, str]]:
        """Return all rows of links that name few, by table and id."""
        ids_by_table: dict[str, list[int]] = {}
        for _, rows in batch:
            for named_rows in rows:
                if named_rows.size <= _STREAMED_ROWS:
                    ids_by_table.setdefault(named_rows.table, []).extend(named_rows.numbers)
        return {table: row_contents(self.session, table, ids) for table, ids in ids_by_table.items()}

    def _rows_agree(
        self, link: LoggedLink, rows: Sequence[NamedRows], spelled: Mapping[str, Mapping[int, str]]
    ) -> bool:
        agree = True
        for named_rows in rows:
            new = [self.covered[named_rows.table].add(*pair) for pair in named_rows.ranges]
            if not all(new):
                self.add_difference(f"link {link.seq} names {named_rows.table} {named_rows.ids} again")
                agree = False
            if named_rows.size > _STREAMED_ROWS and not all(new):
                continue  # many rows are read once, however many links name them
            if named_rows.size > _STREAMED_ROWS:
                number, digest = self._digest_streamed(named_rows)
                missing = number != named_rows.size
            else:
                contents = spelled[named_rows.table]
                lacking = [number for number in named_rows.numbers if number not in contents]
                missing = bool(lacking)
                digest = "" if missing else digest_of_contents(contents[number] for number in named_rows.numbers)
            if missing:
                self.add_difference(f"{named_rows.table} {named_rows.ids} of link {link.seq} is not there")
            elif digest != named_rows.content:
                self.add_difference(f"{named_rows.table} {named_rows.ids} differs from link {link.seq}")
            agree = agree and not missing and digest == named_rows.content
        return agree

    def _digest_streamed(self, named_rows: NamedRows) -> tuple[int, str]:
        """Number and digest of many rows; of rows that cannot all be there, nothing is read."""
        number, content_hash = 0, hashlib.sha256()
        if max(last for _, last in named_rows.ranges) > self._last_of(named_rows.table):
            return number, ""
        query = text(f"SELECT * FROM {named_rows.table} WHERE id BETWEEN :first AND :last ORDER BY id")  # noqa: S608
        for first, last in named_rows.ranges:
            bounds, options = {"first": first, "last": last}, {"yield_per": _ID_BATCH}
            for row in self.session.connection().execute(query, bounds, execution_options=options).mappings():
                content_hash.update((b"\n" if number else b"") + row_content(named_rows.table, dict(row)).encode())
                number += 1
        return number, content_hash.hexdigest()

    def _last_of(self, table: str) -> int:
        """Return the number of a table's last row."""
        if table not in self._newest:
            query = text(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608  (the name of a table)
            self._newest[table] = int(self.session.scalar(query) or 0)
        return self._newest[table]

    def _views_of_rows(
        self, whole: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]
    ) -> dict[tuple[str, int], Mapping[str, Any]]:
        """Return the views of the rows that links are about."""
        ids_by_table: dict[str, list[int]] = {}
        for link, rows in whole:
            if link.kind not in BUDGET_STEP_KINDS and rows[0].size == 1:
                ids_by_table.setdefault(rows[0].table, []).extend(rows[0].numbers)
        views: dict[tuple[str, int], Mapping[str, Any]] = {}
        for table, ids in ids_by_table.items():
            views.update(((table, number), view) for number, view in view_of(self.session, table, ids).items())
        return views


def _numbers(rows: Sequence[NamedRows], table: str) -> list[int]:
    """Return the ids that a link names of a table."""
    return [number for group in rows if group.table == table for number in group.numbers]


def _leading_row(rows: Sequence[NamedRows]) -> tuple[str, int]:
    return rows[0].table, rows[0].ranges[0][0]


def _expected_link_fields(view: Mapping[str, Any], rows: Sequence[NamedRows]) -> tuple[Any, ...]:
    """Return actor, kind, dataset, request and body of the link for a view."""
    rows_json = [{"table": group.table, "ids": group.ids, "content": group.content} for group in rows]
    body = link_body(view, rows_json)
    return view["link_actor"], view["link_kind"], view["link_dataset"], view["link_request"], body


def _rows_named_by(rows_json: Any) -> tuple[NamedRows, ...]:
    """Return the rows that a link names; none if it is not written as almoner writes it."""
    named_rows = [_named_once(row) for row in rows_json] if isinstance(rows_json, list) else []
    return () if None in named_rows or len(named_rows) > _MOST else tuple(row for row in named_rows if row is not None)


def _named_once(row: Any) -> NamedRows | None:
    """Return the rows of one table that a link names; None if that is not written as almoner writes it."""
    if not isinstance(row, dict) or set(row) != {"table", "ids", "content"}:
        return None
    table, ids, digest = row["table"], row["ids"], row["content"]
    if not all(isinstance(value, str) for value in (table, ids, digest)):
        return None
    if table not in TABLE_RANKS or not _RANGES_PATTERN.fullmatch(ids):
        return None
    pairs = [part.partition("-") for part in ids.split(",")]
    ranges = tuple((int(first), int(last or first)) for first, _, last in pairs)
    fits = all(first <= last <= _LAST for first, last in ranges)
    return NamedRows(table, ids, ranges, digest) if fits else None
