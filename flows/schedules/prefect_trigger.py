"""Prefect flow of a deployment: it runs a schedule's due slots; the ledger decides which.

Prefect keeps the names of errors; their texts are on the error stream of the process.
"""

import sys
from datetime import UTC, datetime

from prefect import flow

from flows.schedules.poll_result import PollProblem
from flows.schedules.poller import Poller, PollerSettings
from flows.workspace.prefect_flow import PRIVATE_FLOW, call_outside_engine
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError, UsageError
from models_db.home import ProjectHome
from models_db.services.audit import chain
from tasks.common.faults import TaskFailed


@flow(name="schedule", flow_run_name="schedule-{schedule}", **PRIVATE_FLOW)
def run_due_slot(schedule: int, ledger: str) -> None:
    """Decide the due slot of one schedule and run its requests, as the roles of this machine's home allow.

    The home and the options of the runs come from the environment, which `almoner serve` sets.

    Args:
        schedule: the schedule's number.
        ledger: the hash of the first link of its ledger, because another team's schedule may have the same number.

    Raises:
        RuntimeError: something could not be done; its text has the names of the errors.
    """
    problems = call_outside_engine(lambda: _poll(schedule, ledger))
    for problem in problems:
        sys.stderr.write(f"{problem.what}: {problem.error}: {problem.message}\n")
    if problems:
        raise RuntimeError(", ".join(problem.error for problem in problems))


def _poll(schedule: int, ledger: str) -> list[PollProblem]:
    """Poll one schedule and return what could not be done; no other error passes, for its text may be private."""
    try:
        home = ProjectHome.locate()
        with open_workspace(home).database.read() as session:
            if chain.ledger_id(session) != ledger:
                raise UsageError("The flow run names another ledger than that of this home.", code="OtherLedger")
        return Poller(home, PollerSettings.of_environment()).poll(datetime.now(UTC), schedule).problems
    except AlmonerError as problem:
        failed = problem
    except Exception as problem:  # noqa: BLE001  # its text may quote private text
        failed = TaskFailed.of("schedule", problem)
    return [PollProblem(f"schedule {schedule}", failed.code, failed.message)]
