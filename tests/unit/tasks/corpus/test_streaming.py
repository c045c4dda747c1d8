"""A corpus streams: what Python holds while one comes in, or is read a unit at a time, does not grow with it."""

import csv
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models_db.home import ProjectHome
from models_db.services import datasets
from models_db.writes import links as unit_marks
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import iter_marks, open_corpus
from tests.conftest import Ledgers
from tests.support import World

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/corpus",)

KEY = bytes(range(32))
SPLIT = BatchSplit(KEY, "s")
FEW, MANY = 1_000, 6_000
ROOM = 400_000
"""Bytes by which the peak may grow: as many as some hundred documents have, where 5,000 more come in."""


def peak(act: Callable[[], object]) -> int:
    """The most bytes of Python objects at once while it runs; what SQLite and Arrow keep is bounded by themselves."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def documents(many: int) -> Iterator[dict[str, str]]:
    for number in range(many):
        yield {"id": f"note-{number:06}", "unit": f"unit-{number:06}", "text": f"Visit {number}: " + "all well. " * 20}


def written(folder: Path, form: str, many: int) -> Path:
    path = folder / f"{many}.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(list(documents(many))), path)
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        if form == "csv":
            rows = csv.DictWriter(file, ["id", "unit", "text"])
            rows.writeheader()
            rows.writerows(documents(many))
        else:
            file.writelines(json.dumps(document) + "\n" for document in documents(many))
    return path


@pytest.mark.slow_except("jsonl")
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_ingest_and_reading_units(tmp_path: Path, form: str) -> None:
    home, scheme = ProjectHome(tmp_path / "home"), PartitionScheme(KEY, 4)
    home.create()
    ingest(home, written(tmp_path, form, 10), "unit", KEY)  # what is imported at the first time is not counted
    peaks: dict[str, list[int]] = {"ingest": [], "each": [], "shards": [], "marks": []}
    for many in (FEW, MANY):
        source = written(tmp_path, form, many)
        peaks["ingest"].append(peak(lambda: ingest(home, source, "unit", KEY)))  # noqa: B023
        newest = max((entry for entry in home.corpora.iterdir()), key=lambda entry: entry.stat().st_mtime_ns)
        corpus = open_corpus(home, newest.name)
        assert corpus.unit_count() == many
        peaks["each"].append(peak(lambda: sum(1 for _ in corpus.each(scheme, SPLIT))))  # noqa: B023
        shards = corpus.each_shard(scheme, SPLIT, range(4))
        peaks["shards"].append(peak(lambda: sum(len(shard) for shard in shards)))  # noqa: B023
        peaks["marks"].append(peak(lambda: sum(1 for _ in iter_marks(home, corpus.uid))))  # noqa: B023
    assert [what for what, (few, many) in peaks.items() if many > few + ROOM] == [], peaks


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_ledger_takes_marks_in(ledgers: Ledgers, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_marks, "_SORT_BATCH", 1000)
    monkeypatch.setattr(unit_marks, "_INSERT_BATCH", 300)
    with ledgers.new(backend) as database:
        world = World.create(database)
        world.dataset()
        numbers = itertools.count(1)

        def take(many: int) -> None:
            units = ((next(numbers).to_bytes(32, "little"), 1) for _ in range(many))
            with database.write() as session:
                unit_marks.claim_units(session, datasets.find_dataset(session, "clinic").account_id, units)

        take(1000)
        few, many = peak(lambda: take(FEW)), peak(lambda: take(MANY))
        assert many <= few + ROOM, (few, many)


@pytest.mark.parametrize("many", [0, 1, 299, 300, 1000, 1001, 2500])
def test_every_mark_is_in_one_batch(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_marks, "_SORT_BATCH", 1000)
    monkeypatch.setattr(unit_marks, "_INSERT_BATCH", 300)
    units = [((7919 * number % 2503).to_bytes(2, "big"), 1 + number % 2) for number in range(many)]
    batches = list(unit_marks._sorted_batches(iter(units)))
    assert sorted(unit for batch in batches for unit in batch) == sorted(units)
    assert all(0 < len(batch) <= 300 for batch in batches)
    assert all(batch == sorted(batch) for batch in batches)
