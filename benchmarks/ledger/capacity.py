"""What ledgers a thousand accelerators need: the model of `ledger/capacity_model.py` at that load.

    python -m benchmarks.ledger.capacity           # docs/figures/capacity_simulation.jsonl, some minutes
    python -m benchmarks.ledger.capacity --table   # the tables of docs/capacity.md; `make results` draws the figure

Each line is one simulation, whose seed is fixed. How long a write takes is given: `ledger/capacity_writes.py` measures
it, and compares the model with a real ledger.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.common.plotting import plt
from benchmarks.ledger.capacity_model import Fleet, Outcome, Simulation, Writes, exponential

SEED = 1
OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "capacity_simulation.jsonl"
INSTALMENTS = (8, 16, 32, 64, 128, 256, 512)
LEDGERS = (1, 2, 4, 16)
SHOWN = (
    (2.0, 8, 4), (2.0, 8, 16), (2.0, 32, 1), (2.0, 32, 2), (2.0, 128, 1),
    (10.0, 32, 4), (10.0, 32, 16), (10.0, 128, 1), (10.0, 128, 2), (10.0, 512, 1),
)  # fmt: skip
"""Milliseconds of a write, draws of an instalment and ledgers: the rows of the page's table."""
FAILING = (32, 128, 512)
"""Draws of an instalment where workers fail."""
WISHED = 0.95
SHORTEST = 300.0  # seconds of a simulation: a quarter of it is longer than a look for a run and loading
ARMS = 100_000  # arms that a simulation sees at most, unless it is the shortest

GPUS = Fleet(workers=1000, step_s=0.05, instalment=32, rounds=40, load_s=30, poll_s=30, jitter=0.1)
"""A run is 40 rounds of 512 draws: 17 minutes of drawing."""


