"""Reader of the audit log: a page of links from the newest back, or a stream of all links.

Rows come as plain tuples, because a page must cost little more than its bare SELECT. Times never go back along the
chain (`verify_chain` shows where a clock did), so a span of time is a span of numbers: its two ends are looked up in
the index of times, and the page itself comes from an index that ends in the number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from models_db.writes.link_content import as_text

CHUNK_LINKS = 1000

_CONDITIONS = {
    "dataset": "dataset = :dataset",
    "request_id": "request_id = :request_id",
    "actor": "actor = :actor",
    "mechanism": "request_id IN (SELECT i.request_id FROM invocation i WHERE i.mechanism = :mechanism"
    " UNION SELECT r.id FROM request r WHERE {system} = :mechanism)",
    "since": "seq >= (SELECT seq FROM audit WHERE at >= :since ORDER BY at, seq LIMIT 1)",
    "until": "seq <= (SELECT seq FROM audit WHERE at < :until ORDER BY at DESC, seq DESC LIMIT 1)",
}

_SYSTEM = {
    "sqlite": "CASE WHEN json_valid(r.canonical) THEN json_extract(r.canonical, '$.mechanism') END",
    "postgresql": "CASE WHEN r.canonical IS JSON OBJECT THEN r.canonical::json ->> 'mechanism' END",
}
"""The system of a request; its text may have been altered."""

KINDS = (
    "account.opened", "assignment.exposed", "attack.public_twin", "backup.restored",
    "checkpoint.recorded", "cohort.opened", "dataset.erased", "dataset.erasure_ended",
    "dataset.ingested", "dataset.registered",
    "evaluation.charged", "evaluation.internal", "evaluation.public", "evaluation.shown", "key.committed", "ledger.arm",
    "ledger.charged", "ledger.commit", "ledger.forfeit", "ledger.hold",
    "ledger.release", "passkey.registered",
    "passkey.revoked", "policy.adopted", "policy.recorded", "principal.enrolled", "proposal.approval_withdrawn",
    "proposal.approve", "proposal.carried", "proposal.proposed", "proposal.reject", "release.delivered",
    "release.published", "release.rehearsed", "request.approval_withdrawn", "request.approve", "request.moved",
    "request.reject", "request.submitted", "request.withdrawn", "role.granted", "role.revoked", "run.failed",
    "run.produced", "run.started", "schedule.changed", "schedule.created",
    "slot.decided", "slot.ended", "units.claimed",
)  # fmt: skip
"""What links say that happened, in this version; tests/contracts/test_audit_log.py compares them with the schema. The
kind of a link is one of them, or several with `+` between them."""

_EVERY_KIND = text("""
WITH RECURSIVE found(kind) AS (
    SELECT min(kind) FROM audit
    UNION ALL
    SELECT (SELECT min(a.kind) FROM audit a WHERE a.kind > found.kind) FROM found WHERE found.kind IS NOT NULL)
SELECT kind FROM found WHERE kind IS NOT NULL
""")


class LoggedLink(NamedTuple):
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


def as_link(row: Sequence[Any]) -> LoggedLink:
    """Return one link from its row.

    SQLite keeps bytes in a column of text; they are spelled as a list of their digits, which no body of a link is.
    """
    return LoggedLink._make(map(as_text, row))


@dataclass(frozen=True)
class LogFilter:
    """Filter of links; every field narrows, None leaves it open.

    Attributes:
        kind: how one of its kinds begins, such as `ledger.`.
        mechanism: every link of the requests by this system, or that have invoked this mechanism.
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
class LogPage:
    """Links, oldest first; `next_before` asks for the page of older ones, None when there are none."""

    links: Sequence[LoggedLink]
    next_before: int | None


def read_page(session: Session, log_filter: LogFilter, limit: int, before: int | None = None) -> LogPage:
    """Return the newest `limit` links that fit, or the newest of those with a number below `before`."""
    links = _newest_links(session, log_filter, limit + 1, before)
    page = links[:limit][::-1]
    return LogPage(page, page[0].seq if len(links) > limit else None)


def stream_links(session: Session, log_filter: LogFilter) -> Iterator[LoggedLink]:
    """Yield every link that fits, oldest first, in constant memory."""
    for chunk in stream_chunks(session, log_filter):
        yield from chunk


def stream_chunks(session: Session, log_filter: LogFilter) -> Iterator[list[LoggedLink]]:
    """Yield every link that fits, oldest first, in chunks."""
    where, values = _filter_conditions(session, log_filter)
    if log_filter.kind is not None:
        kinds = _kinds_with_prefix(session, log_filter.kind)
        where, values = (*where, f"kind IN ({', '.join(f':{name}' for name in kinds) or 'NULL'})"), values | kinds
    query = _compile_statement(_select_links(where))
    streaming = {"yield_per": CHUNK_LINKS, "stream_results": True}
    with session.connection().execute(query, values, execution_options=streaming) as rows:
        for chunk in rows.partitions(CHUNK_LINKS):
            yield [as_link(row) for row in chunk]


def _newest_links(session: Session, log_filter: LogFilter, size: int, before: int | None) -> list[LoggedLink]:
    where, values = _filter_conditions(session, log_filter)
    if before is not None:
        where, values = (*where, "seq < :before"), values | {"before": before}
    kinds = _kinds_with_prefix(session, log_filter.kind)
    # One look-up for each kind: all of them in one condition would be sorted as a whole before the first is shown.
    selects = [_select_links((*where, f"kind = :{name}"), newest=True) for name in kinds] or [
        _select_links(where, newest=True)
    ]
    if log_filter.kind is not None and not kinds:
        return []
    merged = " UNION ALL ".join(f"SELECT * FROM ({query}) one{number}" for number, query in enumerate(selects))  # noqa: S608
    query = f"{merged} ORDER BY seq DESC LIMIT :size" if len(selects) > 1 else selects[0]
    rows = session.connection().execute(_compile_statement(query), values | kinds | {"size": size})
    return [as_link(row) for row in rows]


@lru_cache(maxsize=64)
def _compile_statement(query: str) -> TextClause:
    return text(query)


def _select_links(where: Sequence[str], *, newest: bool = False) -> str:
    """Put together by hand, because building the expression would cost as much as the page; every value is bound."""
    among = f" WHERE {' AND '.join(where)}" if where else ""
    order = "seq DESC LIMIT :size" if newest else "seq"
    return f"SELECT {', '.join(LoggedLink._fields)} FROM audit{among} ORDER BY {order}"  # noqa: S608


def _filter_conditions(session: Session, log_filter: LogFilter) -> tuple[tuple[str, ...], dict[str, Any]]:
    values = {name: value for name in _CONDITIONS if (value := getattr(log_filter, name)) is not None}
    system = _SYSTEM[session.get_bind().dialect.name]
    return tuple(_CONDITIONS[name].replace("{system}", system) for name in values), values


def _kinds_with_prefix(session: Session, prefix: str | None) -> dict[str, str]:
    """Return the kinds of links of which a part has a prefix, by parameter name; each takes one look-up."""
    if prefix is None:
        return {}
    kinds = (kind for (kind,) in session.connection().execute(_EVERY_KIND))
    fitting = (kind for kind in kinds if any(part.startswith(prefix) for part in str(kind).split("+")))
    return {f"kind{number}": kind for number, kind in enumerate(fitting)}
