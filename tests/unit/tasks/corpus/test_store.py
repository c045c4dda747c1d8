"""Reading batches back: keyed, isolated from each other, and honest about a damaged file."""

import itertools
import json
import sqlite3
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from tasks.corpus import store
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import (
    DATABASE,
    Corpus,
    Place,
    UnitDocuments,
    iter_marks,
    open_corpus,
)
from tasks.corpus.versions import VersionMissing

KEY = bytes(range(32))
SPLIT = BatchSplit(KEY, "r1")
SECRET = "Zebulon Quartermaine"
Batches = dict[Place, list[UnitDocuments]]


def everything(corpus: Corpus, blocks: int = 2, batches: int = 3, name: str = "r1", key: bytes = KEY) -> Batches:
    wanted = list(itertools.product(range(blocks), [0], range(batches)))
    return corpus.batches(PartitionScheme(key, blocks), BatchSplit(key, name), batches, wanted)


@pytest.fixture
def corpus(home: ProjectHome, jsonl: Callable[..., Path]) -> Corpus:
    notes = [{"id": n, "who": f"p{n % 20}", "text": f"note {n}"} for n in range(60)]
    return open_corpus(home, ingest(home, jsonl(notes), "who", KEY).uid)


def test_every_unit_is_one_row_of_its_own_batch(corpus: Corpus) -> None:
    batches = everything(corpus)
    scheme = PartitionScheme(KEY, 2)
    rows = [row for members in batches.values() for row in members]
    assert sorted(row.unit for row in rows) == sorted(f"p{n}" for n in range(20))
    assert corpus.unit_count() == 20
    for (block, _, batch), members in batches.items():
        assert all((scheme.block_of(r.unit), SPLIT.batch_of(r.unit, 3)) == (block, batch) for r in members)
        assert [r.unit for r in members] == sorted((r.unit for r in members), key=scheme.row_order)


def test_documents_of_a_unit_are_joined_in_keyed_order(corpus: Corpus) -> None:
    scheme = PartitionScheme(KEY, 2)
    for row in itertools.chain(*everything(corpus).values()):
        texts = [f"note {n}" for n in range(60) if f"p{n % 20}" == row.unit]
        assert row.text == "\n\n".join(sorted(texts, key=lambda text: scheme.document_order(row.unit, text)))
    orders = {
        tuple(int(text.split()[1]) // 20 for text in row.text.split("\n\n"))
        for row in itertools.chain(*everything(corpus).values())
    }
    assert len(orders) > 1  # not simply the order of the source


def test_reading_is_deterministic_and_depends_on_the_key_and_the_scheme(corpus: Corpus) -> None:
    assert everything(corpus) == everything(corpus)
    assert everything(corpus) != everything(corpus, key=KEY[::-1])
    assert everything(corpus) != everything(corpus, name="r2")


def test_the_order_of_the_source_does_not_matter(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    notes = [{"who": f"p{n % 5}", "text": f"note {n}"} for n in range(20)]
    one, other = (ingest(home, jsonl(order), "who", KEY) for order in (notes, notes[::-1]))
    assert everything(open_corpus(home, one.uid)) == everything(open_corpus(home, other.uid))


def test_only_wanted_batches_come_back_and_empty_ones_too(corpus: Corpus) -> None:
    scheme = PartitionScheme(KEY, 50)
    occupied = {scheme.block_of(f"p{n}") for n in range(20)}
    empty = min(set(range(50)) - occupied)
    wanted = {(empty, 0, 0), (min(occupied), 0, 0)}
    batches = corpus.batches(scheme, SPLIT, 1, wanted)
    assert batches.keys() == wanted
    assert batches[empty, 0, 0] == []
    assert batches[min(occupied), 0, 0] != []
    assert corpus.batches(scheme, SPLIT, 1, []) == {}


@pytest.mark.parametrize("place", [(2, 0, 0), (-1, 0, 0), (0, 0, 3), (0, 0, -1), (0, 1, 0), (0, -1, 0)])
def test_a_batch_outside_the_partition_is_refused(corpus: Corpus, place: Place) -> None:
    with pytest.raises(ValueError):
        corpus.batches(PartitionScheme(KEY, 2), SPLIT, 3, [place])


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1, max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.data(),
)
def test_deleting_one_unit_changes_exactly_one_batch(
    records: list[tuple[int, str]], blocks: int, batches: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted({unit for unit, _ in records})))
    with tempfile.TemporaryDirectory() as folder:
        home, source = ProjectHome(Path(folder) / "home"), Path(folder) / "a.jsonl"
        home.create()
        filler = [(99, "somebody who stays")]

        def contents(kept: list[tuple[int, str]]) -> Batches:
            source.write_text("".join(json.dumps({"who": u, "text": t}) + "\n" for u, t in kept))
            return everything(open_corpus(home, ingest(home, source, "who", KEY).uid), blocks, batches)

        before = contents(filler + records)
        after = contents(filler + [record for record in records if record[0] != gone])
    scheme = PartitionScheme(KEY, blocks)
    changed = [place for place in before if before[place] != after[place]]
    assert changed == [(scheme.block_of(str(gone)), 0, SPLIT.batch_of(str(gone), batches))]
    assert after[changed[0]] == [row for row in before[changed[0]] if row.unit != str(gone)]


