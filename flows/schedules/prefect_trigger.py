"""Prefect flow of a deployment: it runs a schedule's due slots; the ledger decides which."""

from datetime import UTC, datetime
from pathlib import Path

from prefect import flow

from flows.schedules.poller import PollerSettings, PollResult
from flows.schedules.run_now import NothingDue, run_schedule_now
from flows.workspace.prefect_flow import PRIVATE_FLOW, call_outside_engine
from models_db.home import ProjectHome
from models_db.values.canonical_json import Json
from tasks.workers.backend_settings import PROCESSES, WorkerBackend


@flow(name="schedule", flow_run_name="schedule-{schedule}", **PRIVATE_FLOW)
def run_due_slot(
    home: Path,
    schedule: int,
    device: str = "auto",
    workers: int = 1,
    runner: str = PROCESSES,
    runner_address: str | None = None,
) -> dict[str, Json]:
    """Decide the due slot of one schedule and run it; do nothing if a poller was faster.

    Raises:
        ScheduleUnknown: there is no such schedule.
        SlotTaken: another poller was faster.
        ScheduleNotActive: the schedule is paused or over.
        The errors of `flows.schedules.slots.decide_slot`.
    """
    settings = PollerSettings(device, workers, backend=WorkerBackend.of(runner, runner_address))

    def knock() -> PollResult:
        try:
            return run_schedule_now(ProjectHome.locate(home), schedule, None, datetime.now(UTC), settings)
        except NothingDue:
            return PollResult()

    return call_outside_engine(knock).to_json()
