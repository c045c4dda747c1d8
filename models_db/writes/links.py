"""Links for the rows of a transaction: added to the chain at its end, with a content that no caller chooses.

On PostgreSQL the write functions list in `pending_link` what they have recorded, `almoner_link` makes the links, and
the server does not commit while a row has no link (`pending_link_is_told`). On SQLite the session keeps the list in
memory, and `Database.write` makes the links. Kind, actor, dataset and words of a link come from the row, through the
view of its table.
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
        rows = session.connection().exec_driver_sql(query).mappings()
        contents.update((row["id"], row_content(table, dict(row))) for row in rows)
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
        _INSERT_LINK.execute_insert(session, {**link, "row_hash": link_hash(**link)})
        return int(last) + 1


_LINK_FUNCTION = text("SELECT almoner_link()")
_READ_HEAD = PreparedStatement("SELECT seq, hash FROM audit_head")
_INSERT_LINK = PreparedStatement("""
INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)
VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :dataset, :request_id, :body)
""")


# --- Steps of the budget on SQLite: the rows are known, so they need not be read again ------------------------------


@dataclass(frozen=True)
class BudgetStep:
    """Mechanisms, holds and entries of one attempt that were recorded together, as they were written."""

    invocations: list[dict[str, Any]]
    holds: list[dict[str, Any]]
    entries: list[dict[str, Any]]


def link_step(session: Session, actor_id: int, budget_step: BudgetStep) -> None:
    """Add the link of a step, as `almoner_step` does on PostgreSQL.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    if budget_step.invocations:
        ((request_id, dataset, actor),) = _ACTOR_OF_INVOCATION.fetch_rows(
            session, {"id": budget_step.invocations[0]["id"], "actor": actor_id}
        )
        view = hold_view(
            budget_step.invocations,
            budget_step.holds,
            _blocks_of_accounts(session, {hold["account_id"] for hold in budget_step.holds}),
        )
        kind = "hold"
    else:
        lead = {"id": budget_step.entries[0]["hold_id"], "actor": actor_id}
        ((request_id, dataset, actor, *about),) = _ACTOR_OF_HOLD.fetch_rows(session, lead)
        kind = kind_of({entry["kind"] for entry in budget_step.entries})
        view = (
            arm_view(*about)
            if kind == "arm"
            else settlement_view(about[0], [entry["kind"] for entry in budget_step.entries])
        )
    tables = (("entry", budget_step.entries), ("hold", budget_step.holds), ("invocation", budget_step.invocations))
    rows = [
        name_rows(table, {row["id"]: row_content(table, row) for row in created})
        for table, created in tables
        if created
    ]
    append_link(session, actor, f"ledger.{kind}", link_body(view, rows), dataset, request_id)


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


def _blocks_of_accounts(session: Session, accounts: set[int]) -> dict[int, int]:
    query = f"SELECT id, block FROM account WHERE id IN ({_id_list(sorted(accounts))})"  # noqa: S608
    return {number: block for number, block in session.connection().exec_driver_sql(query)}  # noqa: C416


_ACTOR_COLUMNS = "SELECT i.request_id, d.name, (SELECT p.name FROM principal p WHERE p.id = :actor)"
_REQUEST_JOINS = "JOIN request r ON r.id = i.request_id JOIN dataset d ON d.id = r.dataset_id"
_ACTOR_OF_INVOCATION = PreparedStatement(f"{_ACTOR_COLUMNS} FROM invocation i {_REQUEST_JOINS} WHERE i.id = :id")
_ACTOR_OF_HOLD = PreparedStatement(f"""
{_ACTOR_COLUMNS}, i.attempt, i.sequence, h.instalment, h.rho, h.delta
FROM hold h JOIN invocation i ON i.id = h.invocation_id {_REQUEST_JOINS} WHERE h.id = :id
""")
