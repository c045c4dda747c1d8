"""Readers: what every format gives, and the name of everything that can be wrong with a source."""

import contextlib
import csv
import gzip
import json
import subprocess
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.errors import AlmonerError
from models_db.values.canonical_json import parse_json
from tasks.corpus.readers import documents as records
from tasks.corpus.readers import readers, record_batches, sources
from tasks.corpus.readers.documents import BadRecord
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import (
    name_of,
    source_digest,
    source_state,
)
from tests.refusals import refusal

SECRET = "Zebulon Quartermaine"
GOOD = {"id": "a", "who": "p1", "text": "Good morning."}
ROWS = [
    ("d1", "p1", "Grüße, 患者\nsecond line, with a comma"),
    ("d2", " p2 ", 'He said "no".'),
    ("d3", "p1", "NUL \0 inside"),
]


def read(path: Path, unit: str | None = "who") -> list[tuple[str | None, str | None, str]]:
    return [(d.document_id, d.unit, d.text) for d in read_documents(path, unit)]


def error_of(path: Path, unit: str | None = "who", **fields: str) -> AlmonerError:
    """The error of reading `path`; it must not hold the secret anywhere a person or a log could see it."""
    with pytest.raises(AlmonerError) as caught:
        list(read_documents(path, unit, **fields))
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + error.diagnostics() + repr(error.facts) + repr(error.args)
    assert SECRET not in shown
    assert error.advice
    return error


# --- every format ------------------------------------------------------------------------------------------


def as_jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps({"id": i, "who": w, "text": t}) + "\n" for i, w, t in ROWS), "utf-8")
    return path


def as_csv(path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("who", "text", "id", "other"), *((w, t, i, "x") for i, w, t in ROWS)])
    return path


def as_parquet(path: Path) -> Path:
    ids, units, texts = zip(*ROWS, strict=True)
    pq.write_table(pa.table({"id": ids, "other": [1, 2, 3], "who": units, "text": texts}), path)
    return path


def as_arrow_file(path: Path) -> Path:
    pyarrow.feather.write_feather(pq.read_table(as_parquet(path)), path, compression="lz4", chunksize=2)
    return path


def as_arrow_stream(path: Path) -> Path:
    table = pq.read_table(as_parquet(path))
    with path.open("wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    return path


def zipped(path: Path, write: Callable[[Path], Path]) -> Path:
    path.write_bytes(gzip.compress(write(path).read_bytes()))
    return path


WRITERS = [
    (as_jsonl, "notes.jsonl"),
    (as_csv, "notes.CSV"),
    (as_parquet, "notes.parquet"),
    (as_arrow_file, "notes.feather"),
    (as_arrow_stream, "notes.arrow"),
    (lambda path: zipped(path, as_jsonl), "notes.jsonl.gz"),
    (lambda path: zipped(path, as_csv), "notes.csv.GZ"),
]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_a_table_gives_ids_units_and_texts(tmp_path: Path, write: Callable[[Path], Path], name: str) -> None:
    expected = [(i, w.strip(), t) for i, w, t in ROWS]
    assert read(write(tmp_path / name)) == expected
    assert read(tmp_path / name, unit="id") == [(None, i, t) for i, _, t in ROWS]
    assert read(tmp_path / name, unit=None) == [(i, None, t) for i, _, t in ROWS]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_offsets_grow_to_the_size_of_the_source(tmp_path: Path, write: Callable[[Path], Path], name: str) -> None:
    path = write(tmp_path / name)
    offsets = [document.offset for document in read_documents(path, "who")]
    assert offsets == sorted(offsets)
    size = source_state(path).size
    assert size == path.stat().st_size
    assert offsets[-1] == size or (path.suffix in (".arrow", ".feather") and 0 < offsets[0] < offsets[-1] < size)


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_other_field_names_and_no_ids(tmp_path: Path, write: Callable[[Path], Path], name: str) -> None:
    write(tmp_path / name)
    found = [d.document_id for d in read_documents(tmp_path / name, "id", text_field="who", id_field="none")]
    assert found == [None, None, None]


def test_a_folder_of_text(tmp_path: Path) -> None:
    for place, text in {"b/x.txt": "bx", "a/deep/er/y.TXT": "ay", "a.txt": "a", "b/notes.md": "no"}.items():
        (tmp_path / "n" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "n" / place).write_text(text)
    (tmp_path / "n" / "loop").symlink_to(tmp_path / "n")
    found = list(read_documents(tmp_path / "n", "file"))
    assert [(d.position, d.document_id, d.unit, d.text) for d in found] == [
        (1, "a.txt", "a", "a"),
        (2, "a/deep/er/y.TXT", "y", "ay"),
        (3, "b/x.txt", "x", "bx"),
    ]
    (tmp_path / "n" / "a.txt").unlink()
    assert [d.unit for d in read_documents(tmp_path / "n", "folder")] == ["a", "b"]
    assert [d.unit for d in read_documents(tmp_path / "n", None)] == [None, None]


@given(st.text().filter(lambda text: bool(text.strip())))
def test_any_text_survives_jsonl(text: str) -> None:
    for ascii_only in (True, False):
        line = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
        assert parse_json(line, most_bytes=len(line))["text"] == text


def test_blank_lines_and_a_byte_order_mark_are_no_records(tmp_path: Path) -> None:
    good = json.dumps(GOOD).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + good + b"\r\n\n  \n" + good.replace(b'"a"', b'"b"'))
    assert [d.position for d in read_documents(tmp_path / "a.jsonl", "who")] == [2, 5]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfwho,text\r\np1,one\r\n\r\np2,two")
    assert [(d.position, d.unit) for d in read_documents(tmp_path / "a.csv", "who")] == [(2, "p1"), (4, "p2")]


