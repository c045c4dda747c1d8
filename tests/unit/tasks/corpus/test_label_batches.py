"""Batches by label: a unit is in one of them, chosen by key, and no other unit can move it."""

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from models_db.home import ProjectHome
from tasks.corpus import store
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus, Place, UnitDocuments, open_corpus
from tasks.corpus.units import LONGEST_LABEL, MOST_LABELS, DeclaredLabels

pytestmark = pytest.mark.dear

KEY = bytes(range(32))
DECLARED = ("a", "b", "c")
Record = tuple[int, str, str | None]
"""Unit, text, label."""
Batches = dict[Place, list[UnitDocuments]]


def stored(folder: Path, records: list[Record]) -> Corpus:
    home, source = ProjectHome(folder / "home"), folder / "a.jsonl"
    home.create()
    lines = [{"who": unit, "text": text, "topic": label} for unit, text, label in records]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_corpus(home, ingest(home, source, "who", KEY, label_field="topic").uid)


def label_of(scheme: PartitionScheme, unit: str, name: str, carried: Iterable[str]) -> str | None:
    """The one label of a unit that is read once."""
    return next(iter(BatchSplit(scheme.key, name).labels_of(unit, carried)), None)


def contents(records: list[Record], blocks: int = 2, batches: int = 2, name: str = "r1", most: int = 1) -> Batches:
    wanted = list(itertools.product(range(blocks), range(len(DECLARED)), range(batches)))
    with tempfile.TemporaryDirectory() as folder:
        corpus = stored(Path(folder), [*records, (99, "somebody who stays", "elsewhere")])
        return corpus.batches(PartitionScheme(KEY, blocks), BatchSplit(KEY, name), batches, wanted, DECLARED, most)


def places_of(batches: Batches, unit: int) -> list[Place]:
    return [place for place, rows in batches.items() if any(row.unit == str(unit) for row in rows)]


def changed(before: Batches, after: Batches) -> set[Place]:
    return {place for place in before if before[place] != after[place]}


RECORDS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("uvw"), st.sampled_from(["a", "b", "c", "x", None])), max_size=10
)


# --- rows ------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(RECORDS, st.integers(1, 3), st.integers(1, 3))
def test_a_unit_is_in_one_batch_of_a_label_it_has_or_in_none(records: list[Record], blocks: int, batches: int) -> None:
    found = contents(records, blocks, batches)
    scheme = PartitionScheme(KEY, blocks)
    for unit in range(5):
        carried = {label for who, _, label in records if who == unit and label in DECLARED}
        label = label_of(scheme, str(unit), "r1", carried)
        if label is None:
            assert places_of(found, unit) == []
            continue
        place = (
            scheme.block_of(str(unit)),
            DECLARED.index(label),
            SPLIT.batch_of(str(unit), batches),
        )
        assert places_of(found, unit) == [place]
        (row,) = [row for row in found[place] if row.unit == str(unit)]
        texts = [text for who, text, named in records if who == unit and named == label]
        expected = sorted(texts, key=lambda text: scheme.document_order(str(unit), text))
        assert row.text == "\n\n".join(expected)


def test_a_label_that_no_unit_has_has_empty_batches() -> None:
    found = contents([(1, "u", "a"), (2, "v", "x"), (3, "w", None)])
    assert len(found) == 2 * 3 * 2
    assert sum(len(rows) for rows in found.values()) == 1
    assert all(rows == [] for (_, label, _), rows in found.items() if label != 0)


def test_labelled_documents_come_in_the_order_of_the_source(tmp_path: Path) -> None:
    found = stored(tmp_path, [(2, "v", "x"), (1, "u", "a"), (3, "w", None), (2, "u", "a")])
    assert list(found.labelled()) == [("v", "x"), ("u", "a"), ("u", "a")]


def test_no_pass_sorts_units_and_labels_in_a_temporary_file(tmp_path: Path) -> None:
    """SQLite would write them into a folder outside the home."""
    corpus = stored(tmp_path, [(1, "a parcel", "a")])
    with store._reading(corpus.database) as connection:
        for query, values in ((store._CARRIED, ()), (store._CARRIED_OF_SHARD, (b"a",))):
            steps = connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
            assert [step for *_, step in steps if "TEMP" in step or "MATERIALIZE" in step] == []


