"""How the budget moves: mechanisms, holds and entries go into the ledger together with their link.

One call a step on PostgreSQL, of a door made for it; on SQLite a row at a time. The guards are
asked in the same order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from models_db.database.base import moment
from models_db.database.prepared_statements import Statement
from models_db.writes.insert import Values, on_postgresql, refusals
from models_db.writes.json_depth import require_shallow
from models_db.writes.links import Step, link_step


@dataclass(frozen=True)
class Planned:
    """A mechanism to be recorded, and what is to be held for it: account, instalment, rho and delta of each hold."""

    invocation: Mapping[str, Any]
    holds: Sequence[tuple[int, int, int, int]]


def reserve(session: Session, actor_id: int, plan: Sequence[Planned]) -> None:
    """Record mechanisms, their holds, an entry HOLD for each of these, and the link.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with refusals(session):
        if on_postgresql(session):
            _RESERVE.rows(session, {**told_plan(plan), "at": moment(), "actor": actor_id})
            return
        made = Step([], [], [])
        for planned in plan:
            _reserve_one(session, actor_id, planned, made)
        link_step(session, actor_id, made)


def enter(session: Session, actor_id: int, entries: Sequence[tuple[int, str]]) -> None:
    """Record entries, each a hold and what happens to it, and the link.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with refusals(session):
        if on_postgresql(session):
            given = {"holds": array(hold for hold, _ in entries), "kinds": array(kind for _, kind in entries)}
            _ENTER.rows(session, {**given, "at": moment(), "actor": actor_id})
            return
        made = [_enter_one(session, actor_id, hold, kind) for hold, kind in entries]
        link_step(session, actor_id, Step([], [], made))


def _reserve_one(session: Session, actor_id: int, planned: Planned, made: Step) -> None:
    require_shallow("invocation", planned.invocation)
    invocation = {**planned.invocation, "created_at": moment(), "created_by": actor_id}
    number = _INVOCATION.insert(session, invocation)
    made.invocations.append({**invocation, "id": number})
    for account, instalment, rho, delta in planned.holds:
        hold = {"invocation_id": number, "account_id": account, "instalment": instalment, "rho": rho, "delta": delta}
        hold_id = _HOLD.insert(session, hold)
        made.holds.append({**hold, "id": hold_id})
        made.entries.append(_enter_one(session, actor_id, hold_id, "HOLD"))


def _enter_one(session: Session, actor_id: int, hold: int, kind: str) -> Values:
    entry = {"hold_id": hold, "kind": kind, "at": moment(), "actor_id": actor_id}
    return {**entry, "id": _ENTRY.insert(session, entry)}


_INVOCATION = Statement("""
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
VALUES (:request_id, :attempt, :sequence, :mechanism, :event, :relation, :rng_kind, :device, :code_digest,
        :libraries, :idem_key, :created_at, :created_by)
""")
_HOLD = Statement("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
VALUES (:invocation_id, :account_id, :instalment, :rho, :delta)
""")
_ENTRY = Statement("INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (:hold_id, :kind, :at, :actor_id)")


def told_plan(plan: Sequence[Planned]) -> Values:
    """What the door to holds is told of a plan: its invocations, and its holds as parallel arrays."""
    holds = [(number, *hold) for number, planned in enumerate(plan, 1) for hold in planned.holds]
    places, accounts, instalments, rhos, deltas = map(array, zip(*holds, strict=True)) if holds else ["{}"] * 5
    plans = json.dumps([dict(planned.invocation) for planned in plan])
    return {"plan": plans, "places": places, "accounts": accounts, "instalments": instalments, "rhos": rhos,
            "deltas": deltas}  # fmt: skip


def array(values: Iterable[int | str]) -> str:
    """Numbers or plain words as PostgreSQL writes an array."""
    return f"{{{','.join(map(str, values))}}}"


_ENTER = Statement("""
SELECT almoner_enter(:holds, :kinds, :at, :actor)
""")
_RESERVE = Statement("""
SELECT almoner_reserve(CAST(:plan AS jsonb), :places, :accounts, :instalments, :rhos, :deltas,
:at, :actor)
""")
