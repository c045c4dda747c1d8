"""The rows of the texts in columns: the same rows, nothing beside them."""

from io import BytesIO
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import ParquetFile, ParquetWriter, read_table, write_table

from tasks.publishing.documents.parquet import parquet, same_rows
from tasks.release.bundle_format import text_line

TEXTS = ("Doctor: How are you?", "", "a\nb\x00 \U0001f600")
FILM = '{"title":"Alien","score":8.5,"cast":["S. Weaver"]}'


def rows(kind: str, texts: tuple[str, ...] = TEXTS, label: str | None = None) -> list[bytes]:
    return [text_line(kind, number, text, label) for number, text in enumerate(texts, 1)]


def read(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(BytesIO(data)).to_pylist()
    return found


def test_texts_and_labels_are_columns() -> None:
    assert read(parquet(rows("synthetic_corpus"), "synthetic_corpus", labelled=False)) == [
        {"id": number, "text": text} for number, text in enumerate(TEXTS, 1)
    ]
    labelled = parquet(rows("demonstrations", label="x"), "demonstrations", labelled=True)
    assert read(labelled)[0] == {"id": 1, "label": "x", "text": TEXTS[0]}


def test_a_record_is_its_json_and_null_where_it_is_none() -> None:
    data = parquet(rows("records", (FILM, "no record")), "records", labelled=False)
    assert read(data) == [
        {"id": 1, "raw": FILM, "record": FILM},
        {"id": 2, "raw": "no record", "record": None},
    ]
    assert same_rows(data, rows("records", (FILM, "no record")), "records", labelled=False)


def test_a_release_without_texts_has_columns_all_the_same() -> None:
    data = parquet([], "synthetic_corpus", labelled=True)
    assert ParquetFile(BytesIO(data)).schema_arrow.names == ["id", "label", "text"]
    assert same_rows(data, [], "synthetic_corpus", labelled=True)


def test_its_bytes_are_the_same_every_time_and_tell_nothing_but_the_writer() -> None:
    lines = rows("synthetic_corpus")
    data = parquet(lines, "synthetic_corpus", labelled=False)
    assert parquet(list(lines), "synthetic_corpus", labelled=False) == data
    assert ParquetFile(BytesIO(data)).metadata.metadata is None


def test_a_word_in_it_can_be_searched_for() -> None:
    assert TEXTS[0].encode() in parquet(rows("synthetic_corpus"), "synthetic_corpus", labelled=False)


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_any_text_comes_back(texts: list[str]) -> None:
    lines = rows("synthetic_corpus", tuple(texts))
    data = parquet(lines, "synthetic_corpus", labelled=False)
    assert [row["text"] for row in read(data)] == texts
    assert same_rows(data, lines, "synthetic_corpus", labelled=False)


def written(table: Any, **options: Any) -> bytes:
    out = BytesIO()
    write_table(table, out, **options)
    return out.getvalue()


def test_another_writer_may_have_written_it_if_the_rows_are_the_same() -> None:
    lines = rows("synthetic_corpus")
    table = read_table(BytesIO(parquet(lines, "synthetic_corpus", labelled=False)))
    data = written(table, compression="snappy", store_schema=False)
    assert data != parquet(lines, "synthetic_corpus", labelled=False)
    assert same_rows(data, lines, "synthetic_corpus", labelled=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.slice(0, 2),
        lambda t: t.take([1, 0, 2]),
        lambda t: t.append_column("unit", [["p-1", "p-2", "p-3"]]),
        lambda t: t.drop_columns(["id"]),
        lambda t: t.rename_columns(["id", "raw"]),
        lambda t: t.select(["text", "id"]),
        lambda t: t.set_column(1, t.schema.field(1), [["other", "", TEXTS[2]]]),
        lambda t: t.cast(pyarrow.schema([pyarrow.field("id", pyarrow.int32(), nullable=False), t.schema.field(1)])),
        lambda t: t.cast(pyarrow.schema([t.schema.field(0), pyarrow.field("text", pyarrow.string())])),
    ],
)
def test_other_rows_columns_or_remarks_are_found(change: Any) -> None:
    lines = rows("synthetic_corpus")
    table = read_table(BytesIO(parquet(lines, "synthetic_corpus", labelled=False)))
    assert same_rows(written(table, store_schema=False), lines, "synthetic_corpus", labelled=False)
    assert not same_rows(written(change(table), store_schema=False), lines, "synthetic_corpus", labelled=False)


def test_a_key_with_a_value_is_a_remark() -> None:
    lines = rows("synthetic_corpus")
    table = read_table(BytesIO(parquet(lines, "synthetic_corpus", labelled=False)))
    assert not same_rows(written(table, store_schema=True), lines, "synthetic_corpus", labelled=False)
    out = BytesIO()
    with ParquetWriter(out, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"units": "154"})
    assert not same_rows(out.getvalue(), lines, "synthetic_corpus", labelled=False)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 20, b"\x00" * 100])
def test_what_is_no_parquet_file_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises((ValueError, OSError)):
        same_rows(data, [], "synthetic_corpus", labelled=False)
