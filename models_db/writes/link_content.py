"""Content and hash of a link of the chain, spelled out the same on both backends.

Content of a link of the chain about the rows that it commits to, spelled out the same on both backends. The body of a
link is canonical JSON: `rows`, which names every row that the link commits to, and their digests by table: SHA-256 over
its rows in the order of their ids, with a line feed between them. A row is spelled as canonical JSON of its columns as
text. Kind, actor, dataset and request follow from the rows, by the views of `migrations.schema.tables`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from json.encoder import encode_basestring as quoted
from types import MappingProxyType
from typing import Any

from sqlalchemy import Boolean, Integer

import models_db.tables  # noqa: F401  (it fills the metadata)
from models_db.database.base import Base
from models_db.values.canonical_json import Json


def link_hash(
    seq: int, prev_hash: str, at: str, actor: str, kind: str, dataset: str | None, request_id: int | None, body: str
) -> str:
    """Return the SHA-256 hash of a link, as `Audit.computed_hash` does.

    Raises:
        TypeError: a value is of another type than its column's.
    """
    spelled = (
        f'{{"actor":{quoted(actor)},"at":{quoted(at)},"body":{quoted(body)},'
        f'"dataset":{"null" if dataset is None else quoted(dataset)},"kind":{quoted(kind)},'
        f'"prev_hash":{quoted(prev_hash)},"request_id":{"null" if request_id is None else request_id},"seq":"{seq}"}}'
    )
    return hashlib.sha256(spelled.encode()).hexdigest()


DERIVED_COLUMNS = {
    "account": ("rho_cap", "delta_cap", "rho_held", "rho_spent", "delta_held", "delta_spent", "last_entry_id"),
}
"""Columns that follow from other rows: the caps of an account from its first claim and the carried proposals, its
counters from its entries."""
EXEMPT_COLUMNS = {
    "audit": "it is the chain",
    "audit_head": "it is compared with the last link",
    "lease": "a heartbeat, which says who is believed to be alive: `attempt` is compared with the steps of the request,"
    " the others change while a run lives and decide nothing",
    "pending_link": "it is empty, and whatever is in it is a finding",
    **dict.fromkeys(
        ("planned_release", "planned_block", "planned_invocation", "planned_instalment"),
        "the database writes them from the request's text, to which a link commits; they are compared with that",
    ),
    "unit_mark": "each claim of units has a digest of its marks, and a link commits to that",
}
"""Tables whose rows no link names, with the reason."""
LINKED_TABLES = frozenset(Base.metadata.tables) - frozenset(EXEMPT_COLUMNS)

_BOOLEAN_TEXTS = {0: '"false"', 1: '"true"'}


def row_content(table: str, row: Mapping[str, Any]) -> str:
    """Return a row of a table as the digest of its link covers it, from its columns as the database has them."""
    left_out = DERIVED_COLUMNS.get(table, ())
    types = column_types(table)
    spelled = (
        f"{quoted(name)}:{_spell_value(row[name], types.get(name))}" for name in sorted(row) if name not in left_out
    )
    return "{" + ",".join(spelled) + "}"


@cache
def column_types(table: str) -> Mapping[str, type]:
    """Return which columns of a table are bool or int; all others are text."""
    kinds = {column.name: column.type for column in Base.metadata.tables[table].columns}
    typed = {name: bool if isinstance(kind, Boolean) else int for name, kind in kinds.items()
             if isinstance(kind, Boolean | Integer)}  # fmt: skip
    return MappingProxyType(typed)


def _spell_value(value: Any, column: type | None) -> str:
    """Return a value as text; one of another type than its column's, which SQLite keeps, as no text is spelled."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return quoted(value) if column is None else f'["text",{quoted(value)}]'
    if column is bool and isinstance(value, int) and value in _BOOLEAN_TEXTS:
        return _BOOLEAN_TEXTS[value]
    if isinstance(value, bytes):
        return str(as_text(value))
    return f'["real","{value}"]' if isinstance(value, float) else f'"{value}"'


def as_text(value: Any) -> Any:
    """A value, and in place of bytes where text belongs, which SQLite keeps, something that no text is spelled like."""
    return f'["{value.hex()}"]' if isinstance(value, bytes) else value


def digest_of_contents(contents: Iterable[str]) -> str:
    """Return the digest of rows that are spelled out, in the order of their ids."""
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()


def name_rows(table: str, first: int, last: int, content: str) -> dict[str, Json]:
    """Return the entry of a link for rows of one table.

    Args:
        content: the digest of the rows.
    """
    return {"table": table, "ids": str(first) if first == last else f"{first}-{last}", "content": content}


def link_fields(views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return kind, actor, dataset and request of a link.

    Args:
        views: `link_of_<table>` for the last row of each table, in the order of their names.
    """
    lowest = min(view["rank"] for view in views)
    leading = [view for view in views if view["rank"] == lowest]
    fields = {
        name: next((view[name] for view in leading if view[name] is not None), None)
        for name in ("actor", "dataset", "request_id")
    }
    return {
        **fields,
        "actor": fields["actor"] or "unknown",
        "kind": "+".join(sorted({view["kind"] for view in leading})),
    }
