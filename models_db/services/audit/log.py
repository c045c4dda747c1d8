"""Reading the record: a page of links from the newest back, or all of them in a stream.

Rows come as plain tuples, because a page must cost little more than its bare SELECT. Times never go back along the
chain (`audit_check` shows where a clock did), so a span of time is a span of numbers: its two ends are looked up in
the index of times, and the page itself comes from an index that ends in the number.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from models_db.services.audit.link_body import parse_body
from models_db.writes.link_content import as_text

CHUNK = 1000

_CONDITIONS = {
    "dataset": "dataset = :dataset",
    "request_id": "request_id = :request_id",
    "actor": "actor = :actor",
    "mechanism": "body LIKE :mechanism ESCAPE '/'",
    "since": "seq >= (SELECT seq FROM audit WHERE at >= :since ORDER BY at, seq LIMIT 1)",
    "until": "seq <= (SELECT seq FROM audit WHERE at < :until ORDER BY at DESC, seq DESC LIMIT 1)",
}

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


def as_link(row: Sequence[Any]) -> Link:
    """One link from its row.

    SQLite keeps bytes in a column of text; they are spelled as a list of their digits, which no body of a link is.
    """
    return Link._make(map(as_text, row))


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
    for chunk in chunks(session, wanted):
        yield from (link for link in chunk if _names(link, wanted.mechanism))


def chunks(session: Session, wanted: LogFilter) -> Iterator[list[Link]]:
    """The same some at a time; of a mechanism, every link whose body has its name anywhere."""
    where, values = _conditions(wanted)
    if wanted.kind is not None:
        kinds = _kinds(session, wanted.kind)
        where, values = (*where, f"kind IN ({', '.join(f':{name}' for name in kinds) or 'NULL'})"), values | kinds
    query = _statement(_select(where))
    streaming = {"yield_per": CHUNK, "stream_results": True}
    with session.connection().execute(query, values, execution_options=streaming) as rows:
        for chunk in rows.partitions(CHUNK):
            yield [as_link(row) for row in chunk]


def _newest(session: Session, wanted: LogFilter, size: int, before: int | None) -> list[Link]:
    where, values = _conditions(wanted)
    if before is not None:
        where, values = (*where, "seq < :before"), values | {"before": before}
    kinds = _kinds(session, wanted.kind)
    # One look-up for each kind: all of them in one condition would be sorted as a whole before the first is shown.
    each = [_select((*where, f"kind = :{name}"), newest=True) for name in kinds] or [_select(where, newest=True)]
    if wanted.kind is not None and not kinds:
        return []
    merged = " UNION ALL ".join(f"SELECT * FROM ({one}) one{number}" for number, one in enumerate(each))  # noqa: S608
    query = f"{merged} ORDER BY seq DESC LIMIT :size" if len(each) > 1 else each[0]
    rows = session.connection().execute(_statement(query), values | kinds | {"size": size})
    return [as_link(row) for row in rows]


@lru_cache(maxsize=64)
def _statement(query: str) -> TextClause:
    return text(query)


def _select(where: Sequence[str], *, newest: bool = False) -> str:
    """Put together by hand, because building the expression would cost as much as the page; every value is bound."""
    among = f" WHERE {' AND '.join(where)}" if where else ""
    order = "seq DESC LIMIT :size" if newest else "seq"
    return f"SELECT {', '.join(Link._fields)} FROM audit{among} ORDER BY {order}"  # noqa: S608


def _conditions(wanted: LogFilter) -> tuple[tuple[str, ...], dict[str, Any]]:
    values = {name: value for name in _CONDITIONS if (value := getattr(wanted, name)) is not None}
    if wanted.mechanism is not None:
        named = json.dumps(wanted.mechanism, ensure_ascii=False)
        values["mechanism"] = "%" + re.sub("([%_/])", r"/\1", named) + "%"
    return tuple(_CONDITIONS[name] for name in values), values


def _kinds(session: Session, prefix: str | None) -> dict[str, str]:
    """The kinds in the record that begin so, by the name of a parameter; one look-up each in their index finds them."""
    if prefix is None:
        return {}
    found = (kind for (kind,) in session.connection().execute(_KINDS) if str(kind).startswith(prefix))
    return {f"kind{number}": kind for number, kind in enumerate(found)}


def _names(link: Link, mechanism: str | None) -> bool:
    """Whether the body names the mechanism as one; SQL has found its text somewhere, a reason may quote it."""
    if mechanism is None:
        return True
    body = parse_body(link.body) or {}
    named = body.get("mechanisms", [])
    return body.get("mechanism") == mechanism or (isinstance(named, list) and mechanism in named)
