"""How the budget moves: mechanisms, holds and entries go into the ledger together with the link that tells of them.

One call a step on PostgreSQL, of a door that migration 0003 has made for it; on SQLite a row at a time. The guards are
asked in the same order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.recording import Values, append_link, on_postgresql, refusals
from models_db.wire import Statement


@dataclass(frozen=True)
class Told:
    """A link of the chain that is still to be made; `body` is canonical JSON."""

    actor_id: int
    actor: str
    kind: str
    body: str
    dataset: str
    request_id: int


@dataclass(frozen=True)
class Planned:
    """A mechanism to be recorded, and what is to be held for it: account, instalment, rho and delta of each hold."""

    invocation: Mapping[str, Any]
    holds: Sequence[tuple[int, int, int, int]]


def reserve(session: Session, plan: Sequence[Planned], told: Told) -> None:
    """Record mechanisms, their holds, an entry HOLD for each of these, and the link.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with refusals(session):
        if on_postgresql(session):
            _reserve_at_once(session, plan, told)
        else:
            for planned in plan:
                _reserve_one(session, planned, told)
            _tell(session, told)


def enter(session: Session, entries: Sequence[tuple[int, str]], told: Told) -> None:
    """Record entries, each a hold and what happens to it, and the link.

    Raises:
        Denied, OverCap, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with refusals(session):
        if on_postgresql(session):
            _enter_at_once(session, entries, told)
        else:
            for hold, kind in entries:
                _enter_one(session, hold, kind, told)
            _tell(session, told)


def _tell(session: Session, told: Told) -> None:
    append_link(session, told.actor, told.kind, told.body, told.dataset, told.request_id)


def _reserve_one(session: Session, planned: Planned, told: Told) -> None:
    made = {**planned.invocation, "created_at": moment(), "created_by": told.actor_id}
    number = _INVOCATION.insert(session, made)
    for account, instalment, rho, delta in planned.holds:
        given = {"invocation": number, "account": account, "instalment": instalment, "rho": rho, "delta": delta}
        _enter_one(session, _HOLD.insert(session, given), "HOLD", told)


def _enter_one(session: Session, hold: int, kind: str, told: Told) -> None:
    _ENTRY.insert(session, {"hold_id": hold, "kind": kind, "at": moment(), "actor_id": told.actor_id})


_INVOCATION = Statement("""
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
VALUES (:request_id, :attempt, :sequence, :mechanism, :event, :relation, :rng_kind, :device, :code_digest,
        :libraries, :idem_key, :created_at, :created_by)
""")
_HOLD = Statement("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
VALUES (:invocation, :account, :instalment, :rho, :delta)
""")
_ENTRY = Statement("INSERT INTO entry (hold_id, kind, at, actor_id) VALUES (:hold_id, :kind, :at, :actor_id)")


def _enter_at_once(session: Session, entries: Sequence[tuple[int, str]], told: Told) -> None:
    given = {"holds": array(hold for hold, _ in entries), "kinds": array(kind for _, kind in entries)}
    _ENTER.rows(session, {**given, "at": moment(), **link(told)})


def _reserve_at_once(session: Session, plan: Sequence[Planned], told: Told) -> None:
    _RESERVE.rows(session, {**told_plan(plan), "at": moment(), **link(told)})


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


def link(told: Told) -> Values:
    """What a door is told of the link."""
    return {"actor": told.actor_id, "who": told.actor, "told": told.kind, "dataset": told.dataset,
            "request": told.request_id, "body": told.body}  # fmt: skip


_ENTER = Statement("""
SELECT almoner_enter(:holds, :kinds, :at, :actor, :who, :told, :dataset, :request, :body)
""")
_RESERVE = Statement("""
SELECT almoner_reserve(CAST(:plan AS jsonb), :places, :accounts, :instalments, :rhos, :deltas,
:at, :actor, :who, :told, :dataset, :request, :body)
""")
