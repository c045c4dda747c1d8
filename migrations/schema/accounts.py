"""Accounts, holds, the entries on holds, which move the accounts' counters, and charges in Rényi orders.

An account is the root of a dataset or, with a parent, a block of its units. A root has the first lifetime claim and the
partition of the units into blocks; neither ever changes. Its counters are moved by `entry_moves_account` and by nothing
else: an UPDATE is admitted only if it is exactly the effect of the next entry on the account (`last_entry_id`), or that
of a carried proposal on the cap.
"""

from migrations.schema.definitions import (
    LIMIT_IN_ORDERS_PASSED,
    SPEND_GATE,
    STANDING,
    Action,
    Guard,
    attempts,
    begun,
    has_entry,
    later_cohorts,
    state,
)
from models_db.tables.accounts import ROOT_COLUMNS


def moved(counter: str, amount: str, *, on_hold: int, on_arm: int, on_release: int) -> str:
    """A counter has moved as entry `e` on hold `h` moves it."""
    return (
        f"NEW.{counter} = OLD.{counter} + CASE e.kind WHEN 'HOLD' THEN {on_hold} * h.{amount}"
        f" WHEN 'ARM' THEN {on_arm} * h.{amount} WHEN 'RELEASE' THEN {on_release} * h.{amount} ELSE 0 END"
    )


MOVED_OTHERWISE = " OR ".join(
    f"NEW.{column} IS DISTINCT FROM OLD.{column}"
    for column in ("id", "parent_id", "block", *ROOT_COLUMNS, "created_at", "created_by")
)
BY_ENTRY = (
    "(NEW.rho_cap = OLD.rho_cap AND NEW.delta_cap = OLD.delta_cap AND NEW.last_entry_id > OLD.last_entry_id"
    " AND EXISTS (SELECT 1 FROM entry e JOIN hold h ON h.id = e.hold_id"
    " WHERE e.id = NEW.last_entry_id AND h.account_id = OLD.id"
    f" AND {moved('rho_held', 'rho', on_hold=1, on_arm=-1, on_release=-1)}"
    f" AND {moved('rho_spent', 'rho', on_hold=0, on_arm=1, on_release=0)}"
    f" AND {moved('delta_held', 'delta', on_hold=1, on_arm=-1, on_release=-1)}"
    f" AND {moved('delta_spent', 'delta', on_hold=0, on_arm=1, on_release=0)}))"
)


def newest_cap(column: str) -> str:
    """Return the newest cap that was carried for the account's root."""
    return (
        f"(SELECT m.{column} FROM carried c JOIN proposal m ON m.id = c.proposal_id"
        " JOIN dataset d ON d.id = m.dataset_id WHERE m.kind = 'cap'"
        " AND d.account_id = coalesce(OLD.parent_id, OLD.id) ORDER BY c.id DESC LIMIT 1)"
    )


BY_PROPOSAL = (
    "(NEW.last_entry_id = OLD.last_entry_id"
    " AND NEW.rho_held = OLD.rho_held AND NEW.rho_spent = OLD.rho_spent"
    " AND NEW.delta_held = OLD.delta_held AND NEW.delta_spent = OLD.delta_spent"
    f" AND coalesce(NEW.rho_cap = {newest_cap('rho')}, FALSE)"
    f" AND coalesce(NEW.delta_cap = {newest_cap('delta_fail')}, FALSE))"
)


def within(limit: str, counter: str) -> str:
    """Return the condition that all holds of the attempt on the account, with this one, stay within a limit, if any.

    SQLite takes a CROSS JOIN in the order in which it is written; otherwise it would read every hold of the account.
    """
    return (
        f"({limit} IS NULL OR NEW.{counter} + coalesce((SELECT sum(z.{counter}) FROM invocation j CROSS JOIN hold z"
        " WHERE z.invocation_id = j.id AND j.request_id = i.request_id AND j.attempt = i.attempt"
        f" AND z.account_id = NEW.account_id), 0) <= {limit})"
    )


def bound(counter: str) -> str:
    """Return the most that the policy allows request `r`."""
    return (
        f"coalesce((SELECT q.{counter}_max FROM policy_rule q JOIN dataset y ON y.name = q.dataset"
        f" WHERE q.policy_id = p.id AND y.id = r.dataset_id), p.{counter}_max)"
    )


def granted(counter: str) -> str:
    """Return the most that its standing authorisation allows request `r`."""
    column = {"rho": "rho", "delta": "delta_fail"}[counter]
    return f"(SELECT m.{column} FROM proposal m WHERE m.id = r.standing_id)"


