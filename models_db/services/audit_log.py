"""Reading the record: a page of links from the newest back, or all of them in a stream.

Rows come as plain tuples, because a page must cost little more than its bare SELECT. Times never go back along the
chain (`audit_check` shows where a clock did), so a span of time is a span of numbers: its two ends are looked up in
the index of times, and the page itself comes from an index that ends in the number.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Select, select, text, union_all
from sqlalchemy.orm import Session

from models_db.tables import Audit

COLUMNS = (
    Audit.seq,
    Audit.prev_hash,
    Audit.row_hash,
    Audit.at,
    Audit.actor,
    Audit.kind,
    Audit.dataset,
    Audit.request_id,
    Audit.body,
)
CHUNK = 1000

_KINDS = text("""
WITH RECURSIVE found(kind) AS (
    SELECT min(kind) FROM audit
    UNION ALL
    SELECT (SELECT min(a.kind) FROM audit a WHERE a.kind > found.kind) FROM found WHERE found.kind IS NOT NULL)
SELECT kind FROM found WHERE kind IS NOT NULL
""")


class Link(NamedTuple):
    """One link, as its row has it."""

    seq: int
    prev_hash: str
    row_hash: str
    at: str
    actor: str
    kind: str
    dataset: str | None
    request_id: int | None
    body: str


@dataclass(frozen=True)
class LogFilter:
    """Which links are wanted; every field narrows, None leaves it open.

    Attributes:
        kind: how the kind begins, such as `ledger.`.
        mechanism: named in the body as its mechanism: requests and holds do, single instalments do not.
        since: from the first link of this moment on.
        until: up to the last link before this moment.
    """

    dataset: str | None = None
    request_id: int | None = None
    actor: str | None = None
    kind: str | None = None
    mechanism: str | None = None
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True)
class Page:
    """Links, oldest first; `next_before` asks for the page of older ones, None when there are none."""

    links: Sequence[Link]
    next_before: int | None


def page(session: Session, wanted: LogFilter, limit: int, before: int | None = None) -> Page:
    """The newest `limit` links that fit, or the newest of those with a number below `before`."""
    # What a body says is decided here, not in SQL, so then more rows are read at once than a page has.
    size = limit + 1 if wanted.mechanism is None else max(limit + 1, CHUNK)
    found: list[Link] = []
    while len(found) <= limit:
        batch = _newest(session, wanted, size, before)
        found += [link for link in batch if _names(link, wanted.mechanism)]
        if len(batch) < size:
            break
        before = batch[-1].seq
    links = found[:limit][::-1]
    return Page(links, links[0].seq if len(found) > limit else None)


def stream(session: Session, wanted: LogFilter) -> Iterator[Link]:
    """Every link that fits, oldest first, in constant memory."""
    query = _chosen(wanted)
    if wanted.kind is not None:
        query = query.where(Audit.kind.in_(_kinds(session, wanted.kind)))
    rows = session.connection().execute(query.order_by(Audit.seq), execution_options={"yield_per": CHUNK})
    with rows:
        for row in rows:
            link = Link._make(row)
            if _names(link, wanted.mechanism):
                yield link


def _newest(session: Session, wanted: LogFilter, size: int, before: int | None) -> list[Link]:
    query = _chosen(wanted)
    if before is not None:
        query = query.where(Audit.seq < before)
    if wanted.kind is None:
        rows = session.connection().execute(query.order_by(Audit.seq.desc()).limit(size))
        return [Link._make(row) for row in rows]
    kinds = _kinds(session, wanted.kind)
    if not kinds:
        return []
    # One look-up for each kind: all of them in one condition would be sorted as a whole before the first is shown.
    each = [query.where(Audit.kind == kind).order_by(Audit.seq.desc()).limit(size).subquery() for kind in kinds]
    merged = union_all(*(select(one) for one in each)).subquery()
    rows = session.connection().execute(select(merged).order_by(merged.c.seq.desc()).limit(size))
    return [Link._make(row) for row in rows]


def _chosen(wanted: LogFilter) -> Select[Any]:
    query: Select[Any] = select(*COLUMNS)
    if wanted.dataset is not None:
        query = query.where(Audit.dataset == wanted.dataset)
    if wanted.request_id is not None:
        query = query.where(Audit.request_id == wanted.request_id)
    if wanted.actor is not None:
        query = query.where(Audit.actor == wanted.actor)
    if wanted.mechanism is not None:
        query = query.where(Audit.body.contains(json.dumps(wanted.mechanism, ensure_ascii=False), autoescape=True))
    if wanted.since is not None:
        first = select(Audit.seq).where(Audit.at >= wanted.since).order_by(Audit.at, Audit.seq).limit(1)
        query = query.where(Audit.seq >= first.scalar_subquery())
    if wanted.until is not None:
        last = select(Audit.seq).where(Audit.at < wanted.until).order_by(Audit.at.desc(), Audit.seq.desc()).limit(1)
        query = query.where(Audit.seq <= last.scalar_subquery())
    return query


def _kinds(session: Session, prefix: str) -> list[str]:
    """The kinds in the record that begin so, found by one look-up each in their index."""
    return [kind for (kind,) in session.connection().execute(_KINDS) if kind.startswith(prefix)]


def _names(link: Link, mechanism: str | None) -> bool:
    """Whether the body names the mechanism as one; SQL has found its text somewhere, a reason may quote it."""
    if mechanism is None:
        return True
    body = json.loads(link.body)
    named = body.get("mechanisms", [])
    return body.get("mechanism") == mechanism or (isinstance(named, list) and mechanism in named)
