"""Streaming readers for private sources: JSONL, CSV, Parquet and a folder of text files.

A source is read front to back in bounded memory, and every problem ends in a named error with the file and
the place. Errors name the fields that were asked for, never those that were found: a CSV file without a
header has a person's record in its first line.
"""

import csv
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, BinaryIO, TypeAlias

from models_db.errors import UsageError
from models_db.values.bounded_json import InvalidJson, parse_json
from tasks.corpus.readers.documents import (
    MAX_RECORD_BYTES,
    Fields,
    MalformedRow,
    NotAnObject,
    NotJson,
    NotUtf8,
    RecordTooLong,
    SourceDocument,
)
from tasks.corpus.readers.object_source import StoredSource
from tasks.corpus.readers.sources import (
    Source,
    SourceEmpty,
    SourceMissing,
    SourceUnreadable,
    name_of,
    named_problems,
    size_of,
    texts_of,
)

FOLDER_UNITS = ("folder", "file")
_ROWS_PER_BATCH = 1024

Documents: TypeAlias = Generator[SourceDocument, None, None]
_Reader: TypeAlias = Callable[[Source, Fields], Documents]


def read_documents(
    path: Source,
    unit_field: str | None,
    text_field: str = "text",
    id_field: str = "id",
    label_field: str | None = None,
) -> Documents:
    """Return an iterator over the documents, in order. A caller that stops early closes it, and with it the file.

    Blank lines of JSONL and CSV are passed over; a byte-order mark at the start of a file is no part of it.
    CSV has a header and commas. In a text folder every *.txt below it is a document, in byte order of the
    paths (links to folders are not followed); its id is its path inside the folder. The unit field is then
    None, `folder` (the sub-folder directly below `path` that holds it, at whatever depth) or `file` (its
    name without .txt; files of one name in different sub-folders are then one unit).

    Args:
        path: a .jsonl, .csv or .parquet file, or a folder; here or in a store.
        unit_field: the field with the privacy unit's id, or None if every record is a unit of its own.
        text_field: the field with the text (a folder has none).
        id_field: the field with the document's id, which may be absent (a folder has none).
        label_field: the field with the document's label, or None if no labels are kept. A record without one is a
            document without a label.

    Raises:
        SourceMissing, UnknownFileType, UnknownFolderUnit, FolderWithoutLabels: at once.
        SourceUnreadable, ColumnMissing, ColumnUnfit, SourceEmpty, BadRecord (see `records`): while reading.
        LabelFieldEmpty: at the end, if not one record has a label.
    """
    with named_problems(path):
        exists, is_folder = path.exists() or path.is_symlink(), path.is_dir()
    if not exists:
        raise SourceMissing(path)
    if is_folder:
        if unit_field not in (None, *FOLDER_UNITS):
            raise UnknownFolderUnit(path, unit_field or "")
        if label_field is not None:
            raise FolderWithoutLabels(path, label_field)
        return _guarded(_read_folder, path, Fields(unit_field, text="text", document_id="id"))
    if (read := _READERS.get(path.suffix.lower())) is None:
        raise UnknownFileType(path)
    return _guarded(read, path, Fields(unit_field, text_field, id_field, label_field))


def _guarded(read: _Reader, path: Source, fields: Fields) -> Documents:
    empty, labelled = True, False
    with named_problems(path), closing(read(path, fields)) as documents:
        for document in documents:
            empty, labelled = False, labelled or document.label is not None
            yield document
    if empty:
        raise SourceEmpty(path)
    if fields.label is not None and not labelled:
        raise LabelFieldEmpty(path, fields.label)


class _Lines:
    """The lines of a UTF-8 file as text; `number` is the current line's, `offset` counts the bytes so far."""

    def __init__(self, file: BinaryIO, source: Source) -> None:
        self.file, self.source, self.number, self.offset = file, source, 0, 0

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(MAX_RECORD_BYTES + 1):
            self.number += 1
            self.offset += len(line)
            yield self._decoded(line)

    def _decoded(self, line: bytes) -> str:
        if len(line) > MAX_RECORD_BYTES:
            raise RecordTooLong(self.source, self.number)
        try:
            return line.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise NotUtf8(self.source, self.number) from None


def _read_jsonl(source: Source, fields: Fields) -> Documents:
    with source.open("rb") as file:
        lines = _Lines(file, source)
        for line in lines:
            if not line.strip():
                continue
            try:
                record = parse_json(line, most_bytes=MAX_RECORD_BYTES, halves=True)
            except InvalidJson:
                raise NotJson(source, lines.number) from None
            if not isinstance(record, dict):
                raise NotAnObject(source, lines.number)
            yield fields.document(record, source, lines.number, lines.offset)


def _read_csv(source: Source, fields: Fields) -> Documents:
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module's own limit, 128 KiB, is shorter than a long document
    with source.open("rb") as file:
        lines = _Lines(file, source)
        rows = csv.reader(lines, strict=True)
        header = _next_row(rows, source, 1)
        if header is None:
            return
        _columns(header, fields, source)
        while (row := _next_row(rows, source, start := lines.number + 1)) is not None:
            if len(row) not in (0, len(header)):
                raise MalformedRow(source, start)
            if row:
                yield fields.document(dict(zip(header, row, strict=True)), source, start, lines.offset)


