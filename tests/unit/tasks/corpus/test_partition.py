"""The keyed partition: golden values, the property that privacy rests on, and a twin that lacks it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.keys import ManifestMark, mark_of, source_mark
from tasks.corpus.partition import BatchSplit, PartitionScheme

pytestmark = pytest.mark.contract

KEY = bytes(range(32))
CORPORA = st.dictionaries(st.text(min_size=1, max_size=6), st.text(max_size=3), min_size=1, max_size=12)


def split(scheme: PartitionScheme, corpus: dict[str, str], batches: int) -> dict[tuple[int, int], list[str]]:
    """What every batch holds, in order."""
    places: dict[tuple[int, int], list[str]] = {}
    for unit in sorted(corpus, key=scheme.row_order):
        place = (scheme.block_of(unit), BatchSplit(scheme.key, "release-1").batch_of(unit, batches))
        places.setdefault(place, []).append(corpus[unit])
    return places


@given(CORPORA, st.integers(1, 4), st.integers(1, 5), st.data())
def test_deleting_one_unit_changes_exactly_one_batch(
    corpus: dict[str, str], blocks: int, batches: int, data: st.DataObject
) -> None:
    scheme = PartitionScheme(KEY, blocks)
    gone = data.draw(st.sampled_from(sorted(corpus)))
    before = split(scheme, corpus, batches)
    after = split(scheme, {unit: text for unit, text in corpus.items() if unit != gone}, batches)
    changed = [place for place in before.keys() | after.keys() if before.get(place) != after.get(place)]
    assert changed == [(scheme.block_of(gone), BatchSplit(scheme.key, "release-1").batch_of(gone, batches))]


def test_slicing_by_position_lacks_that_property() -> None:
    """The twin that proves the test above can fail: batches cut from a list shift when one unit leaves."""
    units = [f"unit-{n}" for n in range(12)]
    before = [units[i : i + 4] for i in range(0, 12, 4)]
    after = [units[1:][i : i + 4] for i in range(0, 12, 4)]
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 3


# int.from_bytes(HMAC-SHA256(00..1f, lp("block") lp(unit)), "big") % 7, and
# int.from_bytes(HMAC-SHA256(00..1f, lp("batch") lp("release-1") lp(unit)), "big") % 10, lp as in keys.keyed_hash
GOLDEN = [("patient-1", 4, 3), ("patient-2", 5, 0), ("Ünï", 3, 1)]


@pytest.mark.parametrize(("unit", "block", "batch"), GOLDEN)
def test_golden_places(unit: str, block: int, batch: int) -> None:
    scheme = PartitionScheme(KEY, 7)
    assert (scheme.block_of(unit), BatchSplit(scheme.key, "release-1").batch_of(unit, 10)) == (block, batch)


def test_golden_hashes() -> None:
    scheme = PartitionScheme(KEY, 7)
    assert scheme.row_order("patient-1").hex() == "ea1bb7c5bbba5842577e6210b1956e7ee6f02925cecd7cb07bd5542eaa40a6c0"
    assert (
        scheme.document_order("patient-1", "text").hex()
        == "0ebd2f9707d8b08868aadd957d6c61417024fa7c1aa6a2691ce7e974f645a5ee"
    )
    assert mark_of(KEY, "patient-1").hex() == "442b8b89ed63e5157db2f75846ecfba894ab1e901ce5e06c63e202d8fb56b3de"
    assert source_mark(KEY, bytes(32)).hex() == "f080f2e69730de81a69e48c585e16be89a03cb25e8f6cfbb72570d5cd32967e8"


def test_units_spread_evenly_and_independently() -> None:
    scheme, split = PartitionScheme(KEY, 4), BatchSplit(KEY, "s")
    places = Counter((scheme.block_of(f"u{n}"), split.batch_of(f"u{n}", 5)) for n in range(20_000))
    # 20 cells of 1000: chi-square with 19 degrees of freedom exceeds 60 with probability 4e-6 for a random key
    assert len(places) == 20
    assert sum((count - 1000) ** 2 / 1000 for count in places.values()) < 60


def test_every_part_of_the_scheme_matters() -> None:
    units = [f"u{n}" for n in range(64)]
    scheme, other = PartitionScheme(KEY, 64), PartitionScheme(KEY[::-1], 64)
    assert [scheme.block_of(u) for u in units] != [other.block_of(u) for u in units]
    splits = [BatchSplit(KEY, "a"), BatchSplit(KEY, "b"), BatchSplit(KEY[::-1], "a"), BatchSplit(KEY, "")]
    assert len({tuple(split.batch_of(u, 64) for u in units) for split in splits}) == len(splits)
    assert [scheme.block_of(u) for u in units] not in [[split.batch_of(u, 64) for u in units] for split in splits]


@pytest.mark.parametrize(("key", "blocks"), [(KEY, 0), (KEY, -1), (KEY[:16], 1), (b"", 1)])
def test_an_impossible_scheme_is_refused(key: bytes, blocks: int) -> None:
    with pytest.raises(ValueError):
        PartitionScheme(key, blocks)


def test_a_split_into_no_batches_is_refused() -> None:
    with pytest.raises(ValueError):
        BatchSplit(KEY, "s").batch_of("unit", 0)


def test_the_key_is_not_in_the_repr() -> None:
    assert repr(PartitionScheme(b"k" * 32, 3)) == "PartitionScheme(blocks=3, cohorts=1)"
    assert repr(BatchSplit(b"k" * 32, "s")) == "BatchSplit(name='s')"


def test_each_split_has_a_key_of_32_bytes_and_no_other_split_has_it() -> None:
    keys = {BatchSplit.new_key() for _ in range(64)}
    assert {len(key) for key in keys} == {32}
    assert len(keys) == 64
    with pytest.raises(ValueError, match="32 bytes"):
        BatchSplit(b"short", "s")


def test_marks_depend_on_key_and_kind() -> None:
    assert len({mark_of(KEY, "a"), mark_of(KEY[::-1], "a"), mark_of(KEY, "b"), source_mark(KEY, b"a")}) == 4


DOCUMENTS = st.lists(
    st.tuples(st.none() | st.text("ab", min_size=1), st.none() | st.text("ab", min_size=1), st.text("ab")),
    max_size=4,
)


@given(DOCUMENTS, DOCUMENTS)
def test_a_manifest_mark_tells_contents_apart(one: list[tuple], other: list[tuple]) -> None:
    marks = []
    for documents in (one, other):
        mark = ManifestMark(KEY)
        for document in documents:
            mark.add(*document)
        marks.append(mark.hexdigest())
    assert (marks[0] == marks[1]) == (one == other)
