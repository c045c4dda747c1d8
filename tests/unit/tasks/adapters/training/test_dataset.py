"""Training files: read whole, or refused with the line."""

import hashlib
import json
from pathlib import Path

import pytest

from tasks.adapters.training.data import read_training_data
from tests.refusals import refusal

GOOD = {"documents": ["one", "two"], "summary": " both ", "about": "a thing"}
OTHER = {"documents": ["three"], "summary": "that", "about": "another"}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "train.jsonl"
    path.write_bytes(b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines))
    return path


def test_examples_come_back_with_the_file_they_stand_in(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), b"  ", OTHER, {**GOOD, "summary": "again"})
    data = read_training_data(path)
    assert [example.summary for example in data.examples] == ["both", "that", "again"]
    assert data.examples[0].documents == ("one", "two")
    assert (data.file, data.sha256) == ("train.jsonl", hashlib.sha256(path.read_bytes()).hexdigest())
    assert data.labelled


def test_examples_of_the_same_documents_or_of_one_name_are_one_group(tmp_path: Path) -> None:
    turned = {**GOOD, "documents": ["two", "one"]}
    assert len(read_training_data(written(tmp_path, GOOD, turned, OTHER)).groups) == 2
    named = [{**GOOD, "group": "a"}, {**OTHER, "group": "a"}, {**OTHER, "group": "b"}]
    assert read_training_data(written(tmp_path, *named)).groups == ("a", "b")


@pytest.mark.parametrize(
    "line",
    [
        b"not json", b"[1]", b"\xff", b"[" * 100_000, b'{"documents": ["a"]}', b"1" * 5000, b'"text"', b"null",
        {"documents": [], "summary": "x"},
        {"documents": "a", "summary": "x"},
        {"documents": ["a", " "], "summary": "x", "about": "y"},
        {"documents": ["a", 1], "summary": "x", "about": "y"},
        {"documents": ["a"], "summary": "", "about": "y"},
        {"documents": ["a"], "summary": ["x"], "about": "y"},
        {"documents": ["a"], "summary": "x", "about": 3},
        {"documents": ["a"], "summary": "x", "about": "y", "group": ""},
        {"documents": ["a"], "summary": "x", "about": "y", "more": 1},
        {"documents": ["a"] * 10_001, "summary": "x", "about": "y"},
        {"documents": ["a"], "summary": "x"},
        b'{"documents": ["\\ud800"], "summary": "x", "about": "y"}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: object) -> None:
    with refusal("TrainingLineInvalid", match=r"Line 2 of the training file 'train\.jsonl'") as refused:
        read_training_data(written(tmp_path, GOOD, line, OTHER))
    assert refused.value.facts["line"] == 2


def test_one_group_leaves_nothing_to_check_with(tmp_path: Path) -> None:
    for lines in ([GOOD, GOOD], []):
        with refusal("TrainingFileTooSmall"):
            read_training_data(written(tmp_path, *lines))


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.jsonl", tmp_path):
        with refusal("TrainingFileUnreadable"):
            read_training_data(path)
