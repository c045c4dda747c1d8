"""Comparison of rows with the links that commit to them, in the order of the chain; memory does not grow with either.

For each link the digests of its rows are computed anew, and then its whole content: kind, actor, dataset, request and
body. A link that cannot be read is reported by its number. Only an anchor reveals a chain that was rewritten as a
whole (`verify_chain`).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services.audit.linked_rows import MOST_ID, NamedRows, named_rows, parse_body
from models_db.services.audit.log import LoggedLink
from models_db.services.audit.stored_text import UNREADABLE_ERRORS
from models_db.values.canonical_json import encode_canonical
from models_db.writes.link_content import LINKED_TABLES, digest_of_contents, link_fields, name_rows, row_content
from models_db.writes.links import contents_between, views_of_rows

MOST_DIFFERENCES = 20
"""Maximum number of differences in a report."""

_BATCH_ROWS = 20_000
_STREAMED_ROWS = 2_000
_ROWS_OF_TEXT = dict.fromkeys(("request", "artifact", "evaluation", "rehearsal"), 500)
"""For how many rows one counts whose text may have some megabytes."""
_ID_BATCH = 10_000


class IdRanges:
    """Numbers of rows, as ranges: few of them, because rows are numbered one after the other."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

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

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "IdRanges":
        """Return the ranges of some numbers."""
        ranges = cls()
        for number in numbers:
            ranges.add(number, number)
        return ranges

    def covers(self, first: int, last: int) -> bool:
        """Return whether all of a range is among these."""
        at = bisect_right(self.ranges, (first, MOST_ID))
        return at > 0 and self.ranges[at - 1][1] >= last

    def lacks(self, numbers: Iterable[int]) -> Iterator[int]:
        """Yield which of some ascending numbers are not among these."""
        remaining_ranges = iter(self.ranges)
        now = next(remaining_ranges, None)
        for number in numbers:
            while now and now[1] < number:
                now = next(remaining_ranges, None)
            if now is None or number < now[0]:
                yield number


@dataclass
class Comparison:
    """Running comparison along the links of the chain."""

    session: Session
    differences: list[str] = field(default_factory=list)
    covered: dict[str, IdRanges] = field(default_factory=lambda: {table: IdRanges() for table in LINKED_TABLES})
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
                size += sum(min(each.size, _STREAMED_ROWS) * _ROWS_OF_TEXT.get(each.table, 1) for each in rows)
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
        rows = named_rows(body)
        if not rows:
            self.add_difference(f"link {link.seq} names no row")
        return rows

    def _compare_batch(self, batch: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]) -> None:
        contents = self._contents_of_batch(batch)
        whole = [(link, rows) for link, rows in batch if self._rows_agree(link, rows, contents)]
        views = self._views_of_batch(whole)
        for link, rows in whole:
            try:
                fields = link_fields([views[each.table, each.last] for each in rows])
                says_rows = all(getattr(link, name) == value for name, value in fields.items())
                says_rows = says_rows and link.body == _body(rows)
            except UNREADABLE_ERRORS:
                self.add_difference(f"{rows[0]} cannot be read")
                continue
            if not says_rows:
                self.add_difference(f"link {link.seq} differs from its rows")

    def _contents_of_batch(
        self, batch: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]
    ) -> dict[str, dict[int, str]]:
        """Return all rows of links that name few, by table and id."""
        ids_by_table: dict[str, IdRanges] = {}
        for _, rows in batch:
            for each in rows:
                if each.size <= _STREAMED_ROWS:
                    ids_by_table.setdefault(each.table, IdRanges()).add(each.first, each.last)
        return {
            table: {
                number: content
                for first, last in ids.ranges
                for number, content in contents_between(self.session, table, first, last).items()
            }
            for table, ids in ids_by_table.items()
        }

    def _rows_agree(
        self, link: LoggedLink, rows: Sequence[NamedRows], contents: Mapping[str, Mapping[int, str]]
    ) -> bool:
        agree = True
        for each in rows:
            new = self.covered[each.table].add(each.first, each.last)
            if not new:
                self.add_difference(f"link {link.seq} names {each} again")
                agree = False
            if each.size > _STREAMED_ROWS and not new:
                continue  # many rows are read once, however many links name them
            if each.size > _STREAMED_ROWS:
                number, digest = self._digest_streamed(each)
            else:
                found = [contents[each.table][number] for number in each.numbers if number in contents[each.table]]
                number, digest = len(found), digest_of_contents(found)
            if number != each.size:
                self.add_difference(f"{each} of link {link.seq} is not there")
            elif digest != each.content:
                self.add_difference(f"{each} differs from link {link.seq}")
            agree = agree and number == each.size and digest == each.content
        return agree

    def _digest_streamed(self, rows: NamedRows) -> tuple[int, str]:
        """Number and digest of many rows; of rows that cannot all be there, nothing is read."""
        number, content_hash = 0, hashlib.sha256()
        if rows.last > self._last_of(rows.table):
            return number, ""
        query = text(f"SELECT * FROM {rows.table} WHERE id BETWEEN :first AND :last ORDER BY id")  # noqa: S608
        bounds, options = {"first": rows.first, "last": rows.last}, {"yield_per": _ID_BATCH}
        for row in self.session.connection().execute(query, bounds, execution_options=options).mappings():
            content_hash.update((b"\n" if number else b"") + row_content(rows.table, dict(row)).encode())
            number += 1
        return number, content_hash.hexdigest()

    def _last_of(self, table: str) -> int:
        """Return the number of a table's last row."""
        if table not in self._newest:
            query = text(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608  (the name of a table)
            self._newest[table] = int(self.session.scalar(query) or 0)
        return self._newest[table]

    def _views_of_batch(
        self, whole: Sequence[tuple[LoggedLink, tuple[NamedRows, ...]]]
    ) -> dict[tuple[str, int], Mapping[str, Any]]:
        """Return what the views say of the last rows that links name, by table and id."""
        ids_by_table: dict[str, list[int]] = {}
        for _, rows in whole:
            for each in rows:
                ids_by_table.setdefault(each.table, []).append(each.last)
        return {
            (table, number): view
            for table, ids in ids_by_table.items()
            for number, view in views_of_rows(self.session, table, ids).items()
        }


def _body(rows: Sequence[NamedRows]) -> str:
    named = [name_rows(each.table, each.first, each.last, each.content) for each in rows]
    return encode_canonical({"rows": named}).decode()