def test_a_corpus_may_be_read_by_several_threads(corpus: Corpus) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: everything(corpus), range(8)))
    assert all(result == results[0] for result in results)


def test_rows_hide_their_content() -> None:
    assert SECRET not in repr(UnitDocuments(unit=SECRET, text=SECRET))


# --- a file that is not what it was ------------------------------------------------------------------------


def error_of(read: Callable[[], object]) -> AlmonerError:
    with pytest.raises(AlmonerError) as caught:
        read()
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + caught.value.diagnostics()
    assert caught.value.advice
    return caught.value


@pytest.fixture
def secret_version(home: ProjectHome, jsonl: Callable[..., Path]) -> str:
    notes = [{"id": n, "who": f"{SECRET} {n}", "text": f"{SECRET} " * 30} for n in range(300)]
    return ingest(home, jsonl(notes), "who", KEY).uid


def readings(home: ProjectHome, uid: str) -> list[Callable[[], object]]:
    """Every way to read a version."""
    return [
        lambda: everything(open_corpus(home, uid)),
        lambda: list(open_corpus(home, uid).texts()),
        lambda: open_corpus(home, uid).unit_count(),
        lambda: list(iter_marks(home, uid)),
    ]


@pytest.mark.parametrize("uid", ["0" * 32, "", "..", "../keys", "*"])
def test_a_missing_version_is_named(home: ProjectHome, uid: str) -> None:
    for read in readings(home, uid):
        assert type(error_of(read)) is VersionMissing


def test_a_missing_or_empty_file_is_named(home: ProjectHome, secret_version: str) -> None:
    database = home.corpora / secret_version / DATABASE
    for spoil in (lambda: database.write_bytes(b""), database.unlink):
        spoil()
        for read in readings(home, secret_version):
            assert error_of(read).code == "StoreUnreadable"
    assert not database.exists()  # reading has not made a new one


def test_a_damaged_file_is_named(home: ProjectHome, secret_version: str) -> None:
    database = home.corpora / secret_version / DATABASE
    whole = database.read_bytes()
    for damaged in (
        b"\0" * len(whole),
        whole[:100],
        whole[:4096] + b"\xff" * (len(whole) - 4096),
        whole[: len(whole) // 2],
    ):
        database.write_bytes(damaged)
        for read in readings(home, secret_version)[:2]:
            assert error_of(read).code == "StoreUnreadable"


def test_text_that_is_no_longer_utf8_is_not_quoted(home: ProjectHome, secret_version: str) -> None:
    database = home.corpora / secret_version / DATABASE
    connection = sqlite3.connect(database)
    connection.execute("UPDATE documents SET text = CAST(CAST(text AS BLOB) || x'ff' AS TEXT)")
    connection.commit()
    connection.close()
    for read in readings(home, secret_version)[:2]:
        assert error_of(read).code == "StoreUnreadable"


@pytest.mark.parametrize("number", [0, 2, 99])
def test_another_format_is_refused(home: ProjectHome, secret_version: str, number: int) -> None:
    connection = sqlite3.connect(home.corpora / secret_version / DATABASE)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    assert error_of(lambda: open_corpus(home, secret_version)).code == "StoreUnreadable"


def test_a_locked_file_is_named(home: ProjectHome, secret_version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LOCK_WAIT_S", 0.05)
    other = sqlite3.connect(home.corpora / secret_version / DATABASE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for read in readings(home, secret_version):
        assert error_of(read).code == "StoreBusy"
    other.execute("ROLLBACK")
    other.close()
    assert open_corpus(home, secret_version).unit_count() == 300


def test_a_home_with_odd_characters_in_its_path(tmp_path: Path, jsonl: Callable[..., Path]) -> None:
    home = ProjectHome(tmp_path / "50% of #2 & ?mode=rw;ü")
    home.create()
    version = ingest(home, jsonl([{"who": "p", "text": "x"}]), "who", KEY)
    assert list(open_corpus(home, version.uid).texts()) == ["x"]


def test_each_unit_comes_once_with_the_row_that_its_batch_has(corpus: Corpus) -> None:
    rows = [row for members in everything(corpus).values() for row in members]
    found = list(corpus.each(PartitionScheme(KEY, 2), SPLIT))
    assert {number for number, _ in found} == {0}
    assert sorted(row.unit for _, row in found) == sorted(row.unit for row in rows)
    assert {row.unit: row.text for _, row in found} == {row.unit: row.text for row in rows}
