"""Steps of the budget that are a whole transaction, sent to PostgreSQL in one message.

Each locks the accounts first, with the same door as a step that is taken in several messages, and then calls the same
door, so every guard looks at what is there once the locks are held. What the statements themselves read is from before
the lock, and therefore only what never changes: numbers and amounts of holds, numbers of accounts, and what a request
draws on. Whatever is refused is undone, and then taken in several messages, so that the refusal has its exact name.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.database.prepared_statements import PreparedStatement
from models_db.values.amounts import Amount
from models_db.writes.budget_steps import PlannedHold, encode_array, encode_plan
from models_db.writes.insert import Values


def reserve_in_one_statement(
    session: Session, actor_id: int, root: int, blocks: Sequence[int], plan: Sequence[PlannedHold]
) -> bool:
    """Hold a plan on blocks of a root account, as `budget_steps.reserve` does; its holds name places in `blocks`.

    Returns: False if nothing was done, because it is refused.
    """
    if not any(planned.holds for planned in plan):
        return False
    under: Values = {"root": root, "blocks": encode_array(blocks), "many": len(blocks)}
    parameters: Values = {**encode_plan(plan), **under, "at": utc_now(), "actor": actor_id}
    return bool(_RESERVE_WHOLE.execute_as_transaction(session, parameters))


def arm_in_one_statement(
    session: Session,
    actor_id: int,
    root: int,
    blocks: Sequence[int],
    which: tuple[int, int, int, int],
    lease: tuple[str, str] | None,
) -> Amount | None:
    """Arm an instalment as `budget_steps.record_entries` does, and prolong the run's lease before, if it is given.

    Args:
        which: request, attempt, sequence and instalment.
        lease: token and new end.

    Returns: what is spent; None if nothing was done, because it is refused or nothing is held.
    """
    token, until = lease or (None, None)
    request, attempt, sequence, instalment = which
    parameters: Values = {"request": request, "attempt": attempt, "sequence": sequence, "instalment": instalment,
                     "token": token, "until": until, "root": root, "blocks": encode_array(blocks)}  # fmt: skip
    rows = _ARM_WHOLE.execute_as_transaction(session, {**parameters, "at": utc_now(), "actor": actor_id})
    return Amount(rows[0][0], rows[0][1]) if rows else None


# To lock says nothing, and what says nothing is not NULL.
_RESERVE_WHOLE = PreparedStatement("""
SELECT CASE WHEN almoner_lock_accounts(:root, CAST(:blocks AS integer[])) IS NOT NULL THEN almoner_reserve(
    CAST(:plan AS jsonb), :places,
    ARRAY(SELECT ids[u.place] FROM unnest(CAST(:accounts AS integer[])) WITH ORDINALITY u(place, n) ORDER BY u.n),
    :instalments, :rhos, :deltas, :at, :actor) END
FROM (SELECT array_agg(x.id ORDER BY x.id) AS ids FROM account x
    WHERE x.parent_id = :root AND x.block = ANY (CAST(:blocks AS integer[]))) eligible
WHERE cardinality(ids) = :many
""")

_ARM_WHOLE = PreparedStatement("""
SELECT rho, delta, CASE
    WHEN CAST(:token AS text) IS NOT NULL AND NOT almoner_renew(:request, :token, CAST(:until AS text)) THEN NULL
    WHEN almoner_lock_accounts(:root, CAST(:blocks AS integer[])) IS NOT NULL THEN almoner_enter(
        ids, array_fill(CAST('ARM' AS text), ARRAY[cardinality(ids)]),
        :at, :actor) END
FROM (SELECT array_agg(h.id ORDER BY h.account_id, h.id) AS ids, min(h.rho) AS rho, min(h.delta) AS delta
    FROM invocation i JOIN hold h ON h.invocation_id = i.id
    WHERE i.request_id = :request
    AND i.attempt = :attempt AND i.sequence = :sequence AND h.instalment = :instalment) held
WHERE ids IS NOT NULL
""")
