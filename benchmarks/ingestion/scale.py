"""How ingest, partition and overlap check grow with a corpus: whole commands, each a process of its own.

    python -m benchmarks.ingestion.scale                        # 10^4 against 10^5 documents
    python -m benchmarks.ingestion.scale --documents 100000 1000000 --formats jsonl csv parquet --backends postgresql

The small and the large corpus take turns, so that the ratio of their times holds on a noisy machine. Time is the
process' own processor time beside the clock's; memory is its peak, as the kernel tells it when it ends (never less than
what this script has itself when it starts it). `almoner dataset ingest` writes the store and enters the marks of all
units into the ledger; `again` is a second version of the same people; `stranger` is the same corpus under another
budget, which is refused after its marks were looked for; `every batch` reads each unit of the version in its batch, and
`every unit` one after the other.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.common.process_cost import Cost, cost_of_process
from benchmarks.ingestion.ingest import write_source
from benchmarks.ledger.writes import backends
from models_db.home import ProjectHome
from models_db.sessions.database import Database

CLI = "from cli.app import main; main()"
BLOCKS = 4
REFUSED = 1
"""Exit code of a command that a rule refuses."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs=2, default=[10_000, 100_000], help="small and large")
    parser.add_argument("--words", type=int, default=30, help="words in each document")
    parser.add_argument("--formats", nargs="+", default=["jsonl"], choices=["jsonl", "csv", "parquet"])
    parser.add_argument("--unit", default="id", choices=["id", "unit"], help="one document a unit, or four")
    parser.add_argument("--backends", nargs="+", default=["sqlite"], choices=["sqlite", "postgresql"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=["ingest", "every batch", "every unit", "again", "stranger"])
    given = parser.parse_args()
    print(
        f"{'':12}{'format':9}{'step':13}{'documents':>11}{'processor s':>13}{'wall s':>9}{'peak MiB':>10}{'ratio':>8}"
    )
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder, backends() as makers:
        for form in given.formats:
            sources = [source_of(Path(folder), form, number, given.words) for number in given.documents]
            for backend in given.backends:
                compare(backend, form, sources, given, makers[backend])
            for source in sources:
                source.unlink()


def source_of(folder: Path, form: str, documents: int, words: int) -> Path:
    """A synthetic source of that form; made as JSONL and turned into the others a row at a time."""
    lines = folder / f"{documents}.jsonl"
    write_source(lines, documents, words)
    if form == "jsonl":
        return lines
    made = folder / f"{documents}.{form}"
    (as_csv if form == "csv" else as_parquet)(lines, made)
    lines.unlink()
    return made


def as_csv(lines: Path, made: Path) -> None:
    with lines.open(encoding="utf-8") as file, made.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, ["id", "unit", "text"])
        writer.writeheader()
        writer.writerows(map(json.loads, file))


def as_parquet(lines: Path, made: Path) -> None:
    """In a process of its own: what Arrow keeps would count as memory of every process that this one starts."""
    script = (
        "import sys, pyarrow.json as j, pyarrow.parquet as p\n"
        "s = j.open_json(sys.argv[1])\n"
        "with p.ParquetWriter(sys.argv[2], s.schema) as w:\n"
        "    for batch in s: w.write_batch(batch)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(lines), str(made)], check=True)


def compare(
    backend: str, form: str, sources: Sequence[Path], given: argparse.Namespace, new: Callable[[str], Database]
) -> None:
    """Small and large in turns, and one line for each step and size."""
    costs: dict[str, tuple[list[Cost], list[Cost]]] = {}
    for number in range(given.rounds):
        for place, source in enumerate(sources):
            with tempfile.TemporaryDirectory(prefix="almoner-home-", dir=source.parent) as home:
                settings = {"ALMONER_HOME": home}
                if backend != "sqlite":
                    settings["ALMONER_DATABASE_URL"] = new(f"scale_{form}_{number}_{place}").url
                for step, cost in steps(settings, source, given.unit, given.only):
                    costs.setdefault(step, ([], []))[place].append(cost)
                    print(f"  {source.name} {step} {cost}", file=sys.stderr, flush=True)
    for step, found in costs.items():
        for documents, each in zip(given.documents, found, strict=True):
            processor, wall, peak = (median(cost[field] for cost in each) for field in range(3))
            ratio = processor / median(cost.processor for cost in found[0])
            print(f"{backend:12}{form:9}{step:13}{documents:>11,}{processor:>13.1f}{wall:>9.1f}{peak:>10,.0f}{ratio:>8.1f}",
                  flush=True)  # fmt: skip


def steps(settings: Mapping[str, str], source: Path, unit: str, only: Sequence[str]) -> Iterator[tuple[str, Cost]]:
    """Every step once, in a new home."""
    almoner(settings, "init")
    for name in ("first", "stranger"):
        claim = ("--unit", unit, "--epsilon", "8", "--delta", "1e-6", "--blocks", str(BLOCKS))
        almoner(settings, "dataset", "register", name, *claim)
    taken = almoner(settings, "dataset", "ingest", "first", str(source))
    (version,) = ProjectHome(Path(settings["ALMONER_HOME"])).corpora.iterdir()
    reading = Path(__file__).with_name("read_version.py")
    later: dict[str, Callable[[], Cost]] = {
        "every batch": lambda: measured([sys.executable, str(reading), "batch", str(version)], settings),
        "every unit": lambda: measured([sys.executable, str(reading), "unit", str(version)], settings),
        "again": lambda: almoner(settings, "dataset", "ingest", "first", str(source)),
        "stranger": lambda: almoner(settings, "dataset", "ingest", "stranger", str(source), code=REFUSED),
    }
    yield "ingest", taken
    yield from ((name, act()) for name, act in later.items() if name in only)


def almoner(settings: Mapping[str, str], *words: str, code: int = 0) -> Cost:
    """A command as people type it."""
    return measured([sys.executable, "-c", CLI, *words], settings, code)


def measured(command: Sequence[str], settings: Mapping[str, str], code: int = 0) -> Cost:
    """What a process takes under some settings, which must end with that exit code."""
    return cost_of_process(command, {**os.environ, **settings}, code=code)


if __name__ == "__main__":
    main()
