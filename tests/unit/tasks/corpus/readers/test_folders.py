"""Folders of tables: shards, fields in paths, what is passed over and what is refused."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import (
    source_digest,
    source_state,
)
from tests.refusals import refusal

PERSON = "Zebulon Quartermaine"


def lines(path: Path, *records: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def parquet(path: Path, **columns: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def read(folder: Path, unit: str | None = "who", label: str | None = None) -> list[tuple[str | None, str, str | None]]:
    return [(d.unit, d.text, d.label) for d in read_documents(folder, unit, label_field=label)]


def error_of(folder: Path, unit: str | None = "who") -> AlmonerError:
    with pytest.raises(AlmonerError) as caught:
        list(read_documents(folder, unit))
    assert PERSON not in str(caught.value) + caught.value.diagnostics()
    return caught.value


def test_shards_are_read_in_byte_order_of_their_paths(tmp_path: Path) -> None:
    lines(tmp_path / "b.jsonl", {"who": 1, "text": "third"}, {"who": 2, "text": "fourth"})
    lines(tmp_path / "a" / "z.jsonl.gz", {"who": 3, "text": "second"})
    lines(tmp_path / "A.JSONL", {"who": 4, "text": "first"})
    assert [text for _, text, _ in read(tmp_path)] == ["first", "second", "third", "fourth"]
    offsets = [document.offset for document in read_documents(tmp_path, "who")]
    assert offsets == sorted(offsets)
    assert offsets[-1] == source_state(tmp_path).size


def test_a_path_fixes_fields_of_its_records(tmp_path: Path) -> None:
    parquet(tmp_path / "year=2025" / "stars=1" / "part-0.parquet", who=["p1", "p2"], text=["bad", "worse"])
    parquet(tmp_path / "year=2025" / "stars=a%2Fb" / "part-0.parquet", who=["p3"], text=["odd"])
    parquet(tmp_path / "year=2026" / "stars=__HIVE_DEFAULT_PARTITION__" / "part-0.parquet", who=["p4"], text=["none"])
    assert read(tmp_path, label="stars") == [
        ("p1", "bad", "1"),
        ("p2", "worse", "1"),
        ("p3", "odd", "a/b"),
        ("p4", "none", None),
    ]
    assert [unit for unit, _, _ in read(tmp_path, unit="year")] == ["2025", "2025", "2025", "2026"]


def test_markers_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    parquet(tmp_path / "part-0.parquet", who=["p"], text=["kept"])
    for name in ("_SUCCESS", "_metadata.parquet", ".part-0.parquet", "dataset_info.json", "README.md"):
        (tmp_path / name).write_text("no table")
    parquet(tmp_path / ".cache" / "old.parquet", who=["p"], text=["old"])
    assert read(tmp_path) == [("p", "kept", None)]


def test_a_field_that_begins_with_an_underscore_is_a_field(tmp_path: Path) -> None:
    parquet(tmp_path / "_year=2020" / "part-0.parquet", who=["p"], text=["kept"])
    assert read(tmp_path, label="_year") == [("p", "kept", "2020")]


def test_a_field_of_a_path_that_is_not_asked_for_is_not_named(tmp_path: Path) -> None:
    lines(tmp_path / f"{PERSON}=1" / "a.jsonl", {"who": "p", "text": "kept", PERSON: 2})
    assert read(tmp_path) == [("p", "kept", None)]


@pytest.mark.parametrize("second", ["b.csv", "notes.txt", "deep/er/c.parquet"])
def test_two_formats_are_refused(tmp_path: Path, second: str) -> None:
    lines(tmp_path / "a.jsonl", {"who": 1, "text": "x"})
    (tmp_path / second).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / second).write_text("x")
    assert error_of(tmp_path).code == "FolderMixed"
    for whole in (source_state, source_digest):
        with refusal("FolderMixed"):
            whole(tmp_path)


@pytest.mark.parametrize(
    "log", ["_delta_log/0.json", ".hoodie/x.commit", "metadata/v1.metadata.json", "metadata/v1.metadata.json.gz"]
)
def test_a_table_with_a_log_is_refused(tmp_path: Path, log: str) -> None:
    parquet(tmp_path / "data" / "part-0.parquet", who=["p"], text=["deleted long ago"])
    (tmp_path / log).parent.mkdir(parents=True)
    (tmp_path / log).write_text("{}")
    assert error_of(tmp_path).code == "TableLogUnread"


def test_a_field_in_path_and_record_is_refused(tmp_path: Path) -> None:
    lines(tmp_path / "who=all" / "a.jsonl", {"who": 1, "text": "x"})
    assert error_of(tmp_path).code == "FieldTwice"
    parquet(tmp_path / "p" / "who=all" / "a.parquet", who=["p"], text=["x"])
    assert error_of(tmp_path / "p").code == "ColumnMissing"


@pytest.mark.parametrize("inside", [f"who={PERSON}/who=2", "who=M%FCller", "who=%ED%A0%80"])
def test_a_path_that_names_no_one_unit_is_refused(tmp_path: Path, inside: str) -> None:
    """Müller and Möller, in Latin-1 behind percent signs, were one unit; of a field twice the last value was taken."""
    lines(tmp_path / "notes" / "a.jsonl", {"who": 1, "text": "x"})
    lines(tmp_path / "notes" / inside / f"{PERSON}.jsonl", {"text": "y"})
    problem = error_of(tmp_path / "notes")
    assert problem.code == "PathFieldUnfit"
    assert problem.message.startswith("The path of file 2 of 'notes' ")


@pytest.mark.parametrize("name", ["b.jsonl", "b.txt"])
def test_a_link_to_nothing_is_refused_and_one_to_a_folder_passed_over(tmp_path: Path, name: str) -> None:
    """A snapshot of the hub is links; one whose file is missing must not be a smaller corpus."""
    source = tmp_path / "notes"
    lines(source / name.replace("b", "a"), {"text": "x"})
    (source / "elsewhere").symlink_to(tmp_path)
    (source / "README.md").symlink_to(tmp_path / "nothing")
    assert len(list(read_documents(source, None))) == 1
    (source / name).symlink_to(tmp_path / "nothing")
    assert error_of(source, None).code == "SourceUnreadable"
    with refusal("SourceUnreadable"):
        source_state(source)


def test_problems_name_the_number_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    lines(folder / "a.jsonl", {"who": 1, "text": "x"})
    lines(folder / f"patient={PERSON}" / f"{PERSON}.jsonl", {"who": 1, "text": "x"})
    with (folder / f"patient={PERSON}" / f"{PERSON}.jsonl").open("a") as file:
        file.write(f'{{"{PERSON}"')
    problem = error_of(folder)
    assert problem.code == "NotJson"
    assert problem.message.startswith("Line 2 of 'notes, file 2' ")
    assert "byte order" in problem.advice


def test_an_id_that_comes_again_is_named_in_its_file(tmp_path: Path, home: ProjectHome) -> None:
    folder = tmp_path / "notes"
    lines(folder / "a.jsonl", {"who": 1, "id": "d1", "text": "x"})
    lines(folder / "b.jsonl", {"who": 1, "id": "d2", "text": "x"}, {"who": 1, "id": "d1", "text": "y"})
    with refusal("DuplicateDocument", match="Line 2 of 'notes, file 2'"):
        ingest(home, folder, "who", bytes(32))


def test_damaged_and_empty_shards(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"who": 1, "text": "x"}\n' * 1000)[:-20])
    assert error_of(tmp_path).code == "SourceUnreadable"
    (tmp_path / "a.jsonl.gz").write_bytes(b'{"who": 1, "text": "x"}\n')
    assert error_of(tmp_path).code == "SourceUnreadable"
    (tmp_path / "a.jsonl.gz").write_bytes(b"")  # an upload that was cut off
    assert error_of(tmp_path).code == "SourceUnreadable"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b""))
    assert error_of(tmp_path).code == "SourceEmpty"
    (tmp_path / "a.jsonl.gz").rename(tmp_path / "a.arrow")
    assert error_of(tmp_path).code == "SourceUnreadable"


@pytest.mark.parametrize(("first", "then"), [("a.txt", "a.jsonl"), ("a.jsonl", "a.txt")])
def test_a_folder_that_changes_its_format_is_not_read_as_what_it_was(tmp_path: Path, first: str, then: str) -> None:
    lines(tmp_path / first, {"text": "x"})
    documents = read_documents(tmp_path, None)
    (tmp_path / first).rename(tmp_path / then)
    with refusal("SourceChanged"):
        list(documents)


def test_state_and_digest_see_every_shard(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", {"who": 1, "text": "x"})
    lines(tmp_path / "b.jsonl", {"who": 2, "text": "y"})
    state, digest = source_state(tmp_path), source_digest(tmp_path)
    (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")
    assert source_digest(tmp_path) != digest
    assert source_state(tmp_path) != state  # its path may say whose records they are
    (tmp_path / "c.jsonl").unlink()
    assert source_state(tmp_path) != state
    (tmp_path / "notes.md").write_text("no data")
    assert source_state(tmp_path).size == (tmp_path / "a.jsonl").stat().st_size
