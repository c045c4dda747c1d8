"""Writes of a real ledger, and the model of `capacity_model.py` beside it.

    python benchmarks/capacity_ledger.py

One process alone holds, arms and settles, and each write is timed. Then some processes do so at once and think between
arming and settling, and the model says how many runs a second they should get, given the times of the one that was
alone. SQLite, and PostgreSQL with fsync on.
"""

import multiprocessing
import multiprocessing.synchronize
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from capacity_model import Fleet, Simulation, Writes, measured
from ledger import PLAN, PROVENANCE, Bench, backends, bench, timed

from models_db.engine import Database
from models_db.services import ledger
from models_db.services.audits import Actor
from models_db.services.ledger import Attempt

RUNS, WARM, PROCESSES, SEED = 60, 5, 3, 1
THINK = (0.0, 0.02, 0.1)


class Steps(NamedTuple):
    """Seconds of a hold, an arm and a settlement."""

    hold: float
    arm: float
    settle: float


def main() -> None:
    with backends() as makers:
        for backend, new in makers.items():
            alone = one_by_one(bench(new, RUNS + WARM, 1))
            print(f"{backend}, one process alone, medians of {RUNS} in ms (middle half)")
            for name, seconds in zip(Steps._fields, zip(*alone, strict=True), strict=True):
                low, middle, high = (1e3 * value for value in quantiles(seconds, n=4))
                print(f"  {name:8}{middle:7.2f} ({low:.2f} - {high:.2f})")
            print(f"  writes a second{3 / median(map(sum, alone)):10.0f}")
            writes = Writes(*(measured(seconds) for seconds in zip(*alone, strict=True)))
            for think in THINK:
                found = together(bench(new, PROCESSES * (RUNS + WARM), 1), think)
                fleet = Fleet(PROCESSES, think, 1, draws=1, rounds=1, load_s=0, poll_s=0)
                said = Simulation(fleet, writes, 1, SEED).run(200).arms
                print(f"  {PROCESSES} processes that think {1e3 * think:3.0f} ms: {found:6.1f} runs a second,"
                      f" the model says {said:6.1f} ({found / said:.2f})", flush=True)  # fmt: skip


def steps(database: Database, actor: Actor, attempt: Attempt, think: float) -> Steps:
    """One run; between arming and settling it thinks."""

    def hold() -> None:
        with database.write() as session:
            ledger.hold(session, actor, attempt, PLAN, PROVENANCE, whole=True)

    def arm() -> None:
        with database.write() as session:
            ledger.arm(session, actor, attempt, 0, 0, whole=True)

    def settle() -> None:
        with database.write() as session:
            ledger.settle(session, actor, attempt, "COMMIT")

    held, armed = timed(hold), timed(arm)
    time.sleep(think)
    return Steps(held, armed, timed(settle))


def one_by_one(prepared: Bench) -> list[Steps]:
    database, actor, attempts = prepared
    found = [steps(database, actor, attempt, 0.0) for attempt in attempts][WARM:]
    database.dispose()
    return found


def together(prepared: Bench, think: float) -> float:
    """Runs a second of all processes at once."""
    database, actor, attempts = prepared
    database.dispose()
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(PROCESSES + 1, timeout=300)
    shares = [attempts[number::PROCESSES] for number in range(PROCESSES)]
    working = [context.Process(target=work, args=(database.url, actor, share, think, gate)) for share in shares]
    for process in working:
        process.start()
    gate.wait()
    took = timed(gate.wait)
    for process in working:
        process.join()
    return sum(len(share) - WARM for share in shares) / took


def work(
    url: str,
    actor: Actor,
    attempts: Sequence[Attempt],
    think: float,
    gate: multiprocessing.synchronize.Barrier,
) -> None:
    database = Database(url)
    for attempt in attempts[:WARM]:
        steps(database, actor, attempt, 0.0)
    gate.wait()
    for attempt in attempts[WARM:]:
        steps(database, actor, attempt, think)
    gate.wait()
    database.dispose()


if __name__ == "__main__":
    main()
