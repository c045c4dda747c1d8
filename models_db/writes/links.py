"""Links for the rows of a transaction: added to the chain at its end, with a content that no caller chooses.

On PostgreSQL triggers note new rows in `pending_link`, `almoner_link` makes the links, and the server does not commit
what a login has added while a row has no link (`pending_link_is_told`). On SQLite the session keeps the list in memory,
and `Database.write` makes the links. Kind, actor, dataset and words of a link come from the row, through the view of
its table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.database.prepared_statements import PreparedStatement
from models_db.values.canonical_json import Json, encode_canonical
from models_db.writes.database_errors import translate_database_errors
from models_db.writes.link_content import link_body, name_rows, row_content
from models_db.writes.link_hash import link_hash
from models_db.writes.pending_links import PendingRow, group_by_link, take_pending
from models_db.writes.unit_claims import close_claims

ID_BATCH = 5_000


def record_links(session: Session) -> int | None:
    """Add links for the recorded rows of the transaction. Returns the number of the last link, None without one.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    pending = take_pending(session)
    if not pending:
        return None
    if session.get_bind().dialect.name == "postgresql":
        with translate_database_errors():
            count: int | None = session.execute(_LINK_FUNCTION).scalar()
            return count
    close_claims(session)
    return [_append_group(session, group) for group in group_by_link(pending)][-1]


def _append_group(session: Session, group: Sequence[PendingRow]) -> int:
    lead, *others = group
    view = dict(view_of(session, lead.table, [lead.id])[lead.id])
    rows = [name_rows(lead.table, row_contents(session, lead.table, [lead.id]))]
    for table in sorted({row.table for row in others}):
        rows += [name_rows(table, row_contents(session, table, [row.id for row in others if row.table == table]))]
    body = link_body(view, rows)
    return append_link(session, view["link_actor"], view["link_kind"], body, view["link_dataset"], view["link_request"])


def view_of(session: Session, table: str, ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return the views of some rows of a table for their links, by id."""
    query = f"SELECT * FROM link_of_{table} WHERE row_id IN ({_id_list(ids)})"  # noqa: S608  (names and integers)
    rows = session.connection().exec_driver_sql(query).mappings()
    return {row["row_id"]: _with_request_fields(dict(row)) for row in rows}


def _with_request_fields(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add three fields of a request, which the view of PostgreSQL reads by itself."""
    if "asked" not in row:
        return row
    fields = {name: value for name, value in row.items() if name != "asked"}
    try:
        body = json.loads(row["asked"])
    except (TypeError, ValueError, RecursionError):  # altered: no link says so
        return fields
    request_fields = (
        {name: body.get(name) for name in ("kind", "mechanism", "epsilon")} if isinstance(body, dict) else {}
    )
    return fields | {name: _value_text(value) for name, value in request_fields.items() if value is not None}


def _value_text(value: Any) -> str:
    return (value if isinstance(value, str) else encode_canonical(value).decode())[:255]


def row_contents(session: Session, table: str, ids: Sequence[int]) -> dict[int, str]:
    """Return the contents of some rows of a table, by id."""
    contents: dict[int, str] = {}
    for first in range(0, len(ids), ID_BATCH):
        query = f"SELECT * FROM {table} WHERE id IN ({_id_list(ids[first : first + ID_BATCH])})"  # noqa: S608  (as above)
        contents.update(
            (row["id"], row_content(table, row)) for row in PreparedStatement(query).fetch_mappings(session)
        )
    return contents


def _id_list(ids: Sequence[int]) -> str:
    return ", ".join(str(int(number)) for number in ids) or "NULL"


def append_link(session: Session, actor: str, kind: str, body: str, dataset: str | None, request_id: int | None) -> int:
    """Add a link, on SQLite only.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    with translate_database_errors():
        ((last, previous),) = _READ_HEAD.fetch_rows(session, {})
        link: dict[str, Any] = {"seq": last + 1, "prev_hash": previous, "at": utc_now(), "actor": actor, "kind": kind,
                                "dataset": dataset, "request_id": request_id, "body": body}  # fmt: skip
        _INSERT_LINK.execute(session, {**link, "row_hash": link_hash(**link)})
        return int(last) + 1


_LINK_FUNCTION = text("SELECT almoner_link()")
_READ_HEAD = PreparedStatement("SELECT seq, hash FROM audit_head")
_INSERT_LINK = PreparedStatement("""
INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)
VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :dataset, :request_id, :body)
""")


# --- Steps of the budget ---------------------------------------------------------------------------------------------


def link_step(session: Session, *, invocations: Sequence[int] = (), entries: int = 0) -> None:
    """Add the link of a step: of some new mechanisms with their holds and entries, or of the newest entries.

    Args:
        invocations: the ids of the mechanisms.
        entries: the number of entries, where the step has no mechanism.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(_STEP_FUNCTION)
        return
    ids: dict[str, list[int]] = {}
    if invocations:
        ids["hold"] = _ids(session, f"SELECT h.id FROM hold h WHERE h.invocation_id IN ({_id_list(invocations)})")  # noqa: S608
        ids["entry"] = _ids(session, f"SELECT e.id FROM entry e WHERE e.hold_id IN ({_id_list(ids['hold'])})")  # noqa: S608
        ids["invocation"] = list(invocations)
    else:
        ids["entry"] = _ids(session, f"SELECT e.id FROM entry e ORDER BY e.id DESC LIMIT {int(entries)}")  # noqa: S608
    fields = BudgetSteps.load(session, ids["entry"], invocations).link_fields(sorted(ids["entry"]), invocations)
    rows = [name_rows(table, row_contents(session, table, ids[table])) for table in _STEP_TABLES if ids.get(table)]
    if fields is not None:
        append_link(session, fields["link_actor"], fields["link_kind"], link_body(fields, rows), fields["link_dataset"],
                    fields["link_request"])  # fmt: skip