def test_a_csv_record_is_named_by_the_line_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('who,text\np1,"one\ntwo\nthree"\np2,four\n')
    assert [d.position for d in read_documents(tmp_path / "a.csv", "who")] == [2, 5]


def test_a_csv_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("who,text\np1," + "x" * 500_000 + "\n")
    assert len(read(tmp_path / "a.csv")[0][2]) == 500_000


def test_integers_name_units_and_documents(tmp_path: Path, jsonl: Callable[..., Path]) -> None:
    assert read(jsonl([{"id": 7, "who": 12, "text": "x"}])) == [("7", "12", "x")]
    pq.write_table(pa.table({"id": [7], "who": [12], "text": ["x"]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [("7", "12", "x")]


def test_parquet_is_read_in_batches_and_by_row(tmp_path: Path) -> None:
    count = 3 * record_batches._ROWS_PER_BATCH + 5
    pq.write_table(pa.table({"who": list(range(count)), "text": ["x"] * count}), tmp_path / "a.parquet")
    assert [d.position for d in read_documents(tmp_path / "a.parquet", "who")] == list(range(1, count + 1))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_string_type_of_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(["ä", "b"]).cast(kind)
    pq.write_table(pa.table({"who": column, "text": column}), tmp_path / "a.parquet")
    assert [d.text for d in read_documents(tmp_path / "a.parquet", "who")] == ["ä", "b"]


# --- everything that can be wrong with a record ------------------------------------------------------------

BAD_LINES: list[tuple[str, bytes, str]] = [
    ("Latin-1", f'{{"who": "p", "text": "{SECRET} é"}}'.encode("latin-1"), "NotUtf8"),
    ("a surrogate in bytes", f'{{"who": "p", "text": "{SECRET} '.encode() + b'\xed\xa0\x80"}', "NotUtf8"),
    ("half a surrogate pair", f'{{"who": "p", "text": "{SECRET} \\ud800"}}'.encode(), "NotUtf8"),
    ("a raw NUL", f'{{"who": "p", "text": "{SECRET} \0"}}'.encode(), "NotJson"),
    ("cut off", f'{{"who": "p", "text": "{SECRET}'.encode(), "NotJson"),
    ("two objects", f'{{"text": "{SECRET}"}} {{}}'.encode(), "NotJson"),
    ("plain text", SECRET.encode(), "NotJson"),
    ("a NaN", f'{{"who": NaN, "text": "{SECRET}"}}'.encode(), "NotJson"),
    ("too deep", b'{"who": "p", "text": ' + b"[" * 200_000, "NotJson"),
    ("a key twice", f'{{"who": "p", "who": "q", "text": "{SECRET}"}}'.encode(), "NotJson"),
    ("too many digits", b'{"text": "x", "who": ' + b"9" * 5000 + b"}", "NotJson"),
    ("an array", f'["{SECRET}"]'.encode(), "NotAnObject"),
    ("a string", f'"{SECRET}"'.encode(), "NotAnObject"),
    ("null", b"null", "NotAnObject"),
    ("no text field", f'{{"who": "{SECRET}"}}'.encode(), "NoText"),
    ("empty text", f'{{"who": "{SECRET}", "text": ""}}'.encode(), "NoText"),
    ("blank text", f'{{"who": "{SECRET}", "text": " \\n\\t\\u00a0"}}'.encode(), "NoText"),
    *(
        (f"a text of {name}", json.dumps({"who": SECRET, "text": text}).encode(), "NoText")
        for name, text in {
            "NUL": "\0",
            "controls": "\x01\x07",
            "zero width": "\u200b\u200b",
            "a mark": "\ufeff",
            "a hyphen": "\u00ad",
            "braille": "\u2800",
            "fillers": "\u115f\u1160\u3164\uffa0",
            "a selector": " \ufe0f\u2060\n",
            "a null of SQL": "\\N",
            "null": "NULL",
            "nan": "nan",
            "None": " None \ufeff\n",
            "N/A": "#N/A",
        }.items()
    ),
    ("text is a number", f'{{"who": "{SECRET}", "text": 7}}'.encode(), "NoText"),
    ("text is a list", f'{{"who": "p", "text": ["{SECRET}"]}}'.encode(), "NoText"),
    ("no unit field", f'{{"text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("empty unit", f'{{"who": "", "text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("blank unit", f'{{"who": " \\t", "text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("unit is null", f'{{"who": null, "text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("unit is a float", f'{{"who": 1.5, "text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("unit is a boolean", f'{{"who": true, "text": "{SECRET}"}}'.encode(), "NoUnit"),
    ("unit is an object", f'{{"who": {{"x": "{SECRET}"}}, "text": "x"}}'.encode(), "NoUnit"),
    ("unit is half a pair", f'{{"who": "{SECRET}\\udfff", "text": "x"}}'.encode(), "NoUnit"),
    ("unit has a hidden sign", f'{{"who": "{SECRET}\u200bx", "text": "x"}}'.encode(), "NoUnit"),
    ("unit is of hidden signs", '{"who": "\u202a\u202c", "text": "x"}'.encode(), "NoUnit"),
    ("unit spells null", b'{"who": "NULL", "text": "x"}', "NoUnit"),
    ("unit of a spreadsheet", b'{"who": "=\\"007\\"", "text": "x"}', "NoUnit"),
    ("id has a hidden sign", f'{{"who": "p", "text": "x", "id": "{SECRET}\u200bx"}}'.encode(), "BadDocumentId"),
    ("id is a list", f'{{"who": "p", "text": "x", "id": ["{SECRET}"]}}'.encode(), "BadDocumentId"),
]


@pytest.mark.parametrize(("line", "error"), [c[1:] for c in BAD_LINES], ids=[c[0] for c in BAD_LINES])
def test_a_bad_line_is_named_by_file_and_line(jsonl: Callable[..., Path], line: bytes, error: str) -> None:
    problem = error_of(jsonl([GOOD, line, GOOD]))
    assert problem.code == error
    assert "Line 2 of 'notes.jsonl'" in problem.message
    assert problem.facts == {"file": "notes.jsonl", "position": 2}


BAD_ROWS: list[tuple[str, str, str]] = [
    ("too few cells", f"{SECRET}\n", "MalformedRow"),
    ("too many cells", f"p,x,{SECRET}\n", "MalformedRow"),
    ("open quotes", f'p,"{SECRET}\n', "MalformedRow"),
    ("text after quotes", f'p,"{SECRET}"x\n', "MalformedRow"),
    ("no text", f"{SECRET},\n", "NoText"),
    ("no unit", f" ,{SECRET}\n", "NoUnit"),
    ("a null of SQL as unit", f"\\N,{SECRET}\n", "NoUnit"),
    ("a null of SQL as text", "p,\\N\n", "NoText"),
    ("half a pair", f"p,{SECRET}\udfff\n", "NotUtf8"),
]


@pytest.mark.parametrize(("row", "error"), [c[1:] for c in BAD_ROWS], ids=[c[0] for c in BAD_ROWS])
def test_a_bad_row_of_csv(tmp_path: Path, row: str, error: str) -> None:
    (tmp_path / "a.csv").write_bytes(f"who,text\np,good\n{row}".encode("utf-8", "surrogatepass"))
    problem = error_of(tmp_path / "a.csv")
    assert problem.code == error
    assert "Line 3 of 'a.csv'" in problem.message


@pytest.mark.parametrize(
    ("unit", "text", "error"),
    [("p", None, "NoText"), ("p", " ", "NoText"), (None, SECRET, "NoUnit"), ("", SECRET, "NoUnit")],
)
def test_a_bad_row_of_parquet(tmp_path: Path, unit: str | None, text: str | None, error: str) -> None:
    pq.write_table(pa.table({"who": ["p", unit], "text": ["good", text]}), tmp_path / "a.parquet")
    problem = error_of(tmp_path / "a.parquet")
    assert problem.code == error
    assert "Row 2 of 'a.parquet'" in problem.message


def test_broken_bytes_in_parquet(tmp_path: Path) -> None:
    offsets, data = pa.array([0, 4, 4 + len(SECRET) + 1], pa.int32()).buffers()[1], b"good" + SECRET.encode() + b"\xff"
    texts = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(data))
    pq.write_table(pa.table({"who": ["p", "q"], "text": texts}), tmp_path / "a.parquet")
    problem = error_of(tmp_path / "a.parquet")
    assert problem.code == "NotUtf8"
    assert "Row 2" in problem.message


OTHER_COLUMNS = [
    pa.array([2**62], pa.timestamp("us", tz="Nowhere/Land")),
    pa.array([[SECRET]]),
    pa.array([SECRET.encode()]),
    pa.array([1.5]),
    pa.array([Decimal(7)]),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"p" * 16], pa.binary(16))),
    pa.array([True]),
    pa.nulls(1),
]


@pytest.mark.parametrize("column", OTHER_COLUMNS, ids=lambda column: str(column.type))
def test_other_types_of_parquet_are_refused(tmp_path: Path, column: pa.Array) -> None:
    good = pa.array(["x"])
    pq.write_table(pa.table({"who": column, "text": good}), tmp_path / "unit.parquet")
    pq.write_table(pa.table({"who": good, "text": column}), tmp_path / "text.parquet")
    pq.write_table(pa.table({"who": column, "text": column}), tmp_path / "both.parquet")
    for name, missing in (("unit", "NoUnit"), ("text", "NoText"), ("both", "NoText")):
        told = error_of(tmp_path / f"{name}.parquet")
        if pa.types.is_null(column.type):  # a column in which every value is missing
            assert told.code == missing
        else:
            assert told.code == "ColumnUnfit"
            assert str(told.facts["type"]).split("<")[0] == str(column.type).split("<")[0]


def test_a_bad_file_of_a_folder_is_not_named_after_a_person(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    person = folder / SECRET / f"{SECRET}.txt"
    person.parent.mkdir(parents=True)
    (folder / "A.txt").write_text("good")
    person.write_bytes(SECRET.encode() + b"\xff")
    problem = error_of(folder, "file")
    assert problem.code == "NotUtf8"
    assert "File 2 of the folder 'notes'" in problem.message
    assert "sed -n 2p" in problem.advice
    person.write_text(" \n")
    assert error_of(folder, "file").code == "NoText"
    person.write_text("good, but the other file is in no sub-folder")
    assert error_of(folder, "folder").code == "NoUnit"


def test_the_advice_of_a_folder_finds_the_file(tmp_path: Path) -> None:
    for place in ("a.txt", "a/b.txt", "a-b.txt", "ab/c.txt", "B.TXT", "é.txt", "a/b/c.txt"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("x")
    command = "find . -iname '*.txt' | LC_ALL=C sort"
    listed = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=True).stdout.decode().split()
    assert [f"./{d.document_id}" for d in read_documents(tmp_path, None)] == listed


@pytest.mark.parametrize("name", ["notes.jsonl", "notes.csv", "notes"])
def test_records_have_a_greatest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in (readers, records):
        monkeypatch.setattr(module, "MAX_RECORD_BYTES", 100)
    path = tmp_path / name
    if name == "notes":
        path.mkdir()
        (path / "a.txt").write_text("x" * 101)
    else:
        path.write_text("who,text\n" * (name == "notes.csv") + f"p,{SECRET}" + "x" * 101)
    assert error_of(path, None if name == "notes" else "who").code == "RecordTooLong"


def test_a_csv_row_of_many_lines_has_the_same_greatest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row goes on while its cells hold line breaks, and a compressed file repeats them a thousand times."""
    monkeypatch.setattr(readers, "MAX_RECORD_BYTES", 100)
    rows = [f'p{number},"{"x" * 30}\n{"y" * 30}"' for number in range(9)]
    path = tmp_path / "notes.csv"
    path.write_text("who,text\n" + "\n".join(rows))
    assert len(list(read_documents(path, "who"))) == 9
    path.write_text(path.read_text() + '\np,"' + f"{SECRET[:20]}\n" * 6 + '"')
    assert error_of(path, "who").code == "RecordTooLong"


def test_a_long_cell_of_parquet_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 100)
    pq.write_table(pa.table({"who": ["p"], "text": [SECRET * 10]}), tmp_path / "a.parquet")
    assert error_of(tmp_path / "a.parquet").code == "RecordTooLong"


# --- everything that can be wrong with a source ------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "folder", "no-suffix"])
def test_a_missing_source(tmp_path: Path, name: str) -> None:
    assert error_of(tmp_path / name).code == "SourceMissing"


@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.parquet.gz", "a.gz", "a"])
def test_an_unknown_type(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SECRET)
    assert error_of(tmp_path / name).code == "UnknownFileType"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", b""), ("b.jsonl", b"\n \n"), ("a.csv", b""), ("b.csv", b"who,text\n"), ("c.csv", b"\xef\xbb\xbf")],
)
def test_an_empty_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert error_of(tmp_path / name).code in ("SourceEmpty", "ColumnMissing")


def test_an_empty_table_and_an_empty_folder(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"who": pa.array([], pa.string()), "text": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    assert error_of(tmp_path / "a.parquet").code == "SourceEmpty"
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    (tmp_path / "notes" / "sub" / "a.md").write_text("x")
    assert error_of(tmp_path / "notes", None).code == "SourceEmpty"


@pytest.mark.parametrize("header", ["id,text", "who,id", "who,text,who", "who,text,text", f"{SECRET},7"])
def test_a_missing_or_double_column_of_csv(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(header + "\n" + ",".join("x" for _ in header.split(",")) + "\n")
    assert error_of(tmp_path / "a.csv").code == "ColumnMissing"


def test_a_missing_or_double_column_of_parquet(tmp_path: Path) -> None:
    for number, names in enumerate((["who"], ["text"], ["who", "text", "who"])):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.Table.from_arrays([pa.array(["x"])] * len(names), names), path)
        assert error_of(path).code == "ColumnMissing"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + SECRET.encode() * 20 + b"PAR1", SECRET.encode()])
def test_what_is_not_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    assert error_of(tmp_path / "a.parquet").code == "SourceUnreadable"


def test_damaged_parquet(tmp_path: Path) -> None:
    path = as_parquet(tmp_path / "a.parquet")
    whole = path.read_bytes()
    for start in range(4, len(whole) - 8, 97):
        path.write_bytes(whole[:start] + b"\xff" * 16 + whole[start + 16 :])
        with contextlib.suppress(AlmonerError):  # and no other error
            list(read_documents(path, "who"))


def test_an_unknown_unit_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert error_of(tmp_path, "patient_id").code == "UnknownFolderUnit"


def test_an_unreadable_source(tmp_path: Path) -> None:
    loop = tmp_path / "a.jsonl"
    loop.symlink_to(loop)
    assert error_of(loop).code == "SourceUnreadable"
    for look in (source_state, source_digest):
        with refusal("SourceUnreadable"):
            look(loop)


def test_a_path_that_cannot_even_be_looked_at(tmp_path: Path) -> None:
    assert error_of(tmp_path / ("x" * 5000 + ".jsonl")).code == "SourceUnreadable"


def test_a_read_error_in_the_middle_is_named(
    tmp_path: Path, jsonl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(lines: object) -> object:
        yield json.dumps(GOOD)
        raise OSError(5, "Input/output error", SECRET)

    monkeypatch.setattr(readers._Lines, "__iter__", failing)
    problem = error_of(jsonl([GOOD]))
    assert problem.code == "SourceUnreadable"
    assert "Input/output error" in problem.message


def test_problems_of_the_consumer_are_its_own(jsonl: Callable[..., Path]) -> None:
    def consume() -> None:
        for _ in read_documents(jsonl([GOOD]), "who"):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        consume()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_no_file_stays_open_after_an_error_or_an_early_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_text('{"who": "p", "text": "x"}\n[]\n' if name == "a.jsonl" else "who,text\np,x\nq\n")
    files, really_open = [], sources.open_user_file

    def watched(path: Path) -> object:
        files.append(really_open(path))
        return files[-1]

    monkeypatch.setattr(sources, "open_user_file", watched)
    documents = read_documents(path, "who")
    next(documents)
    with pytest.raises(BadRecord) as held:
        next(documents)
    assert held.value  # still held, and with it every frame
    stopped = read_documents(path, "who")
    next(stopped)
    stopped.close()
    assert len(files) >= 2
    assert all(file.closed for file in files)


def test_documents_hide_their_content(jsonl: Callable[..., Path]) -> None:
    (document,) = read_documents(jsonl([{"id": SECRET, "who": SECRET, "text": SECRET}]), "who")
    assert SECRET not in repr(document)


# --- the source as a whole ---------------------------------------------------------------------------------


def test_state_and_digest_of_a_file_follow_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one")
    state, digest = source_state(path), source_digest(path)
    assert (state, digest) == (source_state(path), source_digest(path))
    path.write_bytes(b"two!")
    assert source_state(path) != state
    assert source_digest(path) != digest


def test_the_digest_of_a_folder_does_not_depend_on_where_it_is(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "a.txt").write_text("x")
    assert source_digest(tmp_path / "one") == source_digest(tmp_path / "two")
    (tmp_path / "two" / "sub" / "a.txt").rename(tmp_path / "two" / "a.txt")
    assert source_digest(tmp_path / "one") != source_digest(tmp_path / "two")


def test_a_source_is_named_even_as_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_of(Path()) == tmp_path.name


@pytest.mark.parametrize("name", ["mts_dialog", "oasst_en100", "echr_communicated", "newsgroups20_with_emails"])
def test_real_data_sets_are_read_whole(shared_data: Path, name: str) -> None:
    path = shared_data / f"{name}.jsonl"
    expected = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert read(path, "id") == [(None, r["id"], r["text"]) for r in expected]


# --- one person is one unit, however the id comes in -------------------------------------------------------

SPELLINGS = ["Ana", "\u200eAna", "\u202aAna\u202c", "Ana\ufeff", " \u200bAna\u2060 ", "\u00adAna"]


def test_spellings_that_look_alike_are_one_unit_in_every_format(tmp_path: Path) -> None:
    rows = [{"who": spelling, "text": "x"} for spelling in SPELLINGS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.csv").write_text("who,text\n" + "".join(f"{spelling},x\n" for spelling in SPELLINGS))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    pyarrow.feather.write_feather(pa.Table.from_pylist(rows), tmp_path / "a.feather")
    for number, spelling in enumerate(SPELLINGS):
        for folder, unit in (("of_folders", spelling), ("of_files", str(number))):
            path = tmp_path / folder / unit / (f"{spelling}.txt" if folder == "of_files" else "a.txt")
            path.parent.mkdir(parents=True)
            path.write_text("x")
        hive = tmp_path / "hive" / f"who={spelling}" / "a.jsonl"
        hive.parent.mkdir(parents=True)
        hive.write_text('{"text": "x"}\n')
    sources = {"a.jsonl": "who", "a.csv": "who", "a.parquet": "who", "a.feather": "who", "hive": "who"}
    for name, unit_field in (sources | {"of_folders": "folder", "of_files": "file"}).items():
        found = [document.unit for document in read_documents(tmp_path / name, unit_field)]
        assert found == ["Ana"] * len(SPELLINGS), name


@pytest.mark.parametrize("value", ["NULL", "NA", "-", "A\u200bna"])
def test_folders_and_files_of_nobody_are_refused(tmp_path: Path, value: str) -> None:
    for name, inside in {
        "hive": f"who={value}/a.jsonl",
        "folders": f"{value}/a.txt",
        "files": f"b/{value}.txt",
    }.items():
        path = tmp_path / name / inside
        path.parent.mkdir(parents=True)
        path.write_text('{"text": "x"}\n')
    for name, unit in {"hive": "who", "folders": "folder", "files": "file"}.items():
        assert error_of(tmp_path / name, unit).code == "NoUnit"


def test_a_person_called_null_can_be_taken(jsonl: Callable[..., Path]) -> None:
    source = jsonl([b'{"who": " Null ", "text": "x"}'])
    assert [document.unit for document in read_documents(source, "who", allowed_units=["Null"])] == ["Null"]
    with refusal("NoUnit"):
        list(read_documents(source, "who", allowed_units=["NULL"]))


def test_a_document_id_that_says_that_it_is_missing_is_missing(jsonl: Callable[..., Path]) -> None:
    source = jsonl([b'{"who": "p", "text": "x", "id": "NULL"}'] * 2 + [b'{"who": "p", "text": "x", "id": "\\u200b7"}'])
    assert [document.document_id for document in read_documents(source, "who")] == [None, None, "7"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('{"who": NaN, "text": "x"}', "NaN and Infinity are not JSON"),
        ('{"who": "p", "text": "x", "score": -Infinity}', "NaN and Infinity are not JSON"),
        ('{"text": ' + "[" * 70 + "]" * 70 + "}", "deeper than 64 levels"),
        ('{"who": "p", "who": "q"}', "a key is there twice"),
        ('{"who": "p", "text": "\\ud83d"}', "half of a surrogate pair"),
        ('{"who": "\\ud83d", "text": "x"}', "half of a surrogate pair"),
        ('{"who": "p', "it is not JSON"),
        ('{"who": "NULL", "text": "x"}', "spells that a value is missing"),
        ('{"who": "a\\u202eb", "text": "x"}', "nobody sees"),
        ('{"who": true, "text": "x"}', "neither a string nor an integer"),
        ('{"text": "x"}', "is missing or empty"),
    ],
)
def test_a_refusal_names_the_cause(jsonl: Callable[..., Path], line: str, cause: str) -> None:
    assert cause in error_of(jsonl([line.encode()])).message


@pytest.mark.parametrize("label", ["می\u200cخواهم", "👩\u200d⚕\ufe0f ward"])
def test_joined_letters_and_emoji_are_labels(jsonl: Callable[..., Path], label: str) -> None:
    source = jsonl([json.dumps({"text": "x", "ward": f"\u200e{label} "}).encode()])
    assert [document.label for document in read_documents(source, None, label_field="ward")] == [label]
