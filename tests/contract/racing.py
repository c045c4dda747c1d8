"""Processes that race for one account: the driver's part of it, which a process of its own can import."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from models_db.services import artifacts, budget
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt, InvocationPlan
from models_db.sessions.database import Database
from tests.contract.driver import Driver
from tests.support import PROVENANCE

_start: Barrier


@dataclass(frozen=True)
class Runner:
    """What one process is given: the ledger and the attempts it has to bring to their end."""

    url: str
    actor: Actor
    plan: tuple[InvocationPlan, ...]
    attempts: tuple[Attempt, ...]


def _meet(start: Barrier) -> None:
    global _start
    _start = start


def _run(runner: Runner) -> list[str]:
    """The outcome of each attempt: 'produced', or the name of what stopped it."""
    database = Database(runner.url)
    _start.wait()
    return [_outcome(database, runner, attempt) for attempt in runner.attempts]


def _outcome(database: Database, runner: Runner, attempt: Attempt) -> str:
    actor, plan = runner.actor, runner.plan
    try:
        with database.write() as session:
            budget.hold(session, actor, attempt, plan, PROVENANCE)
        for instalment in range(len(plan[0].instalments)):
            with database.write() as session:
                budget.arm(session, actor, attempt, 0, instalment)
        with database.write() as session:
            files = {"texts.jsonl": f"{attempt.request_id:064}"}
            artifacts.record_artifact(session, actor, attempt, files, 1, [])
    except Exception as problem:  # noqa: BLE001  (whatever it is, the parent compares its name)
        return type(problem).__name__
    return "produced"


def race(driver: Driver, attempts: Sequence[Attempt], plan: Sequence[InvocationPlan], processes: int) -> list[str]:
    """Let processes bring attempts of one mechanism to their ends at once; return the outcome of each."""
    world = driver.world
    runners = [
        Runner(world.database.url, world.runner, tuple(plan), tuple(attempts[number::processes]))
        for number in range(processes)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_meet, initargs=(context.Barrier(processes),)
    ) as pool:
        return [outcome for outcomes in pool.map(_run, runners) for outcome in outcomes]
