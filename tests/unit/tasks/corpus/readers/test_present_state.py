"""Files on disk that are not the present state of a table: logs beside them, caches of `datasets`, copies."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.readers.readers import read_documents
from tests.refusals import refusal

KEY = bytes(32)
LOGS = [
    "_delta_log/00000000000000000000.json",
    ".hoodie/hoodie.properties",
    "metadata/v3.metadata.json",
    "metadata/v3.gz.metadata.json",
    "metadata/version-hint.text",
    "metadata/00003-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json",
    "metadata/00003-9C12D441-03FE-4693-9A96-A0705DDF69C1.metadata.json",
    "metadata/snap-3051729675574597004-1-9c12d441-03fe-4693-9a96-a0705ddf69c1.avro",
    "snapshot/snapshot-12",
    "_spark_metadata/0",
    "_lakefs/dummy",
    "_orc_acid_version",
    "_temporary/0/part-1.parquet",
]


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def parquet(path: Path, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": list(texts)}), path)
    return path


def texts(source: Path, unit: str | None = None) -> list[str]:
    return [document.text for document in read_documents(source, unit)]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("asked", ["", "day=1", "day=1/part-0.parquet"])
def test_a_table_with_a_log_is_refused_from_wherever_it_is_reached(tmp_path: Path, log: str, asked: str) -> None:
    """`_spark_metadata` was not looked at, and what lies above and beside the source was not either."""
    put(tmp_path / "table" / log)
    parquet(tmp_path / "table" / "day=1" / "part-0.parquet", "written by an attempt that failed")
    with refusal("TableLogUnread"):
        texts(tmp_path / "table" / asked)


@pytest.mark.parametrize(
    "inside",
    [
        "base_0000003/bucket_00000.parquet",
        "day=1/delta_0000001_0000001_0000/000000_0.parquet",
        "delta_1000000_1000000_0000/000000_0.parquet",
        "delta_0000001_0000010_v0000007/bucket_00000.parquet",
        "delta_9999999_10000001/bucket_00000.parquet",
        "delete_delta_20240101_20240101_0000/bucket_00000.parquet",
        "base_1000000/bucket_00000.parquet",
        "base_2000000_v0000012/bucket_00000.parquet",
        "base_10000000/bucket_00000.parquet",
        "base_20240131_v0000012/bucket_00000.parquet",
        "base_100000000/bucket_00000.parquet",
        "ducklake-0195e1f3-one.parquet",
        "day=1/_temporary/0/x.parquet",
    ],
)
def test_a_path_can_say_that_a_table_has_a_log(tmp_path: Path, inside: str) -> None:
    file = parquet(tmp_path / "table" / inside, "deleted")
    for source in (tmp_path / "table", file.parent, file):
        with refusal("TableLogUnread"):
            texts(source)


def test_links_into_a_table_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "table" / "_spark_metadata" / "0")
    file = parquet(tmp_path / "table" / "part-0.parquet", "deleted")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.parquet").symlink_to(file)
    (tmp_path / "b.parquet").symlink_to(file)
    (tmp_path / "c").symlink_to(tmp_path / "table")
    for source in (tmp_path / "notes", tmp_path / "b.parquet", tmp_path / "c"):
        with refusal("TableLogUnread"):
            texts(source)


def test_a_log_that_no_file_shows_is_seen(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name, make in (("linked", lambda log: log.symlink_to(tmp_path / "elsewhere")), ("empty", Path.mkdir)):
        parquet(tmp_path / name / "part.parquet", "x")
        make(tmp_path / name / "_delta_log")
        with refusal("TableLogUnread"):
            texts(tmp_path / name)


def test_an_export_beside_its_table_is_read(tmp_path: Path) -> None:
    put(tmp_path / "table" / "_delta_log" / "0.json")
    put(tmp_path / "base_1" / "_SUCCESS", b"")
    put(tmp_path / "base_1" / "metadata" / "notes.md")
    parquet(tmp_path / "base_1" / "part-0.parquet", "present")
    assert texts(tmp_path / "base_1") == ["present"]


@pytest.mark.parametrize(
    "beside",
    [
        "notes.metadata.json",
        "notes.parquet-metadata.json",
        "metadata/notes.metadata.json",
        "snapshot/LATEST",
        "LATEST",
        "base_20240131/part-1.parquet",
        "base_31012024/part-1.parquet",
        "base_01312024/part-1.parquet",
        "base_20240131120000/part-1.parquet",
        "base_1706659200/part-1.parquet",
        "delta_20240101_20240131/part-1.parquet",
        "delta_31012024_29022024/part-1.parquet",
        "snapshot/snapshot-20240131/part-1.parquet",
        "base_notes/part-1.parquet",
    ],
)
def test_names_of_ordinary_folders_are_no_marks(tmp_path: Path, beside: str) -> None:
    parquet(tmp_path / "table" / "part-0.parquet", "one")
    if beside.endswith(".parquet"):
        file = parquet(tmp_path / "table" / beside, "two")
        assert texts(file.parent) == texts(file) == ["two"]
    else:
        put(tmp_path / "table" / beside, b"{}")
    assert "one" in texts(tmp_path / "table")


def write(number: int, part: int = 0) -> str:
    return f"part-{part:05}-tid-{number}-e0ab0b4f-{number}-1-c000.snappy.parquet"


@pytest.mark.parametrize(
    ("names", "clear"),
    [
        (["_started_7", "_committed_7", write(7), write(7, 1)], True),
        (["_committed_7", "_committed_vacuum31", "_SUCCESS", write(7)], True),
        (["_started_7", write(7)], False),  # not ended
        (["_started_7", "_committed_7", "_started_8", write(7), write(8)], False),
        (["_committed_7", "_committed_8", write(7), write(8)], False),  # write 8 may have replaced the files of 7
        (["_committed_7", write(6), write(7)], False),  # files of a broken write
        (["_committed_7", write(7), "x.parquet"], False),
    ],
)
@pytest.mark.parametrize("folder", ["", "day=1"])
def test_commits_of_databricks_say_whether_a_folder_counts_whole(
    tmp_path: Path, names: list[str], clear: bool, folder: str
) -> None:
    for name in names:
        path = tmp_path / "t" / folder / name
        parquet(path, name) if name.endswith(".parquet") else put(path)
    put(tmp_path / "t" / "day=0" / "_committed_3", b"{}")
    parquet(tmp_path / "t" / "day=0" / write(3), "earlier")
    if clear:
        assert len(texts(tmp_path / "t")) == 1 + sum(name.endswith(".parquet") for name in names)
        assert texts(tmp_path / "t" / folder / write(7)) == [write(7)]
        return
    with refusal("TableLogUnread", match="Databricks"):
        texts(tmp_path / "t")


def test_one_file_of_a_write_that_has_not_ended_or_was_broken_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "_committed_7", b"{}")
    assert texts(parquet(tmp_path / write(7), "one")) == ["one"]
    with refusal("TableLogUnread", match="Databricks"):
        texts(parquet(tmp_path / write(6), "one"))
    put(tmp_path / "_started_8", b"{}")
    with refusal("TableLogUnread", match="Databricks"):
        texts(tmp_path / write(7))


# --- folders of `datasets.save_to_disk` ---------------------------------------------------------------------


def arrow(path: Path, *texts_: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"patient_id": [f"p{n}" for n in range(len(texts_))], "text": list(texts_)})
    with path.open("wb") as out, ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)


def saved(folder: Path, *texts_: str) -> Path:
    """What `save_to_disk` leaves, and then a `map` of what `load_from_disk` gives."""
    arrow(folder / "data-00000-of-00001.arrow", *texts_)
    arrow(folder / "cache-31a37cf955471907.arrow", *(text.upper() for text in texts_))
    put(folder / "dataset_info.json", b"{}")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "6e3d", "_split": None}
    put(folder / "state.json", json.dumps(state).encode())
    return folder


def test_a_saved_dataset_is_read_without_what_the_library_keeps(tmp_path: Path, home: ProjectHome) -> None:
    """Every record was read twice; without a unit field each was two units."""
    folder = saved(tmp_path / "notes", "one", "two")
    assert texts(folder) == ["one", "two"]
    version = ingest(home, folder, None, KEY)
    assert (version.documents, version.units) == (2, 2)
    assert texts(folder / "data-00000-of-00001.arrow") == ["one", "two"]
    with refusal("SavedDatasetUnfit"):
        texts(folder / "cache-31a37cf955471907.arrow")


def test_splits_are_read_each_by_its_own_description(tmp_path: Path) -> None:
    saved(tmp_path / "notes" / "test", "b")
    saved(tmp_path / "notes" / "train", "a")
    saved(tmp_path / "notes" / "left over", "c")
    put(tmp_path / "notes" / "dataset_dict.json", b'{"splits": ["train", "test"]}')
    assert texts(tmp_path / "notes") == ["b", "a"]


@pytest.mark.parametrize(
    "state",
    [
        b"{",
        b'{"_data_files": []}',
        b'{"_data_files": "data-00000-of-00001.arrow"}',
        b'{"_data_files": [{"filename": "../notes/data-00000-of-00001.arrow"}]}',
        b'{"_data_files": [{"filename": ".."}]}',
        b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}, {"filename": "missing.arrow"}]}',
        b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}, {"filename": "data-00000-of-00001.arrow"}]}',
        b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": [{"filename": "i"}]}',
    ],
)
def test_a_description_that_does_not_say_which_files_count_is_refused(tmp_path: Path, state: bytes) -> None:
    folder = saved(tmp_path / "notes", "one")
    put(folder / "state.json", state)
    with refusal("SavedDatasetUnfit"):
        texts(folder)


def test_a_state_of_something_else_describes_no_dataset(tmp_path: Path) -> None:
    put(tmp_path / "state.json", b'{"step": 3}')
    parquet(tmp_path / "a.parquet", "one")
    assert texts(tmp_path) == ["one"]


def test_a_cache_without_a_description_is_refused(tmp_path: Path) -> None:
    """The library's own folder of a dataset that it has built: `x-train.arrow`, and what `map` kept."""
    arrow(tmp_path / "x-train.arrow", "one")
    arrow(tmp_path / "cache-31a37cf955471907.arrow", "ONE")
    with refusal("SavedDatasetUnfit"):
        texts(tmp_path)


