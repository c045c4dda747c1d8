"""For every guard of schedules and slots: what it denies, and the nearest things it lets pass."""

from datetime import datetime, timedelta

from models_db.database.base import utc_now
from tests.contracts.initial_cases import Case
from tests.contracts.rows import (
    asked_slot,
    schedule,
    schedule_change,
    slot,
    slot_end,
    waiting_slot,
)
from tests.contracts.town import Town

LONG_AGO, THEN = "2000-01-01T00:00:00.000000Z", "2001-01-01T00:00:00.000000Z"
TO_COME = "2099-01-01T00:00:00.000000Z"


def between(town: Town) -> str:
    """A moment just after the first slot of the schedule, and so before its newest."""
    first = town.one("SELECT min(slot) FROM schedule_slot WHERE schedule_id = :number", number=town.schedule)
    return utc_now(datetime.fromisoformat(first) + timedelta(microseconds=1))


SCHEDULES: dict[str, Case] = {
    "schedule_of_its_dataset": Case(
        denied=[
            lambda t: schedule(t, standing_id=t.open_proposal),
            lambda t: schedule(t, dataset_id=t.id_of("dataset", "name = 'harbour'")),
        ],
        allowed=[schedule],
    ),
    "schedule_change_in_turn": Case(
        denied=[
            lambda t: schedule_change(t, number=2),
            lambda t: schedule_change(t, kind="resumed"),
            lambda t: schedule_change(t, schedule_id=t.paused, number=2),
            lambda t: [schedule_change(t, kind="ended"), schedule_change(t, number=2, kind="resumed")],
            lambda t: [schedule_change(t, kind="ended"), schedule_change(t, number=2, kind="ended")],
        ],
        allowed=[
            schedule_change,
            lambda t: schedule_change(t, kind="ended"),
            lambda t: schedule_change(t, schedule_id=t.paused, number=2, kind="resumed"),
            lambda t: schedule_change(t, schedule_id=t.paused, number=2, kind="ended"),
        ],
    ),
    "schedule_change_by_right": Case(
        denied=[
            lambda t: schedule_change(t, actor_id=t.world.runner.id),
            lambda t: schedule_change(t, actor_id=t.actor("former").id),
            lambda t: schedule_change(
                t, schedule_id=t.paused, number=2, kind="resumed", actor_id=t.world.analyst.id
            ),
        ],
        allowed=[
            lambda t: schedule_change(t, actor_id=t.world.analyst.id),
            lambda t: [
                schedule_change(t, actor_id=t.world.analyst.id),
                schedule_change(t, number=2, kind="resumed", actor_id=t.world.analyst.id),
            ],
            lambda t: schedule_change(t, schedule_id=t.paused, number=2, kind="ended", actor_id=t.world.analyst.id),
        ],
    ),
    "schedule_slot_active": Case(
        denied=[
            lambda t: slot(t, schedule_id=t.paused),
            lambda t: [schedule_change(t, kind="ended"), slot(t)],
        ],
        allowed=[lambda t: [schedule_change(t, schedule_id=t.paused, number=2, kind="resumed"),
                            slot(t, schedule_id=t.paused)]],
    ),
    "schedule_slot_due": Case(
        denied=[
            lambda t: slot(t, slot=TO_COME),
            lambda t: [schedule_change(t, schedule_id=t.paused, number=2, kind="resumed"),
                       slot(t, schedule_id=t.paused, slot=THEN)],
        ],
        allowed=[slot, lambda t: slot(t, slot=TO_COME, at=TO_COME)],
    ),
    "schedule_slot_forward": Case(
        denied=[
            lambda t: slot(t, slot=between(t)),
        ],
        allowed=[slot],
    ),
    "schedule_slot_own_request": Case(
        denied=[
            lambda t: asked_slot(t, standing_id=None),
            lambda t: asked_slot(t, standing_id=t.open_proposal),
            lambda t: asked_slot(t, requester_id=t.world.admin.id),
            lambda t: asked_slot(t, slot=TO_COME, at=TO_COME),
            lambda t: slot(t, skipped=None, request_id=t.submitted),
        ],
        allowed=[asked_slot],
    ),
    "slot_end_of_a_run": Case(
        denied=[
            lambda t: [*asked_slot(t), slot_end(t)],
            lambda t: slot_end(t, slot_id=t.id_of("schedule_slot", "skipped IS NOT NULL")),
        ],
        allowed=[lambda t: [*waiting_slot(t), slot_end(t)]],
    ),
}  # fmt: skip
