"""Comparison of the rows of all tables with the links that commit to them, in the order of the chain.

Comparison of rows with the links that commit to them, in the order of the chain; memory does not grow with either. For
each link the digests of its rows are computed anew, and then its whole content: kind, actor, dataset, request and body.
A link that cannot be read is reported by its number. Only an anchor reveals a chain that was rewritten as a whole
(`verify_chain`).

Comparison of all tables with the chain: one link names every row, and the content of every link matches its rows.
Guards refuse a change that no link records, but a role that may drop a guard may restore it afterwards: the schema and
the chain then look unchanged. So every column of every table is compared: with the link that commits to it, or, where
it changes, with the rows from which it follows. Links can be rewritten too; bundles and checkpoints outside the ledger
show that (`verify_chain`).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services import budget, requests
from models_db.services.audit.chain import read_chain_head
from models_db.services.audit.log import (
    MOST_ID,
    LogFilter,
    LoggedLink,
    NamedRows,
    named_rows,
    parse_body,
    stream_chunks,
)
from models_db.services.audit.stored_text import UNREADABLE_ERRORS, is_unreadable
from models_db.services.audit.verify_chain import Progress
from models_db.values.canonical_json import encode_canonical
from models_db.writes.link_content import LINKED_TABLES, digest_of_contents, link_fields, name_rows, row_content
from models_db.writes.links import contents_between, digest_claims, views_of_rows

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


_MARK_BATCH = 10_000

DOCUMENTED_EXCEPTIONS = {
    ("lease", "token"): "whose run it is: random, and gone with the run",
    ("lease", "owner"): "a process, for people to look at",
    ("lease", "expires_at"): "the heartbeat of a run",
}
"""Columns that are not compared, with reasons: a lease is advisory, because holds fence a late runner."""


def compare_rows_with_chain(session: Session, progress: Progress | None = None) -> list[str]:
    """Return the differences between tables and chain, by table and id or by link; empty when they agree.

    `progress` is called with the numbers of links done and of all links.
    """
    comparison = Comparison(session)
    comparison.compare(_link_differences(session, progress))
    comparison.finish()
    derived = {
        "unit_mark": unit_claim_differences,
        "account": account_differences,
        "planned_release": _plan_differences,
        "lease": _lease_differences,
        "pending_link": _pending_link_differences,
    }
    add_derived_differences(comparison, {table: partial(compare, session) for table, compare in derived.items()})
    return comparison.differences


def add_derived_differences(comparison: Comparison, checks: Mapping[str, Callable[[], Iterator[str]]]) -> None:
    """Add the findings of checks; a check that fails on an altered value does not stop the others.

    Args:
        checks: by the table that each is about.
    """
    for table, check in checks.items():
        try:
            for difference in check():
                comparison.add_difference(difference)
        except Exception as problem:
            if not is_unreadable(problem):
                raise
            comparison.add_difference(f"{table} cannot be read")


def _link_differences(session: Session, progress: Progress | None) -> Iterator[LoggedLink]:
    total, done = read_chain_head(session).seq, 0
    for chunk in stream_chunks(session, LogFilter()):
        yield from chunk
        done += len(chunk)
        if progress:
            progress(done, total)


def unit_claim_differences(session: Session) -> Iterator[str]:
    """Yield each claim whose marks differ from its digest, and each mark without a claim."""
    claims = {row.id: row for row in session.execute(text("SELECT id, salt, digest FROM unit_claim"))}
    query = text("SELECT claim, mark, account_id, cohort FROM unit_mark ORDER BY mark")
    marks = session.connection().execute(query, execution_options={"yield_per": _MARK_BATCH})
    for number, digest in digest_claims({number: claim.salt for number, claim in claims.items()}, marks).items():
        if digest is None:
            yield f"unit_mark of unit_claim {number} cannot be read"
        elif digest != claims[number].digest:
            yield f"unit_mark of unit_claim {number} are not those that it claimed"
    stray = text("SELECT DISTINCT claim FROM unit_mark WHERE claim NOT IN (SELECT id FROM unit_claim) ORDER BY claim")
    for number in session.scalars(stray):
        yield f"unit_mark of unit_claim {number} has no claim"


def account_differences(session: Session, root: int | None = None) -> Iterator[str]:
    """Differences of caps and counters, of one root account and those below it or everywhere."""
    yield from _cap_differences(session, root)
    yield from _counter_differences(session, root)


def _cap_differences(session: Session, root: int | None) -> Iterator[str]:
    """Yield each account whose cap differs from the one claimed or approved.

    The cap of a root account and its blocks is that of the last proposal carried for it, or of its first claim.
    """
    for row in session.execute(_CAPS_QUERY, {"root": root}):
        yield f"account {row.id}: rho_cap or delta_cap differs from its claim or proposal"


_CAPS_QUERY = text("""
SELECT a.id FROM account a LEFT JOIN account r ON r.id = coalesce(a.parent_id, a.id)
  LEFT JOIN (SELECT d.account_id, max(y.id) AS id FROM carried y JOIN proposal m ON m.id = y.proposal_id
             JOIN dataset d ON d.id = m.dataset_id WHERE m.kind = 'cap' GROUP BY d.account_id) last
    ON last.account_id = r.id
  LEFT JOIN carried y ON y.id = last.id LEFT JOIN proposal m ON m.id = y.proposal_id
 WHERE (CAST(:root AS BIGINT) IS NULL OR coalesce(a.parent_id, a.id) = :root)
   AND (a.rho_cap <> coalesce(m.rho, r.rho, -1) OR a.delta_cap <> coalesce(m.delta_fail, r.delta_fail, -1))
 ORDER BY a.id