# --- copies, hidden files, and what is not read -------------------------------------------------------------

LINES = b'{"who": "p", "text": "one"}\n'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("x.jsonl", LINES), ("x.jsonl.gz", gzip.compress(LINES))),
        (("x.jsonl", LINES), ("y.ndjson", LINES)),
        (("x.csv", b"who,text\np,one\n"), ("x (1).csv", b"who,text\np,one\n")),
        (("x.jsonl.gz", gzip.compress(LINES, 1, mtime=1)), ("y.jsonl.gz", gzip.compress(LINES, 9, mtime=2))),
    ],
)
def test_a_table_that_is_there_twice_is_refused(
    tmp_path: Path, home: ProjectHome, one: tuple[str, bytes], other: tuple[str, bytes]
) -> None:
    for name, content in (one, other):
        put(tmp_path / "notes" / name, content)
    with refusal("FileRepeated", match="File 2 of 'notes' holds the same bytes as file 1"):
        ingest(home, tmp_path / "notes", None, KEY)


def test_equal_tables_without_records_or_with_other_fields_repeat_nobody(tmp_path: Path, home: ProjectHome) -> None:
    for name in ("part-0.csv", "part-1.csv"):
        put(tmp_path / "notes" / "who=nobody" / name, b"text\n")
    for person in ("p", "q"):
        put(tmp_path / "notes" / f"who={person}" / "a.csv", b"text\nno change\n")
    version = ingest(home, tmp_path / "notes", "who", KEY)
    assert (version.documents, version.units) == (2, 2)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_one_file_under_two_names_is_refused(tmp_path: Path, name: str, link: Callable[..., None]) -> None:
    link(put(tmp_path / name, LINES), tmp_path / f"b{name}")
    with refusal("FileTwice"):
        texts(tmp_path)


