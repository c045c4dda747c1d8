"""Names of fields for a terminal: what is shown of each format, and what may be a record and is not."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyarrow import ipc

from flows.datasets.register import fields_sentence
from models_db.services.datasets import Registration
from tasks.corpus.readers.field_names import LONGEST_NAME, FieldNames, read_field_names

ASKED = ("text", "patient")
ROWS = [{"id": "1", "patient": "p", "text": "A note."}, {"id": "2", "patient": "q", "text": "Another."}]
RECORD = "Anna Miller,1962-03-04,pneumonia"


def jsonl(path: Path, rows: list[dict[str, str]]) -> Path:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def arrow(path: Path) -> Path:
    table = pyarrow.Table.from_pylist(ROWS)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with ipc.new_stream(path, table.schema) as out:
            out.write_table(table)
    return path


def test_every_format_says_its_fields(tmp_path: Path) -> None:
    header = tmp_path / "a.csv"
    header.write_text("\ufeffid,patient,text\n1,p,A note.\n")
    files = [
        header,
        jsonl(tmp_path / "a.jsonl", ROWS),
        jsonl(tmp_path / "a.jsonl.gz", ROWS),
        arrow(tmp_path / "a.parquet"),
        arrow(tmp_path / "a.arrow"),
    ]
    assert [read_field_names(file, ASKED) for file in files] == [FieldNames(("id", "patient", "text"))] * 5


def test_a_folder_has_the_fields_of_its_first_file_and_path(tmp_path: Path) -> None:
    (tmp_path / "stars=5").mkdir()
    jsonl(tmp_path / "stars=5" / "part-0.jsonl", ROWS)
    assert read_field_names(tmp_path, ASKED) == FieldNames(("stars", "id", "patient", "text"))


@pytest.mark.parametrize("content", [RECORD, f'"{RECORD}', "", "\n"])
def test_a_first_line_without_a_field_that_was_asked_for_is_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "notes.csv"
    file.write_text(content + "\nBob,1970-01-01,asthma\n" * bool(content))
    found = read_field_names(file, ASKED)
    assert found is None or found.shown == ()
    said = fields_sentence(file, Registration("clinic", "patient", "text", True, None, None)) or ""
    assert not any(part in said for part in ("Anna", "1962", "pneumonia", "Bob"))


def test_a_mistyped_unit_beside_a_right_text_field_gets_the_list(tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text("id,patient_id,text\n1,p,A note.\n")
    said = fields_sentence(file, Registration("clinic", "patient", "text", True, None, None))
    assert said == "Fields of the source: id, patient_id, text."


def test_keys_of_few_records_and_long_names_are_counted(tmp_path: Path) -> None:
    people = [{"text": "A note.", f"Anna Miller {n}": "x", "s" * (LONGEST_NAME + 1): "x"} for n in range(3)]
    assert read_field_names(jsonl(tmp_path / "a.jsonl", people), ()) == FieldNames(("text",), withheld=4)


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [{"text": "A note.", "\x1b[31mred": "x"}])
    said = fields_sentence(file, Registration("clinic", None, "text", True, None, None))
    assert said == "Fields of the source: text, \\x1b[31mred."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"A note."),
        ("a.parquet", b"none"),
        ("a.csv", b"text,\xff\n"),
        ("a.jsonl", b"Anna\n"),
        ("a.csv.gz", b"x"),
    ],
)
def test_what_cannot_be_read_has_no_names(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_field_names(tmp_path / name, ASKED) is None
    assert read_field_names(tmp_path / "missing.csv", ASKED) is None
