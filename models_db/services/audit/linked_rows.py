"""The rows that a link names, and what they say; bounded, because a hostile writer may have put in anything.

What is read of a row is what it says now; `models_db.services.verification.verify_rows` compares it with the link.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.database.base import Base
from models_db.services.audit.log import LoggedLink
from models_db.values.bounded_json import InvalidJson, parse_json
from models_db.writes.link_content import DERIVED_COLUMNS, LINKED_TABLES, as_text, column_types

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
