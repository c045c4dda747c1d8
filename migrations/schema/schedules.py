"""Schedules: when a standing authorisation is drawn on, each moment at which that was due, and the decision at that
moment.
"""

from migrations.schema.conditions import role, state
from migrations.schema.definitions import Guard

_LAST = (
    "(SELECT c.{column} FROM schedule_change c WHERE c.schedule_id = NEW.schedule_id ORDER BY c.number DESC LIMIT 1)"
)
LAST_KIND = f"coalesce({_LAST.format(column='kind')}, 'resumed')"
MAKER = "EXISTS (SELECT 1 FROM schedule s WHERE s.id = NEW.schedule_id AND s.created_by = NEW.actor_id)"
OWN_PAUSE = f"(NEW.kind <> 'resumed' OR {_LAST.format(column='actor_id')} = NEW.actor_id)"

GUARDS = (
    Guard(
        "schedule_of_its_dataset",
        "schedule",
        "a schedule draws on a standing authorisation of its own dataset",
        """
        NOT EXISTS (
            SELECT 1 FROM proposal m
             WHERE m.id = NEW.standing_id AND m.kind = 'standing' AND m.dataset_id = NEW.dataset_id
        )
        """,
    ),
    Guard(
        "schedule_change_in_turn",
        "schedule_change",
        "the schedule is not where this change begins",
        f"""
        NOT (
            NEW.number = 1 + (SELECT count(*) FROM schedule_change c WHERE c.schedule_id = NEW.schedule_id)
             AND CASE NEW.kind
                 WHEN 'paused' THEN {LAST_KIND} = 'resumed'
                 WHEN 'resumed' THEN {LAST_KIND} = 'paused'
                 ELSE {LAST_KIND} <> 'ended' END
        )
        """,
    ),
    Guard(
        "schedule_change_by_right",
        "schedule_change",
        "only a steward, or who made it, changes a schedule; what somebody else has paused a steward resumes",
        f"NOT ({role('NEW.actor_id', 'steward', 'NEW.at')} OR ({MAKER} AND coalesce({OWN_PAUSE}, FALSE)))",
    ),
    Guard(
        "schedule_slot_active",
        "schedule_slot",
        "the schedule is paused or over",
        f"{LAST_KIND} <> 'resumed'",
    ),
    Guard(
        "schedule_slot_due",
        "schedule_slot",
        "a slot is not taken before it has come",
        """
        length(NEW.slot) <> 27
         OR NEW.slot > NEW.at
         OR NOT EXISTS (SELECT 1 FROM schedule s WHERE s.id = NEW.schedule_id AND s.starts_at <= NEW.slot)
        """,
    ),
    Guard(
        "schedule_slot_forward",
        "schedule_slot",
        "that slot, or a later one, is decided",
        "EXISTS (SELECT 1 FROM schedule_slot o WHERE o.schedule_id = NEW.schedule_id AND o.slot >= NEW.slot)",
    ),
    Guard(
        "schedule_slot_own_request",
        "schedule_slot",
        "a slot is for a request under the authorisation of its schedule",
        """
        NEW.request_id IS NOT NULL
         AND NOT EXISTS (
             SELECT 1 FROM request r JOIN schedule s ON s.standing_id = r.standing_id
              WHERE r.id = NEW.request_id
               AND s.id = NEW.schedule_id
               AND r.requester_id = NEW.actor_id
               AND r.created_at >= NEW.slot
         )
        """,
    ),
    Guard(
        "slot_end_of_a_run",
        "slot_end",
        "what runs or has run is not given up",
        f"""
        NOT EXISTS (
            SELECT 1 FROM schedule_slot o
             WHERE o.id = NEW.slot_id
              AND o.request_id IS NOT NULL
              AND {state("o.request_id")} IN ('submitted', 'approved')
        )
        """,
    ),
)