PLANNED_PART = (
    "EXISTS (SELECT 1 FROM planned_instalment q WHERE q.request_id = i.request_id AND q.sequence = i.sequence"
    " AND NEW.instalment >= q.first_instalment AND NEW.instalment <= q.last_instalment"
    " AND ((NEW.rho = q.rho AND NEW.delta = q.delta) OR (NEW.rho = 0 AND NEW.delta = 0 AND EXISTS ("
    "SELECT 1 FROM invocation j JOIN hold z ON z.invocation_id = j.id JOIN entry e ON e.hold_id = z.id"
    " AND e.kind = 'ARM' WHERE j.request_id = i.request_id AND j.sequence = i.sequence AND j.attempt < i.attempt"
    f" AND j.attempt >= {begun('i.request_id')} AND z.instalment = NEW.instalment"
    " AND z.rho = q.rho AND z.delta = q.delta AND z.account_id = a.id))))"
)
"""A hold is exactly its planned part, or nothing if an attempt that this one goes on from has armed that part in full.

Both bounds matter: a hold above the plan spends what nobody approved, one below it publishes for less than it costs.
"""
PLANNED_BLOCK = (
    "coalesce((SELECT k.last_block >= a.block FROM planned_block k"
    " WHERE k.request_id = i.request_id AND k.first_block <= a.block ORDER BY k.first_block DESC LIMIT 1), FALSE)"
)


def not_passed(gate: str) -> str:
    """Return the condition that the hold of an entry is of no running attempt whose request `r` has passed a gate."""
    return (
        "NOT EXISTS (SELECT 1 FROM hold h JOIN invocation i ON i.id = h.invocation_id"
        " JOIN request r ON r.id = i.request_id JOIN policy_version p ON p.id = r.policy_id"
        f" WHERE h.id = NEW.hold_id AND {state('r.id')} = 'running' AND i.attempt = {attempts('r.id')} AND ({gate}))"
    )


NEWEST_CHARGE = (
    "(SELECT max(c.attempt) FROM renyi_charge c WHERE c.request_id = i.request_id AND c.attempt <= i.attempt)"
)
"""The last attempt, up to that of invocation `i`, that has a charge."""

GUARDS = (
    Guard(
        "account_opens_empty",
        "account",
        "an account opens empty, under the cap of its claim",
        """
        NEW.rho_held <> 0
         OR NEW.rho_spent <> 0
         OR NEW.delta_held <> 0
         OR NEW.delta_spent <> 0
         OR NEW.last_entry_id <> 0
         OR NEW.rho_cap <> NEW.rho
         OR NEW.delta_cap <> NEW.delta_fail
        """,
    ),
    Guard(
        "account_block_of_root",
        "account",
        "a block is one of the partition of its root account, whose cap it carries",
        f"""
        NEW.parent_id IS NOT NULL
         AND NOT EXISTS (
             SELECT 1 FROM account r
              WHERE r.id = NEW.parent_id
               AND r.rho_cap = NEW.rho_cap
               AND r.delta_cap = NEW.delta_cap
               AND NEW.block < r.blocks * (1 + {later_cohorts("NEW.parent_id")})
         )
        """,
    ),
    Guard(
        "account_moves_by_entry",
        "account",
        "counters move only by the next entry",
        f"{MOVED_OTHERWISE} OR NOT ({BY_ENTRY} OR {BY_PROPOSAL})",
        operation="UPDATE",
    ),
    Guard(
        "hold_within_release",
        "hold",
        "the policy, or the standing authorisation, allows a release less than this",
        f"""
        NOT EXISTS (
            SELECT 1 FROM invocation i JOIN request r ON r.id = i.request_id
             JOIN policy_version p ON p.id = r.policy_id
             WHERE i.id = NEW.invocation_id
              AND {within(bound("rho"), "rho")}
              AND {within(granted("rho"), "rho")}
              AND {within(bound("delta"), "delta")}
              AND {within(granted("delta"), "delta")}
        )
        """,
    ),
    Guard(
        "hold_planned",
        "hold",
        "the request was approved for another charge than this, or for another account",
        f"""
        NOT EXISTS (
            SELECT 1 FROM invocation i JOIN request r ON r.id = i.request_id
             JOIN dataset d ON d.id = r.dataset_id JOIN account a ON a.parent_id = d.account_id
             WHERE i.id = NEW.invocation_id
              AND a.id = NEW.account_id
              AND {PLANNED_PART}
              AND {PLANNED_BLOCK}
        )
        """,
    ),
    Guard(
        "renyi_charge_whole",
        "renyi_charge",
        "a charge in orders is of the whole plan",
        """
        NEW.rho <> (SELECT coalesce(sum(q.rho * (q.last_instalment - q.first_instalment + 1)), 0)
         FROM planned_instalment q WHERE q.request_id = NEW.request_id)
        """,
    ),
    Guard(
        "renyi_charge_needed",
        "renyi_charge",
        "nothing was armed since the last charge in orders",
        """
        EXISTS (SELECT 1 FROM renyi_charge c WHERE c.request_id = NEW.request_id) AND NOT EXISTS (
            SELECT 1 FROM invocation i CROSS JOIN hold h CROSS JOIN entry e
             WHERE i.request_id = NEW.request_id
              AND i.attempt >= (SELECT max(c.attempt) FROM renyi_charge c WHERE c.request_id = NEW.request_id)
              AND h.invocation_id = i.id AND h.rho > 0 AND e.hold_id = h.id AND e.kind = 'ARM'
        )
        """,
    ),
    Guard("renyi_charge_within_limit", "renyi_charge", "the limit in orders would be passed", LIMIT_IN_ORDERS_PASSED),
    Guard(
        "entry_arm_approved",
        "entry",
        "the spend gate is not passed",
        not_passed(f"{SPEND_GATE} OR {STANDING}"),
        only="NEW.kind = 'ARM'",
    ),
    Guard(
        "entry_charged",
        "entry",
        "no charge in orders covers this",
        f"""
        EXISTS (
            SELECT 1 FROM hold h JOIN invocation i ON i.id = h.invocation_id
             WHERE h.id = NEW.hold_id AND h.rho > 0 AND (
                 NOT EXISTS (
                     SELECT 1 FROM renyi_charge c WHERE c.request_id = i.request_id AND c.attempt <= i.attempt
                 )
                  OR EXISTS (
                      SELECT 1 FROM invocation j CROSS JOIN hold z
                       WHERE j.request_id = i.request_id
                        AND j.sequence = i.sequence
                        AND j.attempt >= {NEWEST_CHARGE}
                        AND z.invocation_id = j.id
                        AND z.id <> h.id
                        AND z.account_id = h.account_id
                        AND z.instalment = h.instalment
                        AND z.rho > 0
                        AND {has_entry("z.id", "ARM")}
                  )
             )
        )
        """,
        only="NEW.kind = 'ARM'",
    ),
    Guard(
        "entry_follows",
        "entry",
        "nothing is held, or armed",
        """
        NOT EXISTS (
            SELECT 1 FROM entry e
             WHERE e.hold_id = NEW.hold_id
              AND e.kind = CASE WHEN NEW.kind IN ('COMMIT', 'FORFEIT') THEN 'ARM' ELSE 'HOLD' END
        )
        """,
        only="NEW.kind <> 'HOLD'",
    ),
    Guard(
        "entry_within_cap",
        "entry",
        "the cap would be passed",
        """
        NOT EXISTS (
            SELECT 1 FROM hold h JOIN account a ON a.id = h.account_id
             WHERE h.id = NEW.hold_id
              AND a.rho_held + a.rho_spent + h.rho <= a.rho_cap
              AND a.delta_held + a.delta_spent + h.delta <= a.delta_cap
        )
        """,
        only="NEW.kind = 'HOLD'",
    ),
)

