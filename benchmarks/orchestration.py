"""What a Prefect server costs: one small release without it, and carried by it.

    python -m benchmarks.orchestration --out docs/figures/orchestration.jsonl     # five rounds, some minutes
    python -m benchmarks.orchestration --read docs/figures/orchestration.jsonl    # the table of kept figures

A release is what people type: request, approval, run, approval, publication, each command a process of its own, of the
demo's clinic with SmolLM2-135M. `none` has no server; `carried` is
one flow run, by a worker that looks every ten seconds, as it does by default; people type the request, its start and
two approvals, each as soon as it is waited for. The two take turns, in another order each round, so that differences
hold on a busy machine; an interval is Student's, at 95 %, over rounds. Figures that a file has are kept, so an
interrupted run goes on.

Processor time is that of the commands, of the worker and of the processes that it starts; the server's own is beside
it. One server and one worker run all the time. Packages are the distributions that almoner's dependencies
bring, extras left out, with Prefect and without it. It needs the model (`almoner models pull smollm2-135m-instruct`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import httpx
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scipy.stats import t as student

from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.ingestion.scale import CLI
from benchmarks.start import TREE, start
from flows.orchestration.local_server import start_local_server
from flows.workspace.prefect_flow import API_VARIABLE
from models_db.home import ProjectHome
from models_db.services.catalogue import requests
from models_db.sessions.database import Database
from tasks.corpus.demo.clinic import DEMO_PATIENTS, write_demo_corpus

WAYS = ("none", "carried")
MEASURED = ("none", "reported", "carried")
"""The ways in kept figures; of starts, `reported` has a server that is named. Commands tell it nothing any more."""
STARTS = ("--help", "budget show clinic")
REQUEST = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 6.0,
    "delta": 1.0e-6,
    "model": "smollm2-135m-instruct",
    "parameters": {"samples": 2, "references": 4, "max_new_tokens": 12, "temperature": 0.9, "top_k": 100,
                   "max_reference_tokens": 64},
    "prompt": {"description": "A short note that a doctor writes after seeing a patient in a clinic."},
    "evaluation": ["length", "distinct", "perplexity"],
}  # fmt: skip
SECONDS_BETWEEN_LOOKS = 0.2
PATIENCE = 300.0
TICKS = os.sysconf("SC_CLK_TCK")
CONFIDENCE = 0.95

Row = dict[str, Any]


@dataclass
class Clinic:
    """A project home with the demo's corpus, and commands in it.

    Attributes:
        settings: the environment of every command.
        processor: processor seconds of all commands so far.
        releases: requests so far.
    """

    folder: Path
    settings: Mapping[str, str]
    processor: float = 0.0
    releases: int = 0
    home: ProjectHome = field(init=False)

    def __post_init__(self) -> None:
        self.home = ProjectHome(self.folder / "home")

    def type(self, *words: str, api: str | None = None) -> str:
        """Return what one command prints; `api` is the address of the server."""
        environment = {**os.environ, **self.settings} | ({API_VARIABLE: api} if api else {})
        command = [sys.executable, "-c", CLI, *words]
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=out)
            _, status, used = os.wait4(process.pid, 0)
            self.processor += used.ru_utime + used.ru_stime
            out.seek(0)
            printed = out.read()
        if status:
            sys.exit(f"almoner {' '.join(words)}: {printed}")
        return printed

    def make(self, budget: int) -> None:
        """Register the corpus; it can pay for every release of the benchmark."""
        write_demo_corpus(self.folder / "notes.jsonl")
        (self.folder / "request.yaml").write_text(yaml.safe_dump(REQUEST), encoding="utf-8")
        self.type("init")
        claim = (
            "--epsilon",
            str(budget),
            "--delta",
            "5e-5",
            "--population",
            str(DEMO_PATIENTS),
            "--accept-weak-promise",
        )
        self.type("dataset", "register", "clinic", "--unit", "patient_id", *claim)
        self.type("dataset", "ingest", "clinic", "notes.jsonl")

    def approve(self, gate: str, api: str | None) -> None:
        """Let the newest request through a gate."""
        words = ("--gate", gate, "--reason", "a benchmark", "--confirm", "clinic")
        self.type("approve", str(self.releases), *words, api=api)

    def await_state(self, *states: str) -> None:
        """Wait until the newest request is in one of the states."""
        database = Database(self.home.database_url)

        def reached() -> bool:
            with database.read() as session:
                return str(requests.state_of(session, self.releases)) in states

        await_that(reached)


def await_that(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > patience:
            sys.exit("the release does not go on")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def typed_release(clinic: Clinic) -> None:
    """One release by commands alone."""
    clinic.type("release", "request", "request.yaml")
    clinic.releases += 1
    number = str(clinic.releases)
    clinic.approve("spend", None)
    clinic.type("run", number)
    clinic.approve("publish", None)
    clinic.type("publish", number, "--to", "out")


def carried_release(clinic: Clinic, api: str) -> None:
    """One release by a flow run, from its request until the run is completed."""
    clinic.type("release", "request", "request.yaml", api=api)
    clinic.releases += 1
    run = json.loads(clinic.type("release", "start", str(clinic.releases), "--json", api=api))["flow_run"]
    clinic.approve("spend", api)
    clinic.await_state("produced")
    clinic.approve("publish", api)
    clinic.await_state("published")
    await_that(lambda: httpx.get(f"{api}/flow_runs/{run}", trust_env=False).json()["state_type"] == "COMPLETED")


def processor_of(pid: int) -> float:
    """Return processor seconds of a process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def measured(clinic: Clinic, way: str, api: str, server: int, worker: int) -> Row:
    """Make one release, and return what it took."""
    before = clinic.processor, processor_of(server), processor_of(worker), time.monotonic()
    if way == "carried":
        carried_release(clinic, api)
    else:
        typed_release(clinic)
    after = clinic.processor, processor_of(server), processor_of(worker), time.monotonic()
    typed, served, worked, wall = (end - begin for begin, end in zip(before, after, strict=True))
    own = typed + (worked if way == "carried" else 0.0)
    return {"way": way, "processor_s": round(own, 2), "server_s": round(served, 2), "wall_s": round(wall, 2)}


