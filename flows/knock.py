"""The flow of a Prefect deployment: it knocks when a schedule is due, and the ledger says what is to be done."""

from datetime import UTC, datetime
from pathlib import Path

from prefect import flow

from flows.poller import Poller, Settings
from flows.settings import PRIVATE_FLOW
from flows.slots import Due, due_slot
from flows.workspace import open_workspace
from models_db.canonical import Json
from models_db.home import ProjectHome
from models_db.services import schedules


@flow(name="schedule", **PRIVATE_FLOW)
def knock(home: Path, schedule: int, device: str = "auto", workers: int = 1) -> dict[str, Json]:
    """Decide what is due of one schedule and run it; nothing, if a poller was faster.

    Raises:
        ScheduleUnknown: there is no such schedule.
        SlotTaken, ScheduleIdle: somebody was faster, or it is paused or over.
        And as `flows.slots.decide`.
    """
    found = ProjectHome.locate(home)
    workspace = open_workspace(found)
    with workspace.database.read() as session:
        wanted = due_slot(session, schedules.find(session, schedule), datetime.now(UTC))
    poller = Poller(found, Settings(device, workers))
    done = poller.unfinished(schedule) if wanted is None else poller.slot(Due(schedule, wanted))
    return done.to_json()