def test_labels_meet_in_one_spelling(tmp_path: Path) -> None:
    corpus = stored(tmp_path, [(1, "u", " Cafe\u0301 ")])
    found = corpus.batches(PartitionScheme(KEY, 1), SPLIT, 1, [(0, 0, 0)], ["Café"])
    assert [row.text for row in found[0, 0, 0]] == ["u"]


@pytest.mark.parametrize("place", [(0, 3, 0), (0, -1, 0), (2, 0, 0), (0, 0, 2)])
def test_a_batch_outside_the_labels_is_refused(tmp_path: Path, place: Place) -> None:
    corpus = stored(tmp_path, [(1, "u", "a")])
    with pytest.raises(ValueError, match="outside"):
        corpus.batches(PartitionScheme(KEY, 2), SPLIT, 2, [place], DECLARED)


# --- what one unit does stays with that unit (PRIVACY §3) --------------------------------------------------------


@settings(max_examples=25)
@given(RECORDS.filter(bool), st.data())
def test_deleting_a_unit_changes_its_batch_and_no_other(records: list[Record], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted({unit for unit, _, _ in records})))
    before = contents(records)
    after = contents([record for record in records if record[0] != gone])
    assert changed(before, after) == set(places_of(before, gone))
    for place in places_of(before, gone):
        assert after[place] == [row for row in before[place] if row.unit != str(gone)]


@settings(max_examples=25)
@given(RECORDS, st.tuples(st.integers(0, 4), st.sampled_from("uvw"), st.sampled_from(["a", "b", "c", "x", None])))
def test_a_further_document_changes_batches_of_its_unit_alone(records: list[Record], added: Record) -> None:
    before, after = contents(records), contents([*records, added])
    own = set(places_of(before, added[0])) | set(places_of(after, added[0]))
    assert changed(before, after) <= own
    for place in own:
        others = [[row for row in found[place] if row.unit != str(added[0])] for found in (before, after)]
        assert others[0] == others[1]


@settings(max_examples=25)
@given(RECORDS, RECORDS)
def test_whatever_the_others_are_a_unit_has_the_same_row_in_the_same_place(
    one: list[Record], two: list[Record]
) -> None:
    mine = [(7, "u", "a"), (7, "v", "b"), (7, "w", "b"), (7, "z", None)]
    seen = []
    for others in (one, two):
        found = contents([*others, *mine])
        (place,) = places_of(found, 7)
        seen.append((place, [row for row in found[place] if row.unit == "7"]))
    assert seen[0] == seen[1]


# --- the keyed choice ------------------------------------------------------------------------------------------


SCHEME = PartitionScheme(KEY, 1)
SPLIT = BatchSplit(KEY, "r1")


def test_the_choice_is_one_of_what_a_unit_carries_whatever_their_order_or_number() -> None:
    for unit in map(str, range(50)):
        chosen = label_of(SCHEME, unit, "r", ["a", "b", "c"])
        assert chosen in ("a", "b", "c")
        assert label_of(SCHEME, unit, "r", ["c", "a", "b", "a", "a"]) == chosen
        assert label_of(SCHEME, unit, "r", [label for label in ("a", "b", "c") if label != chosen]) != chosen
    assert label_of(SCHEME, "1", "r", []) is None


def test_one_label_more_leaves_the_choice_or_becomes_it() -> None:
    for unit in map(str, range(200)):
        before, after = (label_of(SCHEME, unit, "r", DECLARED[:many]) for many in (2, 3))
        assert after in (before, "c")


def test_every_label_is_as_likely_as_another() -> None:
    """3000 units with three labels each: 1000 expected, standard deviation 26; eight of them are allowed."""
    counts = Counter(label_of(SCHEME, str(unit), "r", DECLARED) for unit in range(3000))
    assert set(counts) == set(DECLARED)
    assert all(abs(count - 1000) < 8 * 26 for count in counts.values())


