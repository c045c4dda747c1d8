"""Content of a link of the chain about the rows that it commits to, spelled out the same on both backends.

The views are in `migrations.schema.links`.

The body of a link is canonical JSON: what people read, from the view `link_of_<table>`, and `rows`, which names every
row that the link commits to. `row_content` is SHA-256 over the rows of a table in the order of their ids, with a line
feed between them; a row is spelled as canonical JSON of its columns as text.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from json.encoder import encode_basestring as quoted
from types import MappingProxyType
from typing import Any

from sqlalchemy import Boolean, Integer

from models_db.database.base import Base
from models_db.values.canonical_json import Json, encode_canonical

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

LEADING_TABLES = (
    "approval", "artifact", "assignment_exposure", "carried", "checkpoint", "cohort", "dataset",
    "dataset_version", "delivery", "erasure", "erasure_end", "internal_view", "passkey", "passkey_end", "proposal",
    "policy_adoption", "principal",
    "publication", "rehearsal", "request", "restoration", "role_grant", "role_revocation", "schedule",
    "schedule_change",
    "schedule_slot", "slot_end", "twin_attack", "withdrawal",
)  # fmt: skip
FOLLOWING_TABLES = (
    "account", "transition", "evaluation", "policy_version", "unit_claim", "standing_use", "policy_rule",
    "invocation", "hold", "entry", "erased_version", "renyi_charge", "overlap_key",
)  # fmt: skip
TABLE_RANKS = {
    **dict.fromkeys(LEADING_TABLES, 1),
    **{table: number for number, table in enumerate(FOLLOWING_TABLES, 2)},
}
"""Ranks of tables: the rows of lowest rank in a transaction have a link each; see `migrations.schema`."""
BLOCK_RANK = len(TABLE_RANKS) + 2

_BOOLEAN_TEXTS = {0: '"false"', 1: '"true"'}
_LINK_COLUMNS = ("row_id", "link_kind", "link_actor", "link_dataset", "link_request")


def row_content(table: str, row: Mapping[str, Any]) -> str:
    """Return a row of a table as the digest of its link covers it, from its columns as the database has them."""
    left_out = DERIVED_COLUMNS.get(table, ())
    types = _column_types(table)
    spelled = (
        f"{quoted(name)}:{_spell_value(row[name], types.get(name))}" for name in sorted(row) if name not in left_out
    )
    return "{" + ",".join(spelled) + "}"


@cache
def _column_types(table: str) -> Mapping[str, type]:
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


def encode_ranges(ids: Iterable[int]) -> str:
    """Encode numbers as ranges: '3-7,9'."""
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def name_rows(table: str, rows: Mapping[int, str]) -> dict[str, Json]:
    """Return the entry of a link for some rows of one table, by id."""
    return {
        "table": table,
        "ids": encode_ranges(rows),
        "content": digest_of_contents(rows[number] for number in sorted(rows)),
    }


def link_body(view: Mapping[str, Any], rows: Sequence[Mapping[str, Json]]) -> str:
    """Return the body of a link: the non-empty columns of its view, and its rows."""
    body: dict[str, Json] = {
        name: as_text(value) for name, value in view.items() if value is not None and name not in _LINK_COLUMNS
    }
    for name in ("several_roles", "governed"):  # a number on SQLite
        if body.get(name) in (0, 1):
            body[name] = bool(body[name])
    return encode_canonical({**body, "rows": list(rows)}).decode()
