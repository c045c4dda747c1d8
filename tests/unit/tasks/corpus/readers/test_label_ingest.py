"""Labels on their way in: normalised, optional in a record, and never told."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.store import open_corpus
from tasks.corpus.units import LONGEST_LABEL, normalise_label
from tasks.corpus.versions import version_uids
from tests.refusals import refusal

KEY = bytes(range(32))
SECRET = "Zebulon Quartermaine"
RECORDS = [
    {"text": "one", "topic": "sports"},
    {"text": "two", "topic": "  sports\n"},
    {"text": "three", "topic": None},
    {"text": "four", "topic": ""},
    {"text": "five", "topic": "Cafe\u0301"},
]
LABELS = ["sports", "sports", None, None, "Café"]


def as_jsonl(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for r in records))
    return path


def as_csv(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "topic"])
        writer.writeheader()
        writer.writerows({**r, "topic": r["topic"] or ""} for r in records)
    return path


def as_parquet(folder: Path, records: list[dict[str, Any]]) -> Path:
    path = folder / "a.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(records), path)
    return path


WRITERS = pytest.mark.parametrize("write", [as_jsonl, as_csv, as_parquet])
Writer = Callable[[Path, list[dict[str, Any]]], Path]


@WRITERS
def test_labels_are_normalised_and_may_be_missing(tmp_path: Path, write: Writer) -> None:
    documents = list(read_documents(write(tmp_path, RECORDS), None, label_field="topic"))
    assert [document.label for document in documents] == LABELS
    assert [document.text for document in documents] == [str(record["text"]) for record in RECORDS]


@WRITERS
def test_without_a_label_field_nothing_is_kept(tmp_path: Path, home: ProjectHome, write: Writer) -> None:
    corpus = open_corpus(home, ingest(home, write(tmp_path, RECORDS), None, KEY).uid)
    assert corpus.label_fields() == ()
    with refusal("LabelsNotKept"):
        corpus.require_labels()
    with refusal("LabelsNotKept"):
        list(corpus.texts("sports"))


@WRITERS
def test_a_version_knows_its_field_and_its_labelled_texts(tmp_path: Path, home: ProjectHome, write: Writer) -> None:
    corpus = open_corpus(home, ingest(home, write(tmp_path, RECORDS), None, KEY, label_field="topic").uid)
    assert corpus.label_fields() == ("topic",)
    assert list(corpus.texts()) == ["one", "two", "three", "four", "five"]
    assert list(corpus.texts("sports")) == ["one", "two"]
    assert list(corpus.texts("Café")) == ["five"]
    assert list(corpus.texts("weather")) == []


def test_integers_are_labels_too(tmp_path: Path) -> None:
    records = [{"text": "a", "topic": 7}, {"text": "b", "topic": 8}]
    for write in (as_jsonl, as_parquet):
        assert [d.label for d in read_documents(write(tmp_path, records), None, label_field="topic")] == ["7", "8"]


@pytest.mark.parametrize("value", [True, 1.5, ["x"], {"a": 1}, SECRET * LONGEST_LABEL])
def test_what_is_no_label_is_refused_by_place_and_not_quoted(
    tmp_path: Path, home: ProjectHome, jsonl: Callable[..., Path], value: object
) -> None:
    source = jsonl([{"text": SECRET, "topic": "a"}, {"text": "x", "topic": value}])
    with refusal("BadLabel") as refused:
        ingest(home, source, None, KEY, label_field="topic")
    told = str(refused.value) + refused.value.diagnostics()
    assert "Line 2" in told
    assert SECRET not in told
    assert version_uids(home) == []


def test_a_field_that_no_record_has_is_a_mistake(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl([{"text": "a", "topic": "x"}, {"text": "b"}])
    with refusal("LabelFieldEmpty", match="'tpic'") as refused:
        ingest(home, source, None, KEY, label_field="tpic")
    assert "nothing of this attempt was kept" in refused.value.advice
    assert version_uids(home) == []


@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_a_table_without_the_column_is_refused(tmp_path: Path, write: Writer) -> None:
    with refusal("ColumnMissing", match="'tpic'"):
        list(read_documents(write(tmp_path, RECORDS), None, label_field="tpic"))


def test_a_parquet_column_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = as_parquet(tmp_path, [{"text": "a", "topic": 1.5}, {"text": "b", "topic": 2.5}])
    with refusal("ColumnUnfit", match="'topic'"):
        list(read_documents(path, None, label_field="topic"))


def test_a_text_folder_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with refusal("FolderWithoutLabels", match="no field 'topic'"):
        read_documents(tmp_path, None, label_field="topic")


def test_a_text_that_is_its_own_label_is_possible(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    version = ingest(home, jsonl([{"text": "yes"}, {"text": "no"}]), None, KEY, label_field="text")
    assert list(open_corpus(home, version.uid).texts("no")) == ["no"]


def test_labels_do_not_change_what_is_recorded_of_a_version(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    source = jsonl([{"id": 1, "who": "p", "text": "a", "topic": "x"}])
    plain, labelled = (ingest(home, source, "who", KEY, label_field=field) for field in (None, "topic"))
    assert plain.manifest_mark == labelled.manifest_mark
    assert plain.source_mark == labelled.source_mark


def test_documents_hide_their_label(jsonl: Callable[..., Path]) -> None:
    (document,) = read_documents(jsonl([{"text": "a", "topic": SECRET}]), None, label_field="topic")
    assert document.label == SECRET
    assert SECRET not in repr(document)


# --- the one spelling ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "label"),
    [(None, None), ("", None), (" \t", None), (7, "7"), ("7 ", "7"), ("e\u0301", "é"), ("A b", "A b")],
)
def test_spelling(value: object, label: str | None) -> None:
    assert normalise_label(value) == label


@pytest.mark.parametrize("value", [True, 1.0, [], "x" * (LONGEST_LABEL + 1), "\ud800"])
def test_no_label(value: object) -> None:
    with pytest.raises(ValueError):
        normalise_label(value)