def test_hidden_is_hidden_in_folders_of_texts_too(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", b"one")
    for name in (".ipynb_checkpoints/a-checkpoint.txt", "._a.txt", "__MACOSX/a.txt", ".Trash-0/files/b.txt"):
        put(tmp_path / name, b"one")
    assert texts(tmp_path) == ["one"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rest.json", "1 .json"),
        ("rest.TSV", "1 .tsv"),
        ("rest.jsonl.zst", "1 .zst"),
        ("Zebulon.xlsx", "1 .xlsx"),
        ("deep/er/rest.avro", "1 .avro"),
        ("rest.orc", "1 .orc"),
        ("a.jsonl.bak", "1 .jsonl*"),
        ("a.jsonl~", "1 .jsonl*"),
        ("a.csv.Zebulon", "1 .csv*"),
    ],
)
@pytest.mark.parametrize("beside", ["a.jsonl", "a.txt", None])
def test_data_that_is_not_read_is_refused(tmp_path: Path, name: str, told: str, beside: str | None) -> None:
    put(tmp_path / name, LINES)
    if beside is not None:
        put(tmp_path / beside, LINES)
    with refusal("FilesUnread") as refused:
        texts(tmp_path)
    assert told in str(refused.value)
    assert "Zebulon" not in str(refused.value) + refused.value.diagnostics()


def test_documents_are_unread_data_among_texts_and_documentation_among_tables(tmp_path: Path) -> None:
    put(tmp_path / "tables" / "codebook.pdf")
    put(tmp_path / "tables" / "a.jsonl", LINES)
    assert texts(tmp_path / "tables") == ["one"]
    put(tmp_path / "notes" / "a.txt")
    put(tmp_path / "notes" / "b.docx")
    with refusal("FilesUnread", match=r"1 \.docx"):
        texts(tmp_path / "notes")


@pytest.mark.parametrize("name", ["a.ndjson", "a.NDJSON.gz"])
def test_ndjson_is_json_lines(tmp_path: Path, name: str) -> None:
    file = put(tmp_path / "notes" / name, gzip.compress(LINES) if name.endswith("gz") else LINES)
    assert texts(file, "who") == texts(file.parent, "who") == ["one"]
    put(tmp_path / "notes" / "b.jsonl", LINES.replace(b"one", b"two"))
    assert texts(file.parent, "who") == ["one", "two"]


def test_a_folder_without_data_is_not_called_a_folder_of_texts(tmp_path: Path) -> None:
    put(tmp_path / "README.md")
    with refusal("SourceEmpty"):
        read_documents(tmp_path, "patient_id")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.arrow", "b/a.jsonl", "b/a.txt"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """Its reader waited for ever for somebody who writes."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    source = tmp_path / name.split("/")[0]
    with pytest.raises(AlmonerError) as refused:
        texts(source)
    assert refused.value.code == "SourceUnreadable"
    assert "pipe" in str(refused.value)