_HELD = "(CASE NEW.kind WHEN 'HOLD' THEN 1 WHEN 'ARM' THEN -1 WHEN 'RELEASE' THEN -1 ELSE 0 END)"
_SPENT = "(CASE NEW.kind WHEN 'ARM' THEN 1 ELSE 0 END)"
ACTIONS = (
    Action(
        "entry_moves_account",
        "entry",
        (
            f"""
            UPDATE account SET last_entry_id = NEW.id,
             rho_held = rho_held + {_HELD} * (SELECT rho FROM hold WHERE id = NEW.hold_id),
             rho_spent = rho_spent + {_SPENT} * (SELECT rho FROM hold WHERE id = NEW.hold_id),
             delta_held = delta_held + {_HELD} * (SELECT delta FROM hold WHERE id = NEW.hold_id),
             delta_spent = delta_spent + {_SPENT} * (SELECT delta FROM hold WHERE id = NEW.hold_id)
             WHERE id = (SELECT account_id FROM hold WHERE id = NEW.hold_id)
            """,
        ),
        "NOT EXISTS (SELECT 1 FROM hold h JOIN account a ON a.id = h.account_id"
        " WHERE h.id = NEW.hold_id AND a.last_entry_id = NEW.id)",
        "the counters did not follow the entry",
        source=f"""
        DECLARE
            x hold%ROWTYPE;
        BEGIN
            SELECT * INTO x FROM hold h WHERE h.id = NEW.hold_id;
            UPDATE account SET last_entry_id = NEW.id,
             rho_held = rho_held + {_HELD} * x.rho, delta_held = delta_held + {_HELD} * x.delta,
             rho_spent = rho_spent + {_SPENT} * x.rho, delta_spent = delta_spent + {_SPENT} * x.delta
             WHERE id = x.account_id;
            IF NOT EXISTS (SELECT 1 FROM account a WHERE a.id = x.account_id AND a.last_entry_id = NEW.id) THEN
                RAISE EXCEPTION 'almoner: the counters did not follow the entry' USING ERRCODE = '23514';
            END IF;
            RETURN NULL;
        END
        """,
    ),
)
