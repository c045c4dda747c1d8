"""Writes of a real ledger, and the model of `ledger/capacity_model.py` beside it.

    python -m benchmarks.ledger.capacity_writes

One process alone holds, arms and settles, and each write is timed. Then some processes do so at once and think between
arming and settling, and the model says how many runs a second they should get, given the times of the one that was
alone just before. The two take turns, on SQLite, and on PostgreSQL with fsync on.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from statistics import median, quantiles
from typing import NamedTuple

from benchmarks.ledger.capacity_model import Fleet, Simulation, Writes, measured
from benchmarks.ledger.writes import PLAN, PROVENANCE, backends, bench, timed, together
from models_db.services.audit.chain import Actor
from models_db.services.lifecycle import ledger
from models_db.services.lifecycle.ledger import Attempt
from models_db.sessions.database import Database

ROUNDS, RUNS, WARM, PROCESSES, SEED = 5, 20, 4, 3, 1
THINK = (0.0, 0.05)


class Steps(NamedTuple):
    """Seconds of a hold, an arm and a settlement."""

    hold: float
    arm: float
    settle: float


def main() -> None:
    with backends() as makers:
        for backend, new in makers.items():
            each = RUNS + WARM
            database, actor, attempts = bench(new, ROUNDS * (1 + len(THINK) * PROCESSES) * each, 1)
            waiting, every = iter(attempts), []
            ratios: dict[float, list[float]] = {think: [] for think in THINK}
            for _ in range(ROUNDS):
                alone = [steps(database, actor, attempt, 0.0) for attempt in islice(waiting, each)][WARM:]
                every += alone
                writes = Writes(*(measured(seconds) for seconds in zip(*alone, strict=True)))
                for think, own in ratios.items():
                    found = together(
                        database,
                        actor,
                        [list(islice(waiting, each)) for _ in range(PROCESSES)],
                        partial(steps, think=think),
                        WARM,
                    )
                    fleet = Fleet(PROCESSES, think, 1, draws=1, rounds=1, load_s=0, poll_s=0)
                    own.append(found / Simulation(fleet, writes, 1, SEED).run(200).arms)
            report(backend, every, ratios)
            database.dispose()


def report(backend: str, alone: Sequence[Steps], ratios: Mapping[float, Sequence[float]]) -> None:
    print(f"{backend}, one process alone, medians of {len(alone)} in ms (middle half)")
    for name, seconds in zip(Steps._fields, zip(*alone, strict=True), strict=True):
        low, middle, high = (1e3 * value for value in quantiles(seconds, n=4))
        print(f"  {name:8}{middle:7.2f} ({low:.2f} - {high:.2f})")
    for think, own in ratios.items():
        middle, low, high = median(own), min(own), max(own)
        print(f"  {PROCESSES} processes that think {1e3 * think:3.0f} ms: {middle:.2f} times what the model says"
              f" ({low:.2f} - {high:.2f})", flush=True)  # fmt: skip


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


if __name__ == "__main__":
    main()