@contextmanager
def worker_of(clinic: Clinic, api: str) -> Iterator[int]:
    """Run a worker; its process id."""
    clinic.type("deploy", api=api)
    command = [sys.executable, "-c", CLI, "worker", "--to", "out"]
    environment = {**os.environ, **clinic.settings, API_VARIABLE: api}
    with (clinic.folder / "worker.log").open("w") as log:
        process = subprocess.Popen(command, cwd=clinic.folder, env=environment, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def server_process() -> int:
    """Return the process id of the server, which is a child of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (found,) = [int(pid) for pid in children if b"prefect" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


Step = tuple[int, str, str]
"""One thing that is measured: its round, its way, and the command, or none for a whole release."""


def steps_of(rounds: int) -> Iterator[Step]:
    """Yield every way and every start once a round, in another order each time."""
    for number in range(rounds):
        for place in range(len(WAYS)):
            yield number, WAYS[(number + place) % len(WAYS)], ""
        for line in STARTS:
            for way in MEASURED[:2][:: 1 if number % 2 else -1]:
                yield number, way, line


def step_of(row: Row) -> Step:
    """Return what a row is about."""
    return row["round"], row["way"], row.get("start", "")


def figures_of(steps: Sequence[Step], port: int) -> Iterator[Row]:
    """Measure some steps, one after the other."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
        base = Path(folder)
        settings = {"ALMONER_HOME": str(base / "home"), "PREFECT_HOME": str(base / "prefect")}
        os.environ |= settings
        os.environ.pop(API_VARIABLE, None)
        clinic = Clinic(base, settings)
        clinic.make(10 * (len(steps) + 1))
        with start_local_server(base / "prefect", port):
            api, server = os.environ.pop(API_VARIABLE), server_process()
            with worker_of(clinic, api) as worker:
                await_that(lambda: "started" in (base / "worker.log").read_text())
                for number, way, line in steps:
                    figures = started(clinic, line, way, api) if line else measured(clinic, way, api, server, worker)
                    yield {"round": number, **figures}
            os.environ[API_VARIABLE] = api


def started(clinic: Clinic, line: str, way: str, api: str) -> Row:
    """Start a command, with a server named or without."""
    if way == "reported":
        os.environ[API_VARIABLE] = api
    try:
        found = start(TREE, clinic.home.root, line)
    finally:
        os.environ.pop(API_VARIABLE, None)
    return {"start": line, "way": way, "processor_s": round(found.seconds, 3), "modules": found.modules}


def packages_of(roots: Sequence[str], without: frozenset[str] = frozenset()) -> set[str]:
    """Return all distributions that are needed for some, extras of the first left out, as they are installed."""
    found: set[str] = set()
    waiting = [(canonicalize_name(root), frozenset[str]()) for root in roots]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if name in without or (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue
        found.add(name)
        for line in lines:
            need = Requirement(line)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((canonicalize_name(need.name), frozenset(need.extras)))
    return found


def interval(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean of some values, and Student's interval at 95 %."""
    centre = mean(values)
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    low, middle, high = (f"{value:.{digits}f}" for value in (centre - half, centre, centre + half))
    return f"{middle} ({low} to {high})"


TITLES = {
    "none": "no server",
    "reported": "a server that was told of each command",
    "carried": "a flow run, by a worker",
}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The table of docs/orchestration.md: a row for each way, with what it takes more than no server in its round."""
    yield "| | processor s | more than without | wall s | more than without | processor s of the server meanwhile |"
    yield "| --- | --- | --- | --- | --- | --- |"
    whole = sorted((row for row in rows if "wall_s" in row), key=lambda row: row["round"])
    by_way = {way: [row for row in whole if row["way"] == way] for way in MEASURED}
    for way, own in by_way.items():
        shown = []
        for kind, digits in (("processor_s", 1), ("wall_s", 0)):
            more = [row[kind] - base[kind] for row, base in zip(own, by_way["none"], strict=True)]
            shown += [interval([row[kind] for row in own], digits), "" if way == "none" else interval(more, digits)]
        shown.append("" if way == "none" else interval([row["server_s"] for row in own], 1))
        yield f"| {TITLES[way]} | {' | '.join(shown)} |"


def print_tables(rows: Sequence[Row]) -> None:
    """Print what a release takes, what a server adds to it in the same round, and what starts take."""
    whole = [row for row in rows if "wall_s" in row]
    by_way = {
        way: sorted((row for row in whole if row["way"] == way), key=lambda row: row["round"]) for way in MEASURED
    }
    print(f"n = {len(by_way['none'])} releases of each kind; mean (95 % interval)\n")
    print("| | processor s | more than without | server's processor s | wall s | more than without |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way, own in by_way.items():
        cells = []
        for kind in ("processor_s", "server_s", "wall_s"):
            cells.append(interval([row[kind] for row in own]))
            if kind != "server_s":
                pairs = zip(own, by_way["none"], strict=True)
                cells.append("" if way == "none" else interval([row[kind] - base[kind] for row, base in pairs]))
        print(f"| {way} | {' | '.join(cells)} |")
    print("\n| start | processor s, no server | with a server named | difference | modules |")
    print("| --- | --- | --- | --- | --- |")
    for line in STARTS:
        own = sorted((row for row in rows if row.get("start") == line), key=lambda row: row["round"])
        without, named = ([row for row in own if row["way"] == way] for way in MEASURED[:2])
        gaps = [there["processor_s"] - here["processor_s"] for here, there in zip(without, named, strict=True)]
        seconds = (interval([row["processor_s"] for row in side]) for side in (without, named))
        modules = ", ".join(sorted({f"{row['modules']:,}" for row in own}))
        print(f"| `{line}` | {' | '.join(seconds)} | {interval(gaps)} | {modules} |")
    for row in rows:
        if "packages" in row:
            print(f"\n{row['packages']} packages; {row['without_prefect']} without Prefect and what it alone needs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=4299)
    parser.add_argument("--out", type=Path, help="a JSONL file for the figures")
    parser.add_argument("--read", type=Path, help="print the table of these figures, and measure nothing")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # server and worker end with it
    if given.read:
        print_tables(read_lines(given.read))
        return
    rows: list[Row] = []
    if given.out and given.out.exists():
        rows = read_lines(given.out)
    else:
        without = packages_of(["almoner"], frozenset({"prefect"}))
        rows = [{"packages": len(packages_of(["almoner"])), "without_prefect": len(without)}]
    done = {step_of(row) for row in rows if "round" in row}
    for row in figures_of([step for step in steps_of(given.rounds) if step not in done], given.port):
        rows.append(row)
        if given.out:
            write_lines(given.out, rows)
    print_tables(rows)


if __name__ == "__main__":
    main()
