"""Reader of the audit log: links, and the rows that they name.

It reads a page of links from the newest back, or a stream of all links. Rows come as plain tuples,
because a page must cost little more than its bare SELECT. Times never go back along the chain (`verify_chain` shows
where a clock did), so a span of time is a span of numbers: its two ends are looked up in the index of times, and the
page itself comes from an index that ends in the number.

The rows that a link names, and what they say; bounded, because a hostile writer may have put in anything. What is read
of a row is what it says now; `models_db.services.verification.verify_rows` compares it with the link.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from models_db.database.base import Base
from models_db.values.canonical_json import InvalidJson, parse_json
from models_db.writes.link_content import DERIVED_COLUMNS, LINKED_TABLES, as_text, column_types

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


MOST_BODY_BYTES = 1_000_000
"""A longer body is not parsed."""
MOST_ID = 2**63 - 1
"""The last number that a row can have."""
MOST_ROWS = 100
"""Largest number of rows of one table that a reader of a link gets; `ids` in its body names all."""
_IDS_PATTERN = re.compile(r"(0|[1-9]\d{0,18})(?:-([1-9]\d{0,18}))?")


def parse_body(text: object) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None if it is unreadable: no object, too long, too deep, or a number too long.

    Also unreadable are what is no text (SQLite keeps bytes in a column of text), an object with a key twice, and text
    that no file can hold, such as half of a surrogate pair.
    """
    if not isinstance(text, str):
        return None
    try:
        body = parse_json(text, most_bytes=MOST_BODY_BYTES)
    except InvalidJson:
        return None
    return body if isinstance(body, dict) else None


@dataclass(frozen=True)
class NamedRows:
    """Rows of one table, as a link names them."""

    table: str
    first: int
    last: int
    content: str

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.last - self.first + 1

    @property
    def numbers(self) -> range:
        """The ids."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.table} {self.first}" if self.size == 1 else f"{self.table} {self.first}-{self.last}"


def named_rows(body: Mapping[str, Any]) -> tuple[NamedRows, ...]:
    """Return the rows that the body of a link names; none if it is not written as almoner writes it."""
    rows = body.get("rows")
    named = [_named_once(row) for row in rows] if isinstance(rows, list) and len(rows) <= len(LINKED_TABLES) else []
    return () if None in named else tuple(row for row in named if row is not None)


def _named_once(row: Any) -> NamedRows | None:
    """Return the rows of one table that a link names; None if that is not written as almoner writes it."""
    if not isinstance(row, dict) or set(row) != {"table", "ids", "content"}:
        return None
    table, ids, digest = row["table"], row["ids"], row["content"]
    if not all(isinstance(value, str) for value in (table, ids, digest)) or table not in LINKED_TABLES:
        return None
    if (written := _IDS_PATTERN.fullmatch(ids)) is None:
        return None
    first, last = int(written[1]), int(written[2] or written[1])
    return NamedRows(table, first, last, digest) if first <= last <= MOST_ID else None


# --- What rows say ---------------------------------------------------------------------------------------------------

Details = list[dict[str, Any]]

_JOINED = {
    "role_revocation": "g.role, g.principal_id FROM role_revocation x JOIN role_grant g ON g.id = x.grant_id",
    "passkey_end": "k.principal_id FROM passkey_end x JOIN passkey k ON k.id = x.passkey_id",
    "policy_adoption": "v.digest FROM policy_adoption x JOIN policy_version v ON v.id = x.policy_id",
    "withdrawal": "a.gate, a.proposal_id, a.approver_id FROM withdrawal x JOIN approval a ON a.id = x.approval_id",
    "carried": "m.kind, m.digest FROM carried x JOIN proposal m ON m.id = x.proposal_id",
    "hold": "i.sequence, i.mechanism, a.block FROM hold x JOIN invocation i ON i.id = x.invocation_id"
            " JOIN account a ON a.id = x.account_id",
    "entry": "i.attempt, i.sequence, i.mechanism, h.instalment, h.rho, h.delta, a.block FROM entry x"
             " JOIN hold h ON h.id = x.hold_id JOIN invocation i ON i.id = h.invocation_id"
             " JOIN account a ON a.id = h.account_id",
    "publication": "f.digest AS artifact FROM publication x JOIN artifact f ON f.id = x.artifact_id",
    "erasure_end": "e.reason FROM erasure_end x JOIN erasure e ON e.id = x.erasure_id",
}  # fmt: skip
"""Columns of other rows without which a row says little."""
_LEFT_OUT = frozenset((
    "id", "at", "created_at", "request_id", "dataset_id", "account_id", "hold_id", "invocation_id", "salt", "canonical",
    "body", "proposal.configuration", "choices", "event", "libraries", "files", "result", "attestation", "assertion",
    "attacks", "credential_id", "nonce", "idem_key", "unit_mark", "source_mark", "manifest_mark",
    *DERIVED_COLUMNS["account"],
))  # fmt: skip
"""Columns that nobody reads in a list, or that the link says itself. A salt is secret."""
_PEOPLE = {
    column.name for table in Base.metadata.tables.values() for column in table.c
    if any(key.column.table.name == "principal" for key in column.foreign_keys)
}  # fmt: skip


def details_of_links(session: Session, links: Iterable[LoggedLink]) -> dict[int, Details | None]:
    """Return what the rows of links say, by the number of the link; None of one that no reader can parse.

    A row is its table, its id, and its columns by name: people by their names, and nothing that the link says itself.
    """
    bodies = {link.seq: (link, parse_body(link.body)) for link in links}
    rows = {seq: () if body is None else named_rows(body) for seq, (_, body) in bodies.items()}
    ids: dict[str, set[int]] = {}
    for each in (each for named in rows.values() for each in named):
        ids.setdefault(each.table, set()).update(each.numbers[:MOST_ROWS])
    people = {number: as_text(name) for number, name in session.execute(_PEOPLE_QUERY)}
    found = {table: _read_rows(session, table, numbers) for table, numbers in ids.items()}
    return {
        seq: None if body is None else [
            {"table": each.table, "id": number} | _said(each.table, found[each.table][number], link.actor, people)
            for each in rows[seq] for number in each.numbers[:MOST_ROWS] if number in found[each.table]
        ]
        for seq, (link, body) in bodies.items()
    }  # fmt: skip


_PEOPLE_QUERY = text("SELECT id, name FROM principal")


def _read_rows(session: Session, table: str, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    among = ", ".join(str(number) for number in sorted(ids))
    query = f"SELECT x.*, {_JOINED[table]}" if table in _JOINED else f"SELECT x.* FROM {table} x"  # noqa: S608
    return {row["id"]: dict(row) for row in session.execute(text(f"{query} WHERE x.id IN ({among})")).mappings()}


def _said(table: str, row: Mapping[str, Any], actor: str, people: Mapping[Any, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    types = column_types(table)
    for name, value in row.items():
        left_out = name in _LEFT_OUT or f"{table}.{name}" in _LEFT_OUT
        if value is None or left_out or name.startswith(("remove_", "add_", "renyi_limit_")):
            continue
        if name in _PEOPLE:
            if people.get(value) != actor:
                said[name.removesuffix("_id")] = people.get(value, value)
        else:
            boolean = types.get(name) is bool and value in (0, 1)
            said[name] = bool(value) if boolean else as_text(value)
    return said