_STEP_TABLES = ("entry", "hold", "invocation")
_STEP_FUNCTION = text("SELECT almoner_link_step()")


def _ids(session: Session, query: str) -> list[int]:
    return [row[0] for row in PreparedStatement(query).fetch_rows(session, {})]


@dataclass(frozen=True)
class BudgetSteps:
    """Rows of some steps: entries with their holds and mechanisms, and mechanisms that have no entry."""

    entries: Mapping[int, Any]
    invocations: Mapping[int, Any]

    @classmethod
    def load(cls, session: Session, entries: Sequence[int], invocations: Sequence[int]) -> "BudgetSteps":
        """Load the rows with these ids."""
        return cls(_rows_by_id(session, _STEP_ENTRIES, entries), _rows_by_id(session, _STEP_INVOCATIONS, invocations))

    def link_fields(self, entries: Sequence[int], invocations: Sequence[int]) -> Mapping[str, Any] | None:
        """Return the fields of the link of a step, as `almoner_link_step` tells them; None if the rows are no step."""
        found: list[Any] = [self.entries.get(number) for number in entries]
        mechanisms: list[Any] = [self.invocations.get(number) for number in invocations]
        about = [*found, *mechanisms]
        if not about or None in about:
            return None
        kind = kind_of({entry["kind"] for entry in found}) if found else "hold"
        first = about[0]
        body = _step_body(kind, found, mechanisms)
        return {**body, "link_actor": first["actor"], "link_kind": f"ledger.{kind}", "link_dataset": first["dataset"],
                "link_request": first["request_id"]}  # fmt: skip


def _step_body(kind: str, entries: Sequence[Any], mechanisms: Sequence[Any]) -> dict[str, Json]:
    if kind == "hold":
        blocks = {entry["account_id"]: entry["block"] for entry in entries}
        invocations = mechanisms or list({entry["invocation_id"]: entry for entry in entries}.values())
        return hold_view(invocations, entries, blocks)
    first = entries[0]
    if kind == "arm":
        return arm_view(*(first[name] for name in ("attempt", "sequence", "instalment", "rho", "delta")))
    return settlement_view(first["attempt"], [entry["kind"] for entry in entries])


def kind_of(entries: set[str]) -> str:
    """Return the kind of a step by the kinds of its entries."""
    for kinds, name in ((("ARM",), "arm"), (("HOLD",), "hold"), (("RELEASE",), "release"),
                        (("COMMIT", "RELEASE"), "commit"), (("FORFEIT", "RELEASE"), "forfeit")):  # fmt: skip
        if entries <= set(kinds):
            return name
    return "mixed"


def hold_view(
    invocations: Sequence[Mapping[str, Any]], holds: Sequence[Mapping[str, Any]], blocks: Mapping[int, int]
) -> dict[str, Json]:
    """Return the view of a reservation; amounts are those of one block.

    Args:
        blocks: the numbers of the blocks among the accounts of the holds, by account.
    """
    in_sequence = sorted(invocations, key=lambda invocation: invocation["sequence"])
    mechanisms = [str(invocation["mechanism"]) for invocation in in_sequence]
    of_one = [hold for hold in holds if hold["account_id"] == min(blocks, default=None)]
    amounts: dict[str, Json] = {name: str(sum(hold[name] for hold in of_one)) for name in ("rho", "delta")}
    return {
        "attempt": invocations[0]["attempt"],
        "blocks": sorted(blocks.values()),
        "mechanisms": mechanisms,
        **amounts,
    }


def arm_view(attempt: int, sequence: int, instalment: int, rho: int, delta: int) -> dict[str, Json]:
    """Return the view of an armed instalment."""
    return {"attempt": attempt, "sequence": sequence, "instalment": instalment, "rho": str(rho), "delta": str(delta)}


def settlement_view(attempt: int, entries: Sequence[str]) -> dict[str, Json]:
    """Return the view of an attempt whose holds are closed."""
    released = sum(kind == "RELEASE" for kind in entries)
    return {"attempt": attempt, "armed_holds": len(entries) - released, "released_holds": released}


_STEP_JOINS = (
    "JOIN request r ON r.id = i.request_id JOIN dataset d ON d.id = r.dataset_id LEFT JOIN principal p ON p.id = "
)
_STEP_ENTRIES = f"""
SELECT e.id, e.kind, p.name AS actor, d.name AS dataset, i.request_id, i.attempt, i.sequence, i.mechanism,
       i.id AS invocation_id, h.account_id, h.instalment, h.rho, h.delta, a.block
  FROM entry e JOIN hold h ON h.id = e.hold_id JOIN account a ON a.id = h.account_id
  JOIN invocation i ON i.id = h.invocation_id {_STEP_JOINS} e.actor_id WHERE e.id IN """  # noqa: S608
_STEP_INVOCATIONS = f"""
SELECT i.id, p.name AS actor, d.name AS dataset, i.request_id, i.attempt, i.sequence, i.mechanism
  FROM invocation i {_STEP_JOINS} i.created_by WHERE i.id IN """  # noqa: S608


def _rows_by_id(session: Session, query: str, ids: Sequence[int]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for first in range(0, len(ids), 500):
        among = _id_list(ids[first : first + 500])
        rows.update((row["id"], row) for row in PreparedStatement(f"{query} ({among})").fetch_mappings(session))
    return rows
