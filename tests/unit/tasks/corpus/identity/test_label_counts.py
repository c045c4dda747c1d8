"""Units counted by label: once each, under the label that they are read under, and no other unit can move that."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.store import LabelsNotKept, PartOfCorpus, open_corpus
from tests.unit.tasks.corpus.identity.test_label_batches import DECLARED, KEY, RECORDS, Record, stored

pytestmark = [pytest.mark.dear, pytest.mark.contract]

SPLIT = BatchSplit(KEY, "r1")
SCHEME = PartitionScheme(KEY, 2)
REST: list[Record] = [(99, "somebody who stays", "elsewhere")]


def counts(records: list[Record], blocks: tuple[int, ...] = (0, 1)) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        corpus = stored(Path(folder), [*records, *REST])
        if len(blocks) == SCHEME.blocks:
            return corpus.label_counts(SCHEME, SPLIT, DECLARED)
        part = SomeBlocks.of(SCHEME, blocks)
        return PartOfCorpus.of(corpus, part).label_counts(part, SPLIT, DECLARED)


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_the_counts_are_those_of_the_rows_that_are_read(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = stored(Path(folder), [*records, *REST])
        places = [(block, label, 0) for block in range(2) for label in range(3)]
        rows = corpus.batches(SCHEME, SPLIT, 1, places, DECLARED)
        expected = [sum(len(rows[block, label, 0]) for block in range(2)) for label in range(3)]
        assert corpus.label_counts(SCHEME, SPLIT, DECLARED) == expected


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_one_unit_moves_one_count_by_one(records: list[Record]) -> None:
    """However many documents and labels it has: the sensitivity that is charged."""
    unit = [(7, text, label) for text in "uvw" for label in DECLARED]
    moved = [after - before for before, after in zip(counts(records), counts([*records, *unit]), strict=True)]
    assert sorted(moved) == [0, 0, 1]


@settings(max_examples=10, deadline=None)
@given(RECORDS)
def test_the_blocks_add_up(records: list[Record]) -> None:
    first, second = counts(records, (0,)), counts(records, (1,))
    assert [a + b for a, b in zip(first, second, strict=True)] == counts(records)


def test_each_label_may_have_its_own_number_of_batches(tmp_path: Path) -> None:
    records: list[Record] = [(unit, "u", DECLARED[unit % 2]) for unit in range(40)]
    corpus, sizes = stored(tmp_path, records), [5, 2, 1]
    places = [(0, label, batch) for label, size in enumerate(sizes) for batch in range(size)]
    rows = corpus.batches(PartitionScheme(KEY, 1), SPLIT, sizes, places, DECLARED)
    for (_, label, batch), members in rows.items():
        assert all(SPLIT.batch_of(row.unit, sizes[label]) == batch for row in members)
    assert sum(map(len, rows.values())) == 40
    with pytest.raises(ValueError, match="batch 2 of label 1"):
        corpus.batches(PartitionScheme(KEY, 1), SPLIT, sizes, [(0, 1, 2)], DECLARED)
    with pytest.raises(ValueError, match="3 labels need a number of batches each, not 2"):
        corpus.batches(PartitionScheme(KEY, 1), SPLIT, sizes[:2], [(0, 1, 0)], DECLARED)


def test_a_version_without_labels_is_not_counted(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    corpus = open_corpus(home, ingest(home, jsonl([{"who": "p", "text": "a note"}]), "who", KEY).uid)
    with pytest.raises(LabelsNotKept):
        corpus.label_counts(SCHEME, SPLIT, DECLARED)
