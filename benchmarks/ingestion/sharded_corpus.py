"""A corpus read by shard: time and peak memory of whole passes, each in a process of its own.

    python -m benchmarks.ingestion.sharded_corpus                                        # 10^4 and 10^5 documents
    python -m benchmarks.ingestion.sharded_corpus --documents 100000 1000000 --out docs/figures/sharded_corpus.jsonl
    python -m benchmarks.ingestion.sharded_corpus --documents 10000000 --passes lots facets overlap --out ...

`ingest` is `almoner dataset ingest`, with the ledger. The passes read every unit of the version and keep nothing:
`whole` all of it at once, which is how insights and votes were computed before; `lots` by shard, as they are now;
`lots of 10^7` holds as many units at once as one shard of 10^7 documents has; `facets` extracts the facets of each unit
from lots (RAKE, this process alone). `overlap` is the internal metric that reads every document, by this process alone;
`overlap, workers` is the same on two processes. `start` imports what all passes import. Memory is the peak of the
process, or of the largest of its workers, as the kernel tells it. Documents are units of their own, of 30 words.
"""

import argparse
import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.json_lines import append_lines
from benchmarks.ingestion.ingest import WORDS
from benchmarks.ingestion.scale import BLOCKS, Cost, almoner, measured, source_of
from models_db.home import ProjectHome
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.shards import lots
from tasks.corpus.store import DATABASE, SHARDS, Corpus

SPLIT = BatchSplit(bytes(32), "bench")
TO = 10_000_000
"""Documents that figures are extrapolated to."""


TITLES = {
    "ingest": "`dataset ingest`, store and ledger",
    "start": "nothing but imports",
    "whole": "every unit at once, as before",
    "lots": "every unit, by shard",
    "lots of 10^7": "the same, as many units together as a shard of 10^7 has (39,000)",
    "facets": "facets by RAKE, by shard",
    "overlap": "overlap of 100 texts with every document, one process",
    "overlap, workers": "the same, two workers",
}
"""How docs/distributed.md names the steps."""


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of docs/distributed.md: processor seconds and peak MiB of what was measured."""
    found = {(line["step"], line["documents"]): line for line in lines}
    yield "| step | 10^5 | 10^6 | 10^7 |"
    yield "| --- | --- | --- | --- |"
    for step, title in TITLES.items():
        measured = (found.get((step, documents)) for documents in (10**5, 10**6, 10**7))
        shown = (f"{line['processor_s']:.1f}, {line['peak_mib']}" if line else "" for line in measured)
        yield f"| {title} | {' | '.join(shown)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--passes", nargs="*", default=list(PASSES), choices=list(PASSES), help="beside the ingest")
    parser.add_argument("--out", type=Path, help="a JSONL file for the figures; lines are added to it")
    parser.add_argument("--pass", dest="one", nargs=2, metavar=("NAME", "VERSION"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, version = given.one
        PASSES[name](Corpus(Path(version).name, Path(version) / DATABASE))
        return
    rows = []
    for documents in given.documents:
        for row in costs(documents, given.passes):
            rows.append(row)
            if given.out:
                append_lines(given.out, [row])
    print_table(rows, given.documents)


def costs(documents: int, passes: Sequence[str]) -> Iterator[dict[str, str | int | float]]:
    """The ingest and each of the passes once, in a new home."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
        source, home = source_of(Path(folder), "jsonl", documents, 30), Path(folder) / "home"
        settings = {"ALMONER_HOME": str(home)}
        almoner(settings, "init")
        claim = ("--unit", "id", "--epsilon", "8", "--delta", "1e-6", "--blocks", str(BLOCKS))
        almoner(settings, "dataset", "register", "notes", *claim)
        ingest = almoner(settings, "dataset", "ingest", "notes", str(source))
        source.unlink()
        (version,) = ProjectHome(home).corpora.iterdir()

        def line(step: str, cost: Cost) -> dict[str, str | int | float]:
            return {
                "step": step,
                "documents": documents,
                "processor_s": round(cost.processor, 1),
                "wall_s": round(cost.wall, 1),
                "peak_mib": round(cost.peak_mib),
                "store_mib": round((version / DATABASE).stat().st_size / 2**20),
            }

        yield line("ingest", ingest)
        for name in passes:
            yield line(name, measured([sys.executable, __file__, "--pass", name, str(version)], {}))