def _next_row(rows: Iterator[list[str]], source: Source, start: int) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error:
        raise MalformedRow(source, start) from None


def _read_parquet(source: Source, fields: Fields) -> Documents:
    import pyarrow  # here, because it is the slowest import of the room and three formats do without
    import pyarrow.parquet

    position, size = 0, size_of(source)
    try:
        with _seekable(source) as place, pyarrow.parquet.ParquetFile(place) as file:
            rows = file.metadata.num_rows
            columns = _columns(file.schema_arrow.names, fields, source)
            plain = [name for name in columns if _is_plain(file.schema_arrow.field(name).type)]
            if fields.label is not None and fields.label not in plain:
                raise ColumnUnfit(source, fields.label)
            for batch in file.iter_batches(_ROWS_PER_BATCH, columns=columns, use_threads=False):
                for row in range(batch.num_rows):
                    position += 1
                    record = {name: batch.column(name)[row].as_py() for name in plain}
                    yield fields.document(record, source, position, size * position // rows)
    except UnicodeDecodeError:
        raise NotUtf8(source, position) from None
    except pyarrow.ArrowException:
        raise SourceUnreadable(source, "it is not a Parquet file, or it is damaged") from None


def _seekable(source: Source) -> AbstractContextManager[Any]:
    """Return the file that pyarrow reads: it opens a path on its own."""
    return source.open("rb") if isinstance(source, StoredSource) else nullcontext(source)


def _is_plain(kind: Any) -> bool:
    """Return whether a Parquet column holds strings or integers; others count as missing and are never converted."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_integer(kind)
    )


def _columns(header: Sequence[str], fields: Fields, source: Source) -> list[str]:
    """Return the columns to read: text, unit, label and any document id; each exactly once in `header`."""
    required = {fields.text, fields.unit or fields.text, fields.label or fields.text}
    if fields.document_id in header:
        required.add(fields.document_id)
    for name in sorted(required):
        if header.count(name) != 1:
            raise ColumnMissing(source, name)
    return sorted(required)


def _read_folder(source: Source, fields: Fields) -> Documents:
    offset = 0
    for position, (inside, path) in enumerate(texts_of(source), 1):
        with path.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
        if len(data) > MAX_RECORD_BYTES:
            raise RecordTooLong(source, position)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise NotUtf8(source, position) from None
        offset += len(data)
        folder = inside.parts[0] if len(inside.parts) > 1 else None
        record = {"text": text, "id": inside.as_posix(), "folder": folder, "file": path.stem}
        yield fields.document(record, source, position, offset)


_READERS: dict[str, _Reader] = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}


class UnknownFileType(UsageError):
    """A file that no reader is made for."""

    def __init__(self, source: Source) -> None:
        super().__init__(
            f"{name_of(source)!r} is neither .jsonl, .csv or .parquet nor a folder of .txt files.",
            "Convert it, or rename it if only the ending is wrong.",
            {"file": name_of(source)},
        )


class UnknownFolderUnit(UsageError):
    """A unit field that a text folder does not have."""

    def __init__(self, source: Source, unit_field: str) -> None:
        super().__init__(
            f"The text folder {name_of(source)!r} has no unit field {unit_field!r}.",
            "Use `folder` (the sub-folder) or `file` (the file's name), or no unit field.",
            {"file": name_of(source), "unit": unit_field},
        )


class FolderWithoutLabels(UsageError):
    """Labels are asked of a text folder, which has none."""

    def __init__(self, source: Source, label_field: str) -> None:
        super().__init__(
            f"The text folder {name_of(source)!r} has no field {label_field!r}: its files have no labels.",
            "Leave the label field out, or write the texts into a JSONL, CSV or Parquet file with a label in each.",
            {"file": name_of(source), "label": label_field},
        )


class LabelFieldEmpty(UsageError):
    """A label field that no record has: most likely a typing error."""

    def __init__(self, source: Source, label_field: str) -> None:
        super().__init__(
            f"No record of {name_of(source)!r} has a label in {label_field!r}.",
            "Name the right field, then ingest again; nothing of this attempt was kept.",
            {"file": name_of(source), "label": label_field},
        )


class ColumnUnfit(UsageError):
    """A Parquet column that holds neither text nor integers."""

    def __init__(self, source: Source, column: str) -> None:
        super().__init__(
            f"The column {column!r} of {name_of(source)!r} holds neither text nor integers, so it cannot be the label.",
            "Name another field, or convert the column to text.",
            {"file": name_of(source), "column": column},
        )


class ColumnMissing(UsageError):
    """A table that does not have a wanted column exactly once."""

    def __init__(self, source: Source, column: str) -> None:
        super().__init__(
            f"{name_of(source)!r} does not have exactly one column {column!r}.",
            "Name the right field, or give the file a header (CSV cells are separated by commas).",
            {"file": name_of(source), "column": column},
        )
