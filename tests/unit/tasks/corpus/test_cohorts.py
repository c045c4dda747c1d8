"""Cohorts of units: a history decides a unit's block by that unit alone, and a version knows the cohort of each."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.home import ProjectHome
from tasks.corpus import partition as cohorts_module
from tasks.corpus.ingest import ingest
from tasks.corpus.keys import mark_of
from tasks.corpus.partition import NOWHERE, BatchSplit, Cohorts, PartitionScheme, SomeBlocks
from tasks.corpus.store import PartOfCorpus, iter_marks, open_corpus

pytestmark = pytest.mark.dear

KEY = b"k" * 32
SPLIT = BatchSplit(KEY, "r")
UNITS = [f"p{n}" for n in range(8)]
HISTORIES = st.lists(st.tuples(st.sets(st.sampled_from(UNITS)), st.booleans()), min_size=1, max_size=6)
"""Versions: who is in each, and whether it opens a cohort."""

History = list[tuple[set[str], bool]]


def cohorts_of(history: History) -> tuple[int, dict[str, int]]:
    """How many cohorts there are in the end, and that of every unit: the rule as `services.cohorts` states it."""
    newest, known = 1, dict[str, int]()
    for number, (units, opens) in enumerate(history):
        newest += opens and number > 0
        known = dict.fromkeys(units, newest) | known
    return newest, known


@given(HISTORIES, st.integers(1, 4), st.sampled_from(UNITS))
def test_removing_a_unit_from_every_version_changes_one_block(history: History, each: int, gone: str) -> None:
    newest, known = cohorts_of(history)
    same, without = cohorts_of([(units - {gone}, opens) for units, opens in history])
    scheme = PartitionScheme(KEY, each * newest, newest)
    assert same == newest
    assert without == {unit: cohort for unit, cohort in known.items() if unit != gone}
    blocks = range(scheme.blocks)
    for units, _ in history:
        before, after = (
            [{unit for unit in there if scheme.block_of(unit, known[unit]) == block} for block in blocks]
            for there in (units, units - {gone})
        )
        changed = [block for block in blocks if before[block] != after[block]]
        assert changed == ([scheme.block_of(gone, known[gone])] if gone in units else [])
        assert sum(map(len, before)) == len(units)


@given(st.text(min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_a_unit_has_one_block_for_life(unit: str, each: int, cohort: int, later: int) -> None:
    """However many cohorts are opened afterwards, and whichever of its blocks a release reads."""
    block = PartitionScheme(KEY, each * cohort, cohort).block_of(unit, cohort)
    assert block // each + 1 == cohort
    assert block % each == PartitionScheme(KEY, each).block_of(unit)
    grown = PartitionScheme(KEY, each * (cohort + later), cohort + later)
    assert grown.block_of(unit, cohort) == block
    read = [b for b in range(grown.blocks) if SomeBlocks.of(grown, [b]).reads(unit, cohort)]
    assert read == [block]


def test_a_cohort_that_a_partition_does_not_know_is_nowhere() -> None:
    first = PartitionScheme(KEY, 3)
    assert (first.block_of("p1", 2), first.reads("p1", 2), first.reads("p1", 1)) == (NOWHERE, False, True)
    part = SomeBlocks.of(first, [0, 1, 2])
    assert (part.block_of("p1", 2), part.reads("p1", 2)) == (NOWHERE, False)
    assert part.block_of("p1") == first.block_of("p1")


@pytest.mark.parametrize(("blocks", "cohorts"), [(3, 2), (4, 0), (4, -1)])
def test_cohorts_have_the_same_number_of_blocks(blocks: int, cohorts: int) -> None:
    with pytest.raises(ValueError):
        PartitionScheme(KEY, blocks, cohorts)


@pytest.fixture
def grown(home: ProjectHome, jsonl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> str:
    """A version in which even units are known in cohort 1, and all others are new in cohort 3."""
    monkeypatch.setattr(cohorts_module, "MARKS_AT_ONCE", 3)
    asked: list[int] = []

    def known(marks: Sequence[bytes]) -> Mapping[bytes, int]:
        asked.append(len(marks))
        there = {mark_of(KEY, unit): 1 for unit in UNITS[::2]}
        return {mark: there[mark] for mark in marks if mark in there}

    notes = [{"who": unit, "text": f"note of {unit}", "kind": "a"} for unit in UNITS * 2]
    uid = ingest(home, jsonl(notes), "who", KEY, label_field="kind", cohorts=Cohorts(3, known)).uid
    assert asked == [3, 3, 2]
    return uid


def test_a_version_knows_the_cohort_of_each_unit(home: ProjectHome, grown: str) -> None:
    assert dict(iter_marks(home, grown)) == {mark_of(KEY, u): 1 if n % 2 == 0 else 3 for n, u in enumerate(UNITS)}


@pytest.mark.parametrize("labels", [[], ["a"]])
def test_units_of_other_cohorts_are_not_read(home: ProjectHome, grown: str, labels: list[str]) -> None:
    scheme, corpus = PartitionScheme(KEY, 6, 3), open_corpus(home, grown)
    for cohort, expected in ((1, set(UNITS[::2])), (2, set()), (3, set(UNITS[1::2]))):
        part = SomeBlocks.of(scheme, range(2 * cohort - 2, 2 * cohort))
        some = PartOfCorpus.of(corpus, part)
        assert some.unit_count() == len(expected)
        rows = some.batches(part, SPLIT, 1, [(0, 0, 0), (1, 0, 0)], labels)
        assert {row.unit for found in rows.values() for row in found} == expected
        assert {row.unit for _, row in some.each(part, SPLIT, labels)} == expected
    everything = corpus.batches(scheme, SPLIT, 1, [(block, 0, 0) for block in range(6)], labels)
    assert {row.unit for found in everything.values() for row in found} == set(UNITS)


@pytest.mark.parametrize("labels", [[], ["a"]])
def test_the_partition_of_one_cohort_reads_nobody_of_another(home: ProjectHome, grown: str, labels: list[str]) -> None:
    """Code that knows of one cohort only must not read a unit that another block pays for."""
    first, corpus = PartitionScheme(KEY, 2), open_corpus(home, grown)
    rows = corpus.batches(first, SPLIT, 1, [(0, 0, 0), (1, 0, 0)], labels)
    assert {row.unit for found in rows.values() for row in found} == set(UNITS[::2])
    assert {row.unit for _, row in corpus.each(first, SPLIT, labels)} == set(UNITS[::2])
