"""A corpus read by shard: every unit once, wherever it belongs by itself, and in the order of the whole."""

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tasks.corpus import store
from tasks.corpus.ingest import ingest
from tasks.corpus.keys import mark_of
from tasks.corpus.partition import BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.store import (
    SHARDS,
    Corpus,
    PartOfCorpus,
    PlacedUnit,
    ShardProgress,
    WholeCorpusRequested,
    lots,
    open_corpus,
)
from tests.refusals import refusal

KEY = bytes(range(32))
SPLIT = BatchSplit(KEY, "r")
SCHEME = PartitionScheme(KEY, 3)
LABELS = ("a", "b")
NOTES = [
    {"who": f"p{n % 150}", "text": f"note {n}", "kind": ("a", "b", "c", None)[(n // 150 + n) % 4]} for n in range(400)
]


@pytest.fixture
def corpus(home: ProjectHome, jsonl: Callable[..., Path]) -> Corpus:
    notes = [{name: value for name, value in note.items() if value is not None} for note in NOTES]
    return open_corpus(home, ingest(home, jsonl(notes), "who", KEY, label_field="kind").uid)


def shards_of(corpus: Corpus, blocks: tuple[int, ...], labels: tuple[str, ...] = ()) -> list[list[PlacedUnit]]:
    return list(corpus.each_shard(SCHEME, SPLIT, blocks, labels))


@pytest.mark.parametrize("labels", [(), LABELS])
@pytest.mark.parametrize("blocks", [(0, 1, 2), (1,), (2, 0)])
def test_in_keyed_order_units_are_those_of_batches(
    corpus: Corpus, blocks: tuple[int, ...], labels: tuple[str, ...]
) -> None:
    shards = shards_of(corpus, blocks, labels)
    assert len(shards) == SHARDS
    every = sorted(itertools.chain(*shards), key=lambda placed: placed.order)
    places = [(block, label, 0) for block in blocks for label in range(max(1, len(labels)))]
    batches = corpus.batches(SCHEME, SPLIT, 1, places, labels)
    assert [(placed.label, placed.unit) for placed in every] == [
        (place[1], row) for place in places for row in batches[place]
    ]
    assert len(every) > 20


def test_the_shard_of_a_unit_follows_from_its_id_alone(corpus: Corpus) -> None:
    for number, shard in enumerate(shards_of(corpus, (0, 1, 2))):
        assert all(mark_of(KEY, placed.unit.unit)[0] == number for placed in shard)


def test_a_unit_less_leaves_every_other_one_where_it_was(
    corpus: Corpus, home: ProjectHome, jsonl: Callable[..., Path]
) -> None:
    notes = [{"who": note["who"], "text": note["text"]} for note in NOTES if note["who"] != "p7"]
    fewer = open_corpus(home, ingest(home, jsonl(notes), "who", KEY).uid)
    without = [[placed for placed in shard if placed.unit.unit != "p7"] for shard in shards_of(corpus, (0, 1, 2))]
    assert shards_of(fewer, (0, 1, 2)) == without


def test_nothing_of_another_block_is_read(corpus: Corpus) -> None:
    part = SomeBlocks.of(SCHEME, [1])
    some = PartOfCorpus.of(corpus, part)
    units = [placed.unit for shard in some.each_shard(part, SPLIT, (0,)) for placed in shard]
    assert units
    assert all(SCHEME.block_of(row.unit) == 1 for row in units)
    with pytest.raises(WholeCorpusRequested):
        list(some.each_shard(SCHEME, SPLIT, (0,)))
    with pytest.raises(WholeCorpusRequested):
        some.shard_texts(0)
    with pytest.raises(ValueError):
        list(corpus.each_shard(SCHEME, SPLIT, (3,)))


def test_labels_are_refused_where_none_were_kept(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    plain = open_corpus(home, ingest(home, jsonl([{"who": "p", "text": "x"}]), "who", KEY).uid)
    with refusal("LabelsNotKept"):
        next(plain.each_shard(SCHEME, SPLIT, (0,), LABELS))


def test_the_documents_of_all_shards_are_those_of_the_corpus(corpus: Corpus) -> None:
    texts = [text for shard in range(SHARDS) for text in corpus.shard_texts(shard)]
    assert sorted(texts) == sorted(corpus.texts())


def test_a_shard_is_looked_up_and_not_searched_for(corpus: Corpus) -> None:
    """Else a pass by shard would read the whole table of units for each of them."""
    with sqlite3.connect(corpus.database) as connection:
        for query in (store._OF_SHARD, store._CARRIED_OF_SHARD, store._TEXTS_OF_SHARD):
            plan = str(connection.execute(f"EXPLAIN QUERY PLAN {query}", (b"a",)).fetchall())
            assert "units_by_shard" in plan, plan
            assert "SCAN" not in plan, plan


def test_what_is_read_is_not_in_a_representation(corpus: Corpus) -> None:
    for lot in lots(corpus.each_shard(SCHEME, SPLIT, (0, 1, 2))):
        assert "note" not in repr(lot)
        assert "note" not in repr(lot.units)
        assert "p1" not in repr(lot.units)


@pytest.mark.parametrize("least", [1, 10, 60, 10_000])
def test_lots_are_consecutive_shards_with_every_unit_once(corpus: Corpus, least: int) -> None:
    shards = shards_of(corpus, (0, 1, 2))
    made = list(lots(iter(shards), least))
    assert [lot.first for lot in made] == [0, *(lot.after for lot in made[:-1])]
    assert made[-1].after == SHARDS
    assert [placed for lot in made for placed in lot.units] == list(itertools.chain(*shards))
    assert all(len(lot.units) >= least for lot in made[:-1])


def test_progress_counts_shards_and_ends_with_the_last_one(corpus: Corpus) -> None:
    shares: list[float] = []
    progress = ShardProgress(lambda done, total: shares.append(done / total))
    for lot in lots(corpus.each_shard(SCHEME, SPLIT, (0, 1, 2)), 20):
        progress.enter(lot)
        for done in range(len(lot.units)):
            progress(done, len(lot.units))
        progress(0, 0)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