def test_the_choice_depends_on_key_release_and_unit() -> None:
    def choices(scheme: PartitionScheme, name: str, prefix: str = "") -> list[str | None]:
        return [label_of(scheme, f"{prefix}{unit}", name, DECLARED) for unit in range(60)]

    first = choices(SCHEME, "r")
    others = (choices(SCHEME, "s"), choices(PartitionScheme(KEY[::-1], 1), "r"), choices(SCHEME, "r", "p"))
    assert all(other != first for other in others)
    assert choices(PartitionScheme(KEY, 1), "r") == first


def test_the_choice_is_of_the_key_and_the_parts_in_that_order() -> None:
    """Golden: HMAC-SHA256(key, "label", "r", unit, label), the least; whoever changes it moves every unit."""
    import hashlib
    import hmac

    def prefixed(part: str) -> bytes:
        return len(part.encode()).to_bytes(8, "big") + part.encode()

    def rank(unit: str, label: str) -> bytes:
        return hmac.new(KEY, b"".join(map(prefixed, ("label", "r", unit, label))), hashlib.sha256).digest()

    for unit in map(str, range(30)):
        assert label_of(SCHEME, unit, "r", DECLARED) == min(DECLARED, key=lambda label: rank(unit, label))


# --- more than one label a unit ----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(RECORDS, st.integers(1, 3), st.integers(1, 4))
def test_a_unit_has_a_row_for_each_of_at_most_so_many_labels(records: list[Record], blocks: int, most: int) -> None:
    found = contents(records, blocks, 1, most=most)
    scheme = PartitionScheme(KEY, blocks)
    for unit in range(5):
        carried = {label for who, _, label in records if who == unit and label in DECLARED}
        under = SPLIT.labels_of(str(unit), carried, most)
        assert len(under) == len(set(under)) == min(most, len(carried))
        block = scheme.block_of(str(unit))
        assert sorted(places_of(found, unit)) == sorted((block, DECLARED.index(label), 0) for label in under)
        for label in under:
            (row,) = [row for row in found[block, DECLARED.index(label), 0] if row.unit == str(unit)]
            assert sorted(row.text.split("\n\n")) == sorted(
                t for who, t, named in records if (who, named) == (unit, label)
            )


@settings(max_examples=25)
@given(RECORDS, st.integers(1, 3))
def test_removing_a_unit_leaves_the_rows_of_all_others(records: list[Record], most: int) -> None:
    """The contribution bound is kept by each unit alone: whoever goes frees no place for anybody."""
    with_all, without = contents(records, most=most), contents([r for r in records if r[0] != 0], most=most)
    others = {place: [row for row in rows if row.unit != "0"] for place, rows in with_all.items()}
    assert without == others


def test_a_larger_bound_keeps_the_labels_of_a_smaller_one() -> None:
    for unit in map(str, range(50)):
        assert SPLIT.labels_of(unit, DECLARED, 3)[:2] == SPLIT.labels_of(unit, DECLARED, 2)
        assert SPLIT.labels_of(unit, DECLARED, 7) == SPLIT.labels_of(unit, DECLARED, 3)
    with pytest.raises(ValueError, match="contribution bound"):
        SPLIT.labels_of("1", DECLARED, 0)


# --- what a request may declare ----------------------------------------------------------------------------------


class Asked(BaseModel):
    labels: DeclaredLabels = ()


def test_declared_labels_are_normalised_and_keep_their_order() -> None:
    assert Asked.model_validate({"labels": [" b", "a", 7, "Cafe\u0301"]}).labels == ("b", "a", "7", "Café")
    assert Asked().labels == ()
    assert len(Asked.model_validate({"labels": list(range(MOST_LABELS))}).labels) == MOST_LABELS


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "a"], ["a", " a "], ["7", 7], ["e\u0301", "é"], [""], [" "], [None], [True], [1.5], "ab",
        ["x" * (LONGEST_LABEL + 1)], ["\ud800"], list(range(MOST_LABELS + 1)),
    ],
)  # fmt: skip
def test_unfit_label_sets_are_refused(labels: object) -> None:
    with pytest.raises(ValidationError):
        Asked.model_validate({"labels": labels})
