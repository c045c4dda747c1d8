"""How fast a corpus enters the project home, against a bare loop over the same file in the same process.

    python -m benchmarks.ingestion.ingest --documents 1000000

The two alternate, so that their ratio holds on a noisy machine. Peak memory is the whole process'.
"""

import argparse
import json
import random
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import open_corpus
from tasks.corpus.versions import remove_version

SPLIT = BatchSplit(bytes(32), "bench")
DOCUMENTS_PER_UNIT = 4
WORDS = (
    "the",
    "patient",
    "says",
    "pain",
    "in",
    "left",
    "knee",
    "began",
    "after",
    "long",
    "walk",
    "and",
    "eases",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=100, help="words in each document")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
        source = Path(folder) / "corpus.jsonl"
        write_source(source, arguments.documents, arguments.words)
        measure(source, ProjectHome(Path(folder) / "home"), arguments.documents, arguments.rounds)


def write_source(path: Path, documents: int, words: int) -> None:
    """Synthetic documents; ids and units in no sorted order, as real ones are."""
    chooser = random.Random(0)  # text for a stopwatch: no privacy randomness
    with path.open("w", encoding="utf-8") as file:
        for _ in range(documents):
            unit = f"unit-{chooser.randrange(max(1, documents // DOCUMENTS_PER_UNIT)):012}"
            text = " ".join(chooser.choices(WORDS, k=words))
            file.write(json.dumps({"id": f"{chooser.getrandbits(96):024x}", "unit": unit, "text": text}) + "\n")


def measure(source: Path, home: ProjectHome, documents: int, rounds: int) -> None:
    home.create()
    key = secrets.token_bytes(32)
    bare, ingested, read = [], [], []
    for number in range(rounds):
        bare.append(timed(lambda: bare_loop(source)))
        start_peak = peak_mib()
        started = time.perf_counter()
        version = ingest(home, source, "unit", key)
        ingested.append(time.perf_counter() - started)
        if number == 0:
            grown = peak_mib() - start_peak
        corpus, scheme = open_corpus(home, version.uid), PartitionScheme(key, 4)
        read.append(timed(lambda: corpus.batches(scheme, SPLIT, 1000, {(0, 0, 0), (1, 0, 1)})))  # noqa: B023
        remove_version(home, version.uid)
    print(f"{documents:,} documents, {source.stat().st_size / 2**20:,.0f} MiB, median of {rounds} rounds")
    print(f"{'':34}{'seconds':>10}{'documents/s':>14}{'ratio':>8}")
    for name, seconds in (
        ("bare json.loads loop", bare),
        ("ingest", ingested),
        ("read two batches of 4,000", read),
    ):
        took = median(seconds)
        print(f"{name:34}{took:>10.2f}{documents / took:>14,.0f}{took / median(bare):>8.1f}")
    print(f"peak memory {peak_mib():,.0f} MiB, of which the first ingest {grown:,.0f} MiB")


def bare_loop(source: Path) -> None:
    with source.open("rb") as file:
        for line in file:
            json.loads(line)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_mib() -> float:
    """Peak resident memory of this process so far; getrusage counts in KiB, on macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


if __name__ == "__main__":
    main()
