"""The cache of facets: nobody is asked twice, nothing is readable, and damage costs time only."""

import hashlib
import json
import sqlite3
import stat
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tasks.analysis.facets.extractor import DATABASE, cached
from tasks.values.results import Facets
from tests.refusals import refusal

KEY = bytes(range(32))


class Counting:
    """An extractor that says what it was asked."""

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        self.asked.append(list(texts))
        return [Facets({"summary": (text.upper(),), "keywords": tuple(text.split())}) for text in texts]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "facets" / "dataset"


def entries(folder: Path) -> list[tuple[bytes, str]]:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return connection.execute("SELECT mark, found FROM facets").fetchall()


def test_what_was_found_is_not_asked_again(folder):
    inner = Counting()
    first = cached(inner, folder, KEY)(["a b", "c", "a b"])
    again = cached(inner, folder, KEY)(["c", "d", "a b"])
    assert inner.asked == [["a b", "c"], ["d"]]
    assert [found.summary for found in first] == ["A B", "C", "A B"]
    assert [found.values for found in again] == [found.values for found in Counting()(["c", "d", "a b"])]


@pytest.mark.parametrize("text", ["", "half \ud800 a pair", "语言", "a\x00b"])
def test_any_text_can_be_remembered(folder, text):
    inner = Counting()
    cached(inner, folder, KEY)([text])
    assert cached(inner, folder, KEY)([text]) == Counting()([text])
    assert len(inner.asked) == 1


def test_no_texts(folder):
    assert cached(Counting(), folder, KEY)([]) == []


def test_another_extractor_or_key_finds_nothing(folder):
    for inner, key in ((Counting(), KEY), (Counting("other"), KEY), (Counting(), bytes(32))):
        cached(inner, folder, key)(["a"])
        assert inner.asked == [["a"]]
    assert len(entries(folder)) == 3


def test_the_files_are_closed_to_others(folder):
    cached(Counting(), folder, KEY)(["a"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_no_hash_of_a_text_is_kept_that_somebody_could_compute(folder):
    cached(Counting(), folder, KEY)(["a secret"])
    ((mark, _),) = entries(folder)
    plain = {hashlib.new(kind, b"a secret").digest() for kind in ("sha256", "sha1", "md5", "blake2b", "sha3_256")}
    assert mark not in plain
    assert len(mark) == 32
    cached(Counting(), folder.with_name("other"), bytes(32))(["a secret"])
    assert entries(folder.with_name("other"))[0][0] != mark


def test_a_run_that_is_killed_loses_one_batch(folder):
    """Whatever was extracted before is on disk."""

    class Dying(Counting):
        def __call__(self, texts: Sequence[str]) -> list[Facets]:
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().__call__(texts)

    texts = [f"text {number}" for number in range(10)]
    with pytest.raises(KeyboardInterrupt):
        cached(Dying(), folder, KEY, batch=3)(texts)
    inner = Counting()
    found = cached(inner, folder, KEY, batch=3)(texts)
    assert [len(asked) for asked in inner.asked] == [3, 1]
    assert found == Counting()(texts)


def test_progress_counts_what_is_known_already(folder):
    heard: list[tuple[int, int]] = []
    cached(Counting(), folder, KEY)(["a", "b"])
    cached(Counting(), folder, KEY, lambda done, of: heard.append((done, of)), batch=2)(["a", "b", "c", "d", "e"])
    assert heard == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    "damage", [b"", b"no database at all, but long enough to look like one" * 50, None], ids=["empty", "other", "torn"]
)
def test_a_damaged_file_is_set_aside_and_made_anew(folder, damage):
    cached(Counting(), folder, KEY)([f"text {number}" for number in range(500)])
    path = folder / DATABASE
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096) if damage is None else damage)
    inner = Counting()
    assert cached(inner, folder, KEY)(["text 1"]) == Counting()(["text 1"])
    assert inner.asked == [["text 1"]]
    assert (folder / "facets.damaged-1").exists()
    assert cached(inner, folder, KEY)(["text 1"])
    assert len(inner.asked) == 1


def test_a_file_of_another_format_is_set_aside(folder):
    cached(Counting(), folder, KEY)(["a"])
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute("PRAGMA user_version = 99")
    inner = Counting()
    cached(inner, folder, KEY)(["a"])
    assert inner.asked == [["a"]]
    assert len(entries(folder)) == 1


@pytest.mark.parametrize("written", ["", "no JSON", "[1]", '{"summary": 3}', '{"summary": [3]}', "null"])
def test_an_entry_that_cannot_be_read_is_made_anew(folder, written):
    cached(Counting(), folder, KEY)(["a"])
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("UPDATE facets SET found = ?", (written,))
    inner = Counting()
    assert cached(inner, folder, KEY)(["a"]) == Counting()(["a"])
    assert json.loads(entries(folder)[0][1]) == {"summary": ["A"], "keywords": ["a"]}


def test_two_at_once(folder):
    """Both find what they were asked, and every entry is whole."""
    texts = [f"text {number}" for number in range(300)]
    found: list[list[Facets]] = []
    workers = [
        threading.Thread(target=lambda: found.append(cached(Counting(), folder, KEY, batch=7)(texts))) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [Counting()(texts)] * 4
    assert len(entries(folder)) == 300


def test_a_folder_that_cannot_be_made_has_a_named_error(tmp_path):
    (tmp_path / "file").write_text("")
    with refusal("FacetCacheNotWritable") as error:
        cached(Counting(), tmp_path / "file" / "below", KEY)
    assert error.value.facts["reason"]


def test_the_error_quotes_nothing(folder):
    """The file becomes unreadable in the middle of a run."""
    made = cached(Counting(), folder, KEY)
    (folder / DATABASE).write_bytes(b"x" * 5000)
    with refusal("FacetCacheNotWritable") as error:
        made(["a secret"])
    assert "secret" not in error.value.diagnostics() + repr(error.value.facts)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_an_error_of_the_extractor_stays_its_own(folder):
    class Failing(Counting):
        def __call__(self, texts: Sequence[str]) -> list[Facets]:
            raise FileNotFoundError("a model file")

    with pytest.raises(FileNotFoundError, match="a model file"):
        cached(Failing(), folder, KEY)(["a"])


def test_it_says_nothing_of_its_key(folder):
    assert repr(cached(Counting(), folder, KEY)) == "CachedExtractor(counting)"