""")


def _counter_differences(session: Session, root: int | None) -> Iterator[str]:
    """Counters are the sums of entries, and within the cap; the newest entry is the one that moved them last."""
    query, values = (_ALL_BUDGETS, {}) if root is None else (_BUDGETS_OF_ROOT, {"root": root})
    for account, is_newest, fits, *agree in session.execute(query, values):
        for counter, same in zip(budget.COUNTER_COLUMNS, agree, strict=True):
            if not same:
                yield f"account {account}: {counter} is not the sum of its entries"
        if not is_newest:
            yield f"account {account}: last_entry_id is not its newest entry"
        if not fits:
            yield f"account {account}: the sum of its entries exceeds its cap"


_SUM_AGREES = "x.{counter} = coalesce(s.{counter}, 0)"
_FITS_CAP = "coalesce(s.{unit}_held, 0) + coalesce(s.{unit}_spent, 0) <= x.{unit}_cap"
_BUDGET_CONDITIONS = {
    "is_newest": "x.last_entry_id = coalesce(s.newest, 0)",
    "fits": " AND ".join(_FITS_CAP.format(unit=unit) for unit in ("rho", "delta")),
    **{counter: _SUM_AGREES.format(counter=counter) for counter in budget.COUNTER_COLUMNS},
}
_BUDGETS_QUERY = f"""
SELECT x.id, {", ".join(f"{condition} AS {name}" for name, condition in _BUDGET_CONDITIONS.items())}
  FROM account x LEFT JOIN (
    SELECT h.account_id AS id, max(e.id) AS newest,
           {",".join(budget.COUNTER_SUMS.format(u=unit) for unit in ("rho", "delta"))}
      FROM account a JOIN hold h ON h.account_id = a.id JOIN entry e ON e.hold_id = h.id
     WHERE {{summed}} GROUP BY h.account_id) s ON s.id = x.id
 WHERE ({{compared}}) AND NOT ({" AND ".join(_BUDGET_CONDITIONS.values())}) ORDER BY x.id
"""  # noqa: S608  (of constants)
_ALL_BUDGETS = text(_BUDGETS_QUERY.format(summed="TRUE", compared="TRUE"))
_BUDGETS_OF_ROOT = text(
    _BUDGETS_QUERY.format(summed="a.id = :root OR a.parent_id = :root", compared="x.id = :root OR x.parent_id = :root")
)


def _plan_differences(session: Session) -> Iterator[str]:
    """Yield each difference between the plan that guards enforce and the one in the request's text."""
    for number in requests.altered_plans(session):
        yield f"planned_release of request {number}, or a row that belongs to it, is not the plan of its text"


def _lease_differences(session: Session) -> Iterator[str]:
    """Every request that ever ran has one lease, of its last attempt."""
    for row in session.execute(_LEASES_QUERY):
        yield f"lease of request {row.request_id} is not of its last attempt"


_LEASES_QUERY = text("""
SELECT l.request_id FROM lease l WHERE l.attempt <> (SELECT count(*) FROM transition t
 WHERE t.request_id = l.request_id AND t.to_state = 'running')
 UNION SELECT t.request_id FROM transition t WHERE t.to_state = 'running'
   AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.request_id = t.request_id) ORDER BY 1
""")


def _pending_link_differences(session: Session) -> Iterator[str]:
    """Between transactions nothing waits for its link, and the chain has one head."""
    for number in session.scalars(text("SELECT id FROM pending_link ORDER BY id")):
        yield f"pending_link {number} was left behind"
    for number in session.scalars(text("SELECT id FROM audit_head WHERE id <> 1")):
        yield f"audit_head {number} is one too many"
