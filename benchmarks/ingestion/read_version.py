"""Reads a stored version once, as a release does: all batches of a thousand a block, or every unit. For ingest_scale.

python -m benchmarks.ingestion.read_version batch HOME/corpora/UID
"""

import secrets
import sys
from itertools import product
from pathlib import Path

from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import DATABASE, Corpus

SPLIT = BatchSplit(bytes(32), "bench")
BLOCKS, BATCHES = 4, 1000


def main() -> None:
    how, version = sys.argv[1:]
    corpus = Corpus(Path(version).name, Path(version) / DATABASE)
    scheme = PartitionScheme(secrets.token_bytes(32), BLOCKS)
    if how == "unit":
        found = sum(1 for _ in corpus.each(scheme, SPLIT))
    else:
        places = [(block, 0, batch) for block, batch in product(range(BLOCKS), range(BATCHES))]
        found = sum(len(rows) for rows in corpus.batches(scheme, SPLIT, BATCHES, places).values())
    if found != corpus.unit_count():
        raise SystemExit("the partition lost count")


if __name__ == "__main__":
    main()