Line = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=GPUS.workers)
    parser.add_argument("--arm-ms", type=float, nargs="+", default=[2.0, 10.0], help="milliseconds of one write")
    parser.add_argument(
        "--step-ms", type=float, default=1e3 * GPUS.step_s, help="milliseconds of one draw of all texts"
    )
    parser.add_argument("--mtbf-hours", type=float, nargs="+", default=[24.0], help="of one worker")
    parser.add_argument("--to", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        fleet = replace(GPUS, workers=given.workers, step_s=given.step_ms / 1e3)
        write_lines(given.to, simulations(fleet, given.arm_ms, given.mtbf_hours))
    lines = read_lines(given.to)
    print("\n".join([*simulation_table(lines), "", *ledgers_table(lines), "", *failures_table(lines)]))


def simulations(fleet: Fleet, arms_ms: Sequence[float], hours: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield every simulation: all instalments and numbers of ledgers, and workers that fail with four ledgers."""
    for arm in arms_ms:
        for instalment in INSTALMENTS:
            for ledgers in LEDGERS:
                yield line_of(replace(fleet, instalment=instalment), arm, ledgers)
    for each in hours:
        for instalment in FAILING:
            yield line_of(replace(fleet, instalment=instalment, mtbf_s=3600 * each), arms_ms[0], 4)


def line_of(fleet: Fleet, arm_ms: float, ledgers: int) -> dict[str, Any]:
    """Return one simulation as it is kept."""
    outcome = simulated(fleet, arm_ms / 1e3, ledgers)
    return {
        "workers": fleet.workers,
        "step_ms": round(1e3 * fleet.step_s, 3),
        "write_ms": arm_ms,
        "instalment": fleet.instalment,
        "ledgers": ledgers,
        "mtbf_hours": None if math.isinf(fleet.mtbf_s) else fleet.mtbf_s / 3600,
        "possible": round(without_ledger(fleet), 6),
        **{name: round(value, 6) for name, value in asdict(outcome).items()},
    }


def simulated(fleet: Fleet, arm_s: float, ledgers: int) -> Outcome:
    """All writes take the same mean time, with much spread: a ledger whose writes do not vary keeps up longer."""
    offered = fleet.workers / (fleet.instalment * fleet.step_s)
    seconds = max(SHORTEST, ARMS / min(offered, ledgers / arm_s))
    return Simulation(fleet, Writes(*[exponential(arm_s)] * 3), ledgers, SEED).run(seconds)


def without_ledger(fleet: Fleet) -> float:
    """The share of time in which workers would draw if the ledger took no time: less loading and looking for runs."""
    run = fleet.rounds * fleet.draws * fleet.step_s
    return run / (run + fleet.load_s + fleet.poll_s / 2)


def swept(lines: Sequence[Line]) -> dict[tuple[float, int, int], Line]:
    """Return the simulations without failures, by milliseconds of a write, draws of an instalment and ledgers."""
    return {
        (line["write_ms"], line["instalment"], line["ledgers"]): line for line in lines if line["mtbf_hours"] is None
    }


def simulation_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the rows of the page's table of simulations, Markdown."""
    yield "| mean write | q | ledgers | arms a second | busiest ledger | wait of an arm: p50, p99 (ms) | drawing |"
    yield "|" + " --- |" * 7
    found = swept(lines)
    for write, instalment, ledgers in (place for place in SHOWN if place in found):
        line = found[write, instalment, ledgers]
        waits = ", ".join(f"{1e3 * line[name]:,.0f}" for name in ("wait_p50", "wait_p99"))
        yield (
            f"| {write:g} ms | {instalment} | {ledgers} | {line['arms']:,.0f} | {100 * line['load']:.0f} % | {waits}"
            f" | {100 * line['drawing']:.1f} % |"
        )


def ledgers_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the fewest ledgers tried that keep workers at WISHED of what is possible, Markdown."""
    found = swept(lines)
    yield f"| q | {' | '.join(map(str, INSTALMENTS))} |"
    yield "|" + " --- |" * (len(INSTALMENTS) + 1)
    for write in dict.fromkeys(place[0] for place in found):
        cells = []
        for instalment in INSTALMENTS:
            own = {ledgers: found[write, instalment, ledgers] for ledgers in LEDGERS}
            enough = [ledgers for ledgers, line in own.items() if line["drawing"] >= WISHED * line["possible"]]
            cells.append(str(enough[0]) if enough else "more")
        yield f"| {write:g} ms | {' | '.join(cells)} |"


def failures_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what is lost where workers fail, Markdown."""
    yield "| hours between failures | q | drawing | forfeited instalments |"
    yield "| --- | --- | --- | --- |"
    for line in lines:
        if line["mtbf_hours"] is not None:
            cells = (f"{line['mtbf_hours']:g}", str(line["instalment"]), f"{100 * line['drawing']:.1f} %")
            yield f"| {' | '.join(cells)} | {100 * line['forfeited']:.3f} % |"


def draw(lines: Sequence[Line]) -> Figure:
    """For each time of a write: how busy workers are, and how long an arm waits, against the size of instalments."""
    found, colours = swept(lines), ("#083a66", "#6aa6d6", "#d1730a", "#7a3e9d")
    writes = list(dict.fromkeys(place[0] for place in found))
    figure, axes = plt.subplots(
        2, len(writes), figsize=(4.2 * len(writes), 5.6), sharex=True, sharey="row", squeeze=False
    )
    for column, write in enumerate(writes):
        top, bottom = axes[0][column], axes[1][column]
        for colour, ledgers in zip(colours, LEDGERS, strict=True):
            ones = [found[write, instalment, ledgers] for instalment in INSTALMENTS]
            label = f"{ledgers} ledger" + "s" * (ledgers > 1)
            top.plot(INSTALMENTS, [100 * one["drawing"] for one in ones], "o-", ms=3, color=colour, label=label)
            bottom.plot(INSTALMENTS, [1e3 * one["wait_p99"] + 0.1 for one in ones], "o-", ms=3, color=colour)
        top.axhline(100 * WISHED * found[write, INSTALMENTS[0], 1]["possible"], color="#444444", ls=":", lw=1)
        top.set_title(f"{write:g} ms a write")
        bottom.set_yscale("log")
        bottom.set_xscale("log", base=2)
        bottom.set_xticks(INSTALMENTS, [str(each) for each in INSTALMENTS])
        bottom.set_xlabel("draws of an instalment, q")
    axes[0][0].set_ylabel("workers that draw (%)\ndotted: 95 % of what is possible")
    axes[1][0].set_ylabel("wait of an arm, p99 (ms)")
    axes[0][-1].legend(loc="lower right")
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    main()
