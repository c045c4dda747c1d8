"""Eight processes race for a nearly spent account: exactly what is affordable is spent, on both backends."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import pytest

from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.lifecycle import artifacts, ledger
from models_db.services.lifecycle.ledger import Attempt
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.support import PROVENANCE, World, fetch, planned

CONCERNS = ("migrations/schema", "models_db/services/lifecycle", "models_db/writes")

PROCESSES = 8
ATTEMPTS = 3
AFFORDABLE = 14
PLAN = (planned(Amount(60, 1), Amount(40, 1)),)
LOSS = Amount(100, 2)
BLOCKS = 2

_start: Barrier


@dataclass(frozen=True)
class Runner:
    """What one process is given: the ledger and the attempts it has to bring to their end."""

    url: str
    actor: Actor
    attempts: tuple[Attempt, ...]


def _meet(start: Barrier) -> None:
    global _start
    _start = start


def _run(runner: Runner) -> list[str]:
    """The outcome of each attempt: 'produced', or the name of what stopped it."""
    database = Database(runner.url)
    _start.wait()
    return [_outcome(database, runner.actor, attempt) for attempt in runner.attempts]


def _outcome(database: Database, actor: Actor, attempt: Attempt) -> str:
    try:
        with database.write() as session:
            ledger.hold(session, actor, attempt, PLAN, PROVENANCE)
        for instalment in range(len(PLAN[0].instalments)):
            with database.write() as session:
                ledger.arm(session, actor, attempt, 0, instalment)
        with database.write() as session:
            files = {"texts.jsonl": f"{attempt.request_id:064}"}
            artifacts.record_artifact(session, actor, attempt, files, 1, [])
    except Exception as problem:  # noqa: BLE001  (whatever it is, the parent compares its name)
        return type(problem).__name__
    return "produced"


def race(world: World) -> list[str]:
    attempts = [world.running("clinic", *PLAN) for _ in range(PROCESSES * ATTEMPTS)]
    runners = [
        Runner(world.database.url, world.runner, tuple(attempts[number::PROCESSES])) for number in range(PROCESSES)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        PROCESSES, mp_context=context, initializer=_meet, initargs=(context.Barrier(PROCESSES),)
    ) as pool:
        return [outcome for outcomes in pool.map(_run, runners) for outcome in outcomes]


@pytest.mark.slow
def test_exactly_the_affordable_holds_succeed(world: World) -> None:
    world.dataset(cap=LOSS * AFFORDABLE + Amount(99, 1), blocks=BLOCKS)
    outcomes = race(world)

    refused = PROCESSES * ATTEMPTS - AFFORDABLE
    assert sorted(outcomes) == ["BudgetExceeded"] * refused + ["produced"] * AFFORDABLE
    counters = "SELECT rho_held, rho_spent, delta_held, delta_spent FROM account WHERE kind = 'block'"
    assert fetch(world.database, counters) == [(0, 100 * AFFORDABLE, 0, 2 * AFFORDABLE)] * BLOCKS
    assert world.balance().remaining == Amount(99, 1)
    with world.database.read() as session:
        assert ledger.differing_counters(session) == []
        report = verify_chain.verify_chain(session)
    assert report.holds, report
    kinds = dict(fetch(world.database, "SELECT kind, count(*) FROM entry GROUP BY kind"))
    assert kinds == dict.fromkeys(("HOLD", "ARM", "COMMIT"), AFFORDABLE * BLOCKS * 2)
    assert fetch(world.database, "SELECT count(DISTINCT prev_hash) FROM audit") == [(report.links,)]
