"""What ledgers a thousand accelerators need: the model of `ledger/capacity_model.py` at that load.

    python -m benchmarks.ledger.capacity                                  # the tables, and docs/figures/capacity.svg

How long a write takes is given: `ledger/capacity_writes.py` measures it, and compares the model with a real ledger.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.ledger.capacity_model import Fleet, Outcome, Simulation, Writes, exponential

SEED = 1
FIGURE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "capacity.svg"
INSTALMENTS = (8, 16, 32, 64, 128, 256, 512)
LEDGERS = (1, 2, 4, 16)
SHOWN = (8, 32, 128, 512)
WISHED = 0.95
SHORTEST = 300.0  # seconds of a simulation: a quarter of it is longer than a look for a run and loading
ARMS = 100_000  # arms that a simulation sees at most, unless it is the shortest

GPUS = Fleet(workers=1000, step_s=0.05, instalment=32, rounds=40, load_s=30, poll_s=30, jitter=0.1)
"""A run is 40 rounds of 512 draws: 17 minutes of drawing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=GPUS.workers)
    parser.add_argument("--arm-ms", type=float, nargs="+", default=[2.0, 10.0], help="milliseconds of one write")
    parser.add_argument(
        "--step-ms", type=float, default=1e3 * GPUS.step_s, help="milliseconds of one draw of all texts"
    )
    parser.add_argument("--mtbf-hours", type=float, nargs="+", default=[math.inf, 24.0], help="of one worker")
    parser.add_argument("--to", type=Path, default=FIGURE, help="where the figure goes")
    given = parser.parse_args()
    fleet = replace(GPUS, workers=given.workers, step_s=given.step_ms / 1e3)
    found = {arm: sweep(fleet, arm / 1e3) for arm in given.arm_ms}
    for arm, outcomes in found.items():
        print_table(fleet, arm, outcomes)
    print_failures(fleet, given.arm_ms[0] / 1e3, given.mtbf_hours)
    draw(fleet, found, given.to)


Outcomes = dict[tuple[int, int], Outcome]
"""By draws of an instalment and number of ledgers."""


def sweep(fleet: Fleet, arm_s: float) -> Outcomes:
    return {
        (instalment, ledgers): simulated(replace(fleet, instalment=instalment), arm_s, ledgers)
        for instalment in INSTALMENTS
        for ledgers in LEDGERS
    }


def simulated(fleet: Fleet, arm_s: float, ledgers: int) -> Outcome:
    """All writes take the same mean time, with much spread: a ledger whose writes do not vary keeps up longer."""
    offered = fleet.workers / (fleet.instalment * fleet.step_s)
    seconds = max(SHORTEST, ARMS / min(offered, ledgers / arm_s))
    return Simulation(fleet, Writes(*[exponential(arm_s)] * 3), ledgers, SEED).run(seconds)


def print_table(fleet: Fleet, arm_ms: float, outcomes: Outcomes) -> None:
    print(f"\n{fleet.workers:,} workers, {1e3 * fleet.step_s:.0f} ms a draw, {arm_ms:g} ms a write")
    heads = ("q", "ledgers", "arms/s", "busiest", "p50, ms", "p99, ms", "drawing", "of possible")
    print("".join(f"{head:>{width}}" for head, width in zip(heads, (5, 9, 10, 9, 11, 10, 9, 13), strict=True)))
    possible = without_ledger(fleet)
    for instalment in SHOWN:
        for ledgers in LEDGERS:
            one = outcomes[instalment, ledgers]
            print(f"{instalment:>5}{ledgers:>9}{one.arms:>10,.0f}{one.load:>9.2f}{1e3 * one.wait_p50:>11.1f}"
                  f"{1e3 * one.wait_p99:>10.1f}{one.drawing:>9.1%}{one.drawing / possible:>13.1%}")  # fmt: skip
    for instalment in INSTALMENTS:
        enough = [n for n in LEDGERS if outcomes[instalment, n].drawing >= WISHED * possible]
        print(
            f"  instalments of {instalment}: {f'{enough[0]} ledgers' if enough else 'no number tried'} for {WISHED:.0%}"
        )


def without_ledger(fleet: Fleet) -> float:
    """The share of time in which workers would draw if the ledger took no time: less loading and looking for runs."""
    run = fleet.rounds * fleet.draws * fleet.step_s
    return run / (run + fleet.load_s + fleet.poll_s / 2)


def print_failures(fleet: Fleet, arm_s: float, hours: Sequence[float]) -> None:
    print(f"\nworkers that fail, 4 ledgers, {1e3 * arm_s:g} ms a write, back after {fleet.repair_s / 60:.0f} minutes")
    print(f"{'hours between failures':>24}{'q':>6}{'drawing':>10}{'forfeited instalments':>24}")
    for each in hours:
        for instalment in (32, 128, 512):
            failing = replace(fleet, instalment=instalment, mtbf_s=3600 * each)
            one = simulated(failing, arm_s, 4)
            print(f"{each:>24g}{instalment:>6}{one.drawing:>10.1%}{one.forfeited:>24.4%}")


def draw(fleet: Fleet, found: dict[float, Outcomes], path: Path) -> None:
    """For each time of a write: how busy workers are, and how long an arm waits, against the size of instalments."""
    from benchmarks.common.plotting import STYLE, plt, save  # only a plot needs it

    colours = ("#083a66", "#6aa6d6", "#d1730a", "#7a3e9d")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            2, len(found), figsize=(4.2 * len(found), 5.6), sharex=True, sharey="row", squeeze=False
        )
        for column, (arm, outcomes) in enumerate(found.items()):
            for colour, ledgers in zip(colours, LEDGERS, strict=True):
                ones = [outcomes[instalment, ledgers] for instalment in INSTALMENTS]
                label = f"{ledgers} ledger" + "s" * (ledgers > 1)
                top, bottom = axes[0][column], axes[1][column]
                top.plot(INSTALMENTS, [100 * one.drawing for one in ones], "o-", ms=3, color=colour, label=label)
                bottom.plot(INSTALMENTS, [1e3 * one.wait_p99 + 0.1 for one in ones], "o-", ms=3, color=colour)
            top.axhline(100 * WISHED * without_ledger(fleet), color="#444444", ls=":", lw=1)
            top.set_title(f"{arm:g} ms a write")
            bottom.set_yscale("log")
            bottom.set_xscale("log", base=2)
            bottom.set_xticks(INSTALMENTS, [str(each) for each in INSTALMENTS])
            bottom.set_xlabel("draws of an instalment, q")
        axes[0][0].set_ylabel("workers that draw (%)\ndotted: 95 % of what is possible")
        axes[1][0].set_ylabel("wait of an arm, p99 (ms)")
        axes[0][-1].legend(loc="lower right")
        figure.tight_layout()
        save(figure, path)


if __name__ == "__main__":
    main()
