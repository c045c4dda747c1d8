"""Labels of several fields: one spelling for a combination, and all combinations of declared values."""

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.store import open_corpus
from tasks.corpus.units import LONGEST_LABEL, MOST_LABELS, DeclaredLabels, combined_label, normalise_label
from tests.refusals import refusal

pytestmark = pytest.mark.dear

KEY = bytes(range(32))
FIELDS = ("category", "stars")
VALUES = st.text("ab /", min_size=1, max_size=6).filter(lambda value: bool(value.strip()))


class Asked(BaseModel):
    labels: DeclaredLabels = ()


def declared(labels: object) -> tuple[str, ...]:
    return Asked.model_validate({"labels": labels}).labels


@pytest.mark.parametrize(
    ("values", "label"),
    [
        (["books", 5], "books / 5"),
        ([" books\n", "5"], "books / 5"),
        (["Home / Garden", 1], "Home/Garden / 1"),
        (["Home /Garden", 1], "Home/Garden / 1"),
        (["Cafe\u0301", "a"], "Café / a"),
        (["books", None], None),
        (["", 5], None),
        (["Home / Garden"], "Home / Garden"),
    ],
)
def test_a_combination_has_one_spelling(values: list[object], label: str | None) -> None:
    assert combined_label(values) == label


@given(st.lists(VALUES, min_size=2, max_size=3), st.lists(VALUES, min_size=2, max_size=3))
def test_other_values_are_another_label(one: list[str], other: list[str]) -> None:
    """But for white space around a slash; so no label can be read as two combinations."""

    def spelt(values: list[str]) -> list[str]:
        return ["/".join(part.strip() for part in (normalise_label(value) or "").split("/")) for value in values]

    assert (combined_label(one) == combined_label(other)) == (spelt(one) == spelt(other))


def test_fields_with_values_stand_for_all_combinations_in_order() -> None:
    fields = {"category": ["books", "Home / Garden"], "stars": [1, 5]}
    expected = ("books / 1", "books / 5", "Home/Garden / 1", "Home/Garden / 5")
    assert declared(fields) == expected
    assert declared({"stars": [1, 5]}) == ("1", "5")
    assert declared([*expected]) == expected


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"stars": []},
        {"stars": "5", "category": ["a"]},
        {"stars": [1, ""], "category": ["a"]},
        {"stars": [1, 1], "category": ["a"]},
        {"stars": [True], "category": ["a"]},
        {"a": list(range(40)), "b": list(range(MOST_LABELS // 40 + 1))},
        {"a": ["x" * LONGEST_LABEL], "b": [1]},
    ],
)
def test_combinations_that_are_no_labels_are_refused(labels: object) -> None:
    with pytest.raises(ValidationError):
        declared(labels)


def test_the_schema_has_both_forms() -> None:
    schema = Asked.model_json_schema()["properties"]["labels"]
    assert {form["type"] for form in schema["anyOf"]} == {"array", "object"}


RECORDS = [
    {"who": 1, "text": "one", "category": "books", "stars": 5},
    {"who": 2, "text": "two", "category": "books", "stars": 1},
    {"who": 3, "text": "three", "category": "music"},
    {"who": 4, "text": "four", "category": "music", "stars": 1},
]


def written(folder: Path, records: list[dict[str, object]]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_document_has_the_label_of_its_fields(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, RECORDS)
    if kind != "jsonl":
        import pandas

        frame = pandas.DataFrame(RECORDS).astype({"stars": "Int64"})
        path = tmp_path / f"a.{kind}"
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    found = [document.label for document in read_documents(path, "who", label_field=FIELDS)]
    assert found == ["books / 5", "books / 1", None, "music / 1"]


def test_a_version_knows_its_fields_and_reads_units_by_combination(tmp_path: Path, home: ProjectHome) -> None:
    corpus = open_corpus(home, ingest(home, written(tmp_path, RECORDS), "who", KEY, label_field=FIELDS).uid)
    assert corpus.label_fields() == FIELDS
    labels = declared({"category": ["books", "music"], "stars": [1, 5]})
    assert list(labels) == [f"{a} / {b}" for a, b in product(("books", "music"), (1, 5))]
    places = [(0, label, 0) for label in range(4)]
    rows = corpus.batches(PartitionScheme(KEY, 1), BatchSplit(KEY, "r"), 1, places, labels)
    assert [len(rows[place]) for place in places] == [1, 1, 1, 0]


def test_fields_that_cannot_make_a_label_are_named_and_no_value_is(tmp_path: Path) -> None:
    path = written(tmp_path, [{"text": "one", "category": "zyzzogeton" * 15, "stars": "zyzzogeton" * 15}])
    with refusal("BadLabel", match="'category / stars'") as refused:
        list(read_documents(path, None, label_field=FIELDS))
    assert "zyzzo" not in str(refused.value)
    with refusal("BadLabel", match="'stars'"):
        list(read_documents(written(tmp_path, [{"text": "one", "stars": [1]}]), None, label_field=FIELDS))
    with refusal("LabelFieldEmpty", match="category / stars"):
        list(read_documents(written(tmp_path, [{"text": "one", "stars": 1}]), None, label_field=FIELDS))
    with refusal("LabelFieldRepeated", match="stars, stars"):
        read_documents(path, None, label_field=("stars", "stars"))
