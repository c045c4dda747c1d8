"""What an ingest spends its processor time on, and how much of it workers could take over.

    python -m benchmarks.ingestion.time_by_stage --documents 10000                                         # a small run
    python -m benchmarks.ingestion.time_by_stage --documents 30000 --rounds 4 --out docs/figures/ingest_parts.jsonl

The parts are the differences of real calls, which take turns within a round: `read` parses, checks and normalises every
record; `marks` makes the mark of each unit and that of the content; `store` writes both into the version's file, with
its indexes; `ledger` claims the units for the dataset's account. `handing over` is what a process pays to receive
the documents that workers have read: pickled in thousands and unpickled again. Reading and marks of units are functions
of one record; the mark of the content, the file and the ledger are each one sequence. Documents are units of their
own, of 30 words.
"""

import argparse
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common.json_lines import write_lines
from benchmarks.ingestion.scale import almoner, source_of
from benchmarks.orchestration import interval
from flows.datasets.register import ingest as ingest_and_record
from flows.workspace.workspace import open_workspace
from models_db.home import ProjectHome
from tasks.corpus.identity.fingerprints import ManifestMark, mark_of
from tasks.corpus.ingest import ingest
from tasks.corpus.readers.readers import read_documents

KEY = bytes(32)
AT_ONCE = 1000
PARTS = {
    "read": "read, check, normalise",
    "marks": "marks of units, mark of the content",
    "store": "the version's file, with its indexes",
    "ledger": "the ledger claims the units",
    "handing over": "for comparison: receiving read documents from workers",
}
"""How docs/distributed.md names the parts."""


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of docs/distributed.md: means over rounds, and 95 % intervals."""
    yield "| part of an ingest | processor s for each 10^5 documents | of the whole |"
    yield "| --- | --- | --- |"
    whole = mean(sum(row[part] for part in PARTS if part != "handing over") for row in rows)
    for part, title in PARTS.items():
        seconds = [row[part] for row in rows]
        yield f"| {title} | {interval(seconds)} | {100 * mean(seconds) / whole:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSONL file for the figures")
    given = parser.parse_args()
    rows = [one_round(number, given.documents) for number in range(given.rounds)]
    if given.out:
        write_lines(given.out, rows)
    print(*rows, sep="\n")


def one_round(number: int, documents: int) -> dict[str, int | float]:
    """Measure every part once, in a new home; seconds for each 10^5 documents."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
        source, home = source_of(Path(folder), "jsonl", documents, 30), ProjectHome(Path(folder) / "home")
        settings = {"ALMONER_HOME": str(home.root)}
        almoner(settings, "init")
        almoner(settings, "dataset", "register", "notes", "--unit", "id", "--epsilon", "8", "--delta", "1e-6")
        workspace = open_workspace(home)

        def read() -> None:
            for _ in read_documents(source, "id"):
                pass

        def read_and_mark() -> None:
            manifest = ManifestMark(KEY)
            for document in read_documents(source, "id"):
                manifest.add(document.unit, document.document_id, document.text)
                mark_of(KEY, str(document.unit))
            manifest.hexdigest()

        calls: dict[str, Callable[[], object]] = {
            "read": read,
            "marks": read_and_mark,
            "store": lambda: ingest(home, source, "id", KEY),
            "ledger": lambda: ingest_and_record(workspace, "notes", source),
            "handing over": lambda: hand_over(source),
        }
        read()  # what reading imports is no part of it
        took = {name: processor_of(call) * 100_000 / documents for name, call in calls.items()}
    took["handing over"] -= took["read"]
    took["ledger"] -= took["store"]
    took["store"] -= took["marks"]
    took["marks"] -= took["read"]
    return {"round": number, "documents": documents, **{name: round(seconds, 2) for name, seconds in took.items()}}


def hand_over(source: Path) -> None:
    """Read the documents, and pickle and unpickle them in thousands."""
    documents = read_documents(source, "id")
    while some := [(each.unit, each.document_id, each.text, each.label) for each in islice(documents, AT_ONCE)]:
        pickle.loads(pickle.dumps(some))


def processor_of(call: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    before = time.process_time()
    call()
    return time.process_time() - before


if __name__ == "__main__":
    main()
