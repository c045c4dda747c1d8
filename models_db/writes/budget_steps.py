"""Steps of the budget: mechanisms, holds and entries, written to the ledger together with their link.

On PostgreSQL a step is one call of a function made for it; on SQLite it is written a row at a time. The guards are
checked in the same order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.database.prepared_statements import PreparedStatement
from models_db.writes.insert import Values, on_postgresql, translate_refusals
from models_db.writes.json_depth import require_shallow
from models_db.writes.links import BudgetStep, link_step


@dataclass(frozen=True)
class PlannedHold:
    """Mechanism to record, and its holds: account, instalment, rho and delta of each."""

    invocation: Mapping[str, Any]
    holds: Sequence[tuple[int, int, int, int]]


def reserve(session: Session, actor_id: int, plan: Sequence[PlannedHold]) -> None:
    """Record mechanisms, their holds, an entry HOLD for each of these, and the link.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        if on_postgresql(session):
            _RESERVE_FUNCTION.fetch_rows(session, {**encode_plan(plan), "at": utc_now(), "actor": actor_id})
            return
        step = BudgetStep([], [], [])
        for planned in plan:
            _reserve_invocation(session, actor_id, planned, step)
        link_step(session, actor_id, step)


def record_entries(session: Session, actor_id: int, entries: Sequence[tuple[int, str]]) -> None:
    """Record entries, each a hold and its step, and the link.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        if on_postgresql(session):
            hold_rows = {
                "holds": encode_array(hold for hold, _ in entries),
                "kinds": encode_array(kind for _, kind in entries),
            }
            _ENTER_FUNCTION.fetch_rows(session, {**hold_rows, "at": utc_now(), "actor": actor_id})
            return
        entry_rows = [_insert_entry(session, actor_id, hold, kind) for hold, kind in entries]
        link_step(session, actor_id, BudgetStep([], [], entry_rows))


def _reserve_invocation(session: Session, actor_id: int, planned: PlannedHold, step: BudgetStep) -> None:
    require_shallow("invocation", planned.invocation)
    invocation = {**planned.invocation, "created_at": utc_now(), "created_by": actor_id}
    number = _INSERT_INVOCATION.execute_insert(session, invocation)
    step.invocations.append({**invocation, "id": number})
    for account, instalment, rho, delta in planned.holds:
        hold = {"invocation_id": number, "account_id": account, "instalment": instalment, "rho": rho, "delta": delta}
        hold_id = _INSERT_HOLD.execute_insert(session, hold)
        step.holds.append({**hold, "id": hold_id})
        step.entries.append(_insert_entry(session, actor_id, hold_id, "HOLD"))


def _insert_entry(session: Session, actor_id: int, hold: int, kind: str) -> Values:
    entry = {"hold_id": hold, "kind": kind, "at": utc_now(), "actor_id": actor_id}
    return {**entry, "id": _INSERT_ENTRY.execute_insert(session, entry)}


_INSERT_INVOCATION = PreparedStatement("""
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
VALUES (:request_id, :attempt, :sequence, :mechanism, :event, :relation, :rng_kind, :device, :code_digest,
        :libraries, :idem_key, :created_at, :created_by)
""")
_INSERT_HOLD = PreparedStatement("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
VALUES (:invocation_id, :account_id, :instalment, :rho, :delta)
""")
_INSERT_ENTRY = PreparedStatement(
    "INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (:hold_id, :kind, :at, :actor_id)"
)


def encode_plan(plan: Sequence[PlannedHold]) -> Values:
    """Return a plan as arguments of the hold function: its invocations, and its holds as parallel arrays."""
    holds = [(number, *hold) for number, planned in enumerate(plan, 1) for hold in planned.holds]
    places, accounts, instalments, rhos, deltas = map(encode_array, zip(*holds, strict=True)) if holds else ["{}"] * 5
    plans = json.dumps([dict(planned.invocation) for planned in plan])
    return {"plan": plans, "places": places, "accounts": accounts, "instalments": instalments, "rhos": rhos,
            "deltas": deltas}  # fmt: skip


def encode_array(values: Iterable[int | str]) -> str:
    """Encode numbers or plain words as an array literal of PostgreSQL."""
    return f"{{{','.join(map(str, values))}}}"


_ENTER_FUNCTION = PreparedStatement("""
SELECT almoner_enter(:holds, :kinds, :at, :actor)
""")
_RESERVE_FUNCTION = PreparedStatement("""
SELECT almoner_reserve(CAST(:plan AS jsonb), :places, :accounts, :instalments, :rhos, :deltas,
:at, :actor)
""")
