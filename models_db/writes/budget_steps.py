"""Steps of the budget: mechanisms, holds and entries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.writes.insert import translate_refusals
from models_db.writes.pending_links import add_pending


@dataclass(frozen=True)
class PlannedHold:
    """Mechanism to record, and its holds: account, instalment, rho and delta of each."""

    invocation: Mapping[str, Any]
    holds: Sequence[tuple[int, int, int, int]]


def reserve(session: Session, actor_id: int, plan: Sequence[PlannedHold]) -> None:
    """Record mechanisms, their holds, and an entry HOLD for each of these.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        connection = session.connection()
        for planned in plan:
            made = {**planned.invocation, "created_at": utc_now(), "created_by": actor_id}
            number = connection.execute(_INSERT_INVOCATION, made).scalar_one()
            holds = {"invocation_id": number, "holds": json.dumps(planned.holds)}
            entries = {"invocation_id": number, "at": utc_now(), "actor_id": actor_id}
            add_pending(session, "invocation", [number])
            add_pending(session, "hold", connection.execute(_INSERT_HOLDS[connection.dialect.name], holds).scalars())
            add_pending(session, "entry", connection.execute(_ENTER_HOLDS, entries).scalars())


def record_entries(session: Session, actor_id: int, entries: Sequence[tuple[int, str]]) -> None:
    """Record entries, each a hold and its step.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said.
    """
    with translate_refusals(session):
        step = {"entries": json.dumps(entries), "at": utc_now(), "actor_id": actor_id}
        connection = session.connection()
        add_pending(session, "entry", connection.execute(_INSERT_ENTRIES[connection.dialect.name], step).scalars())


_INSERT_INVOCATION = text("""
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
VALUES (:request_id, :attempt, :sequence, :mechanism, :event, :relation, :rng_kind, :device, :code_digest,
        :libraries, :idem_key, :created_at, :created_by) RETURNING id
""")
# The texts stay the same however many rows there are: to plan the guards anew costs more than to ask them.
_INSERT_HOLDS = {
    "sqlite": text("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT :invocation_id, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'),
       json_extract(j.value, '$[3]') FROM json_each(:holds) j ORDER BY j.key RETURNING id
"""),
    "postgresql": text("""
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT :invocation_id, CAST(j.hold ->> 0 AS BIGINT), CAST(j.hold ->> 1 AS INTEGER), CAST(j.hold ->> 2 AS BIGINT),
       CAST(j.hold ->> 3 AS BIGINT) FROM json_array_elements(CAST(:holds AS JSON)) WITH ORDINALITY j(hold, key)
 ORDER BY j.key RETURNING id
"""),
}
_ENTER_HOLDS = text("""
INSERT INTO entry (hold_id, kind, at, actor_id) SELECT h.id, 'HOLD', :at, :actor_id FROM hold h
WHERE h.invocation_id = :invocation_id ORDER BY h.id RETURNING id
""")
_INSERT_ENTRIES = {
    "sqlite": text("""
INSERT INTO entry (hold_id, kind, at, actor_id)
SELECT json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), :at, :actor_id FROM json_each(:entries) j
 ORDER BY j.key RETURNING id
"""),
    "postgresql": text("""
INSERT INTO entry (hold_id, kind, at, actor_id)
SELECT CAST(j.entry ->> 0 AS BIGINT), j.entry ->> 1, :at, :actor_id
  FROM json_array_elements(CAST(:entries AS JSON)) WITH ORDINALITY j(entry, key) ORDER BY j.key RETURNING id
"""),
}