def start(corpus: Corpus) -> None:
    """Nothing but what is imported: what every other pass has, too."""


def whole(corpus: Corpus) -> None:
    places = [(block, 0, 0) for block in range(BLOCKS)]
    rows = corpus.batches(scheme(), SPLIT, 1, places)
    _require_all(corpus, sum(map(len, rows.values())))


def by_lot(corpus: Corpus) -> None:
    _require_all(corpus, sum(len(lot.units) for lot in lots(corpus.each_shard(scheme(), SPLIT, range(BLOCKS)))))


def by_large_lot(corpus: Corpus) -> None:
    shards = corpus.each_shard(scheme(), SPLIT, range(BLOCKS))
    _require_all(corpus, sum(len(lot.units) for lot in lots(shards, TO // SHARDS)))


def facets(corpus: Corpus) -> None:
    from tasks.analysis.facets.extractor import extractor_for
    from tasks.analysis.facets.parameters import FacetSettings

    extract, count = extractor_for(FacetSettings()), 0
    for lot in lots(corpus.each_shard(scheme(), SPLIT, range(BLOCKS))):
        count += len(extract([placed.unit.text for placed in lot.units]))
    _require_all(corpus, count)


def overlap(corpus: Corpus, workers: int = 1) -> None:
    from tasks.evaluation.core.by_shard import ShardedDocuments
    from tasks.evaluation.core.subject import EvaluationInput
    from tasks.evaluation.lexical.verbatim_overlap import verbatim_overlap
    from tasks.values.generated import GeneratedText
    from tasks.workers.processes import ProcessRunner

    chooser = random.Random(1)
    released = [GeneratedText(" ".join(chooser.choices(WORDS, k=60)), 60, True) for _ in range(100)]
    by_shard = None
    if workers > 1:
        by_shard = ShardedDocuments(ProcessRunner(), workers, SHARDS, corpus.shard_texts, lambda done, of: None)
    verbatim_overlap(EvaluationInput(released, documents=corpus.texts, by_shard=by_shard))


def overlap_by_workers(corpus: Corpus) -> None:
    overlap(corpus, workers=2)


PASSES: dict[str, Callable[[Corpus], None]] = {
    "start": start,
    "whole": whole,
    "lots": by_lot,
    "lots of 10^7": by_large_lot,
    "facets": facets,
    "overlap": overlap,
    "overlap, workers": overlap_by_workers,
}


def scheme() -> PartitionScheme:
    return PartitionScheme(secrets.token_bytes(32), BLOCKS)


def _require_all(corpus: Corpus, found: int) -> None:
    if found != corpus.unit_count():
        raise SystemExit("the pass lost count")


def print_table(rows: list[dict[str, str | int | float]], sizes: list[int]) -> None:
    """Figures, and processor time for ten million documents if it goes on as from 10^5 to 10^6: so much a shard."""
    print(f"{'step':18}{'documents':>12}{'processor s':>13}{'wall s':>9}{'peak MiB':>10}{'store MiB':>11}")
    for row in rows:
        print(f"{row['step']:18}{row['documents']:>12,}{row['processor_s']:>13}{row['wall_s']:>9}{row['peak_mib']:>10}"
              f"{row['store_mib']:>11}")  # fmt: skip
    print(f"\nprocessor seconds for {TO:,}, extrapolated")
    for row in rows:
        if row["documents"] == sizes[-1]:
            print(f"{row['step']:18}{TO / sizes[-1] * float(row['processor_s']):>25,.0f}")


if __name__ == "__main__":
    main()
