"""Some blocks of a corpus: no door of it leads to a unit of another block."""

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import NOWHERE, BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.store import Corpus, PartOfCorpus, WholeCorpusRequested, open_corpus

pytestmark = pytest.mark.contract

KEY = bytes(range(32))
SPLIT = BatchSplit(KEY, "r")
WHOLE = PartitionScheme(KEY, 6)
READ = (1, 4)
PART = SomeBlocks.of(WHOLE, READ)
PEOPLE = [f"p{number}" for number in range(40)]
INSIDE = {person for person in PEOPLE if WHOLE.block_of(person) in READ}


@pytest.fixture
def corpus(home: ProjectHome, jsonl: Callable[..., Path]) -> Corpus:
    notes = [
        {"who": person, "kind": "ab"[number % 2], "text": f"note {number} of {person}"}
        for number in range(3)
        for person in PEOPLE
    ]
    return open_corpus(home, ingest(home, jsonl(notes), "who", KEY, label_field="kind").uid)


def test_blocks_are_numbered_anew_and_units_of_others_are_nowhere() -> None:
    for person in PEOPLE:
        block = WHOLE.block_of(person)
        assert PART.block_of(person) == (READ.index(block) if block in READ else NOWHERE)
        assert PART.reads(person) is (block in READ)
        assert WHOLE.reads(person)
    assert PART.blocks == 2
    assert 0 < len(INSIDE) < len(PEOPLE)


@pytest.mark.parametrize("read", [(), (4, 1), (1, 1), (6,), (-1,)])
def test_what_are_no_blocks(read: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        SomeBlocks.of(WHOLE, read)


@pytest.mark.parametrize("labels", [(), ("a", "b")])
def test_no_door_leads_to_another_block(corpus: Corpus, labels: tuple[str, ...]) -> None:
    part = PartOfCorpus.of(corpus, PART)
    assert part.unit_count() == len(INSIDE)
    assert {row.unit for _, row in part.each(PART, SPLIT, labels)} == INSIDE
    places = list(itertools.product(range(2), range(max(1, len(labels))), range(3)))
    found = part.batches(PART, SPLIT, 3, places, labels)
    assert {row.unit for rows in found.values() for row in rows} == INSIDE
    whole = corpus.batches(
        WHOLE, SPLIT, 3, list(itertools.product(range(6), range(max(1, len(labels))), range(3))), labels
    )
    for (block, label, batch), rows in found.items():
        assert rows == whole[READ[block], label, batch]


def test_by_another_partition_nothing_is_read(corpus: Corpus) -> None:
    part = PartOfCorpus.of(corpus, PART)
    for other in (WHOLE, SomeBlocks.of(WHOLE, (0, 4)), PartitionScheme(KEY, 2)):
        with pytest.raises(WholeCorpusRequested):
            part.batches(other, SPLIT, 1, [(0, 0, 0)])
        with pytest.raises(WholeCorpusRequested):
            part.each(other, SPLIT)
    for whole in (part.texts, part.labelled):
        with pytest.raises(WholeCorpusRequested):
            whole()


def test_every_door_of_a_corpus_is_one_of_its_part() -> None:
    """Whoever gives `Corpus` another method that reads units has to say here what it does in a part."""
    doors = {name for name, _ in inspect.getmembers(Corpus, inspect.isfunction) if not name.startswith("_")}
    assert doors - set(vars(PartOfCorpus)) == {"label_fields", "require_labels"}
