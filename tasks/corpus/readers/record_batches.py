"""Readers of tables by columns: Parquet, and Arrow's file and stream formats (Feather; what `datasets` saves)."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from models_db.errors import UsageError
from tasks.common.files import require_user_file
from tasks.corpus.readers.documents import NOT_UTF8, BadRecord, Fields, SourceDocument
from tasks.corpus.readers.sources import AnySource, Shard, format_of, name_of, open_bytes, size_of, source_unreadable

_ROWS_PER_BATCH = 16
"""Rows of Parquet that are decoded at once: a dictionary repeats a value of up to 64 MiB in each row at no size."""
_MAGIC_OF_FILES = b"ARROW1"

_Batches: TypeAlias = Iterator[tuple[Any, int]]
"""Batches of records, each with the bytes of the source that were read when it ended."""


def read_parquet(source: AnySource, fields: Fields) -> Generator[SourceDocument, None, None]:
    """Yield the documents of a Parquet file; a few rows and the pages that they are in are in memory at a time.

    Raises:
        SourceUnreadable, ColumnMissing, ColumnUnfit, BadRecord.
    """
    import pyarrow.parquet  # here, because it is the slowest import of the room and other formats do without

    size, done = size_of(source), 0
    with (
        _named_problems(source, "a Parquet file"),
        _seekable(source) as place,
        pyarrow.parquet.ParquetFile(place) as file,
    ):
        columns = require_columns(file.schema_arrow.names, fields, source)

        def batches() -> _Batches:
            nonlocal done
            for batch in file.iter_batches(_ROWS_PER_BATCH, columns=columns, use_threads=False):
                done += batch.num_rows
                yield batch, size * done // file.metadata.num_rows

        yield from _documents(source, fields, file.schema_arrow, columns, batches())


def read_arrow(source: AnySource, fields: Fields) -> Generator[SourceDocument, None, None]:
    """Yield the documents of a file in Arrow's file or stream format; one of its batches is in memory at a time.

    A batch is validated before a value of it is read: offsets of a damaged file lead pyarrow to other memory.

    Raises:
        SourceUnreadable, ColumnMissing, ColumnUnfit, BadRecord.
    """
    with _named_problems(source, "an Arrow file"), open_bytes(source) as file:
        reader = _arrow_reader(file)
        columns = require_columns(reader.schema.names, fields, source)

        def batches() -> _Batches:
            has_index = hasattr(reader, "num_record_batches")
            numbered = map(reader.get_batch, range(reader.num_record_batches)) if has_index else iter(reader)
            for batch in numbered:
                _require_valid(batch, columns)
                yield batch, file.tell()

        yield from _documents(source, fields, reader.schema, columns, batches())


def schema_names(source: AnySource) -> list[str]:
    """Return the names of all columns of a Parquet or Arrow file; no value is read.

    Raises:
        SourceUnreadable.
    """
    if format_of(source) == ".parquet":
        import pyarrow.parquet

        with _named_problems(source, "a Parquet file"), _seekable(source) as place:
            return list(pyarrow.parquet.read_schema(place).names)
    with _named_problems(source, "an Arrow file"), open_bytes(source) as file:
        return list(_arrow_reader(file).schema.names)


def _arrow_reader(file: BinaryIO) -> Any:
    from pyarrow import ipc

    has_index = file.read(len(_MAGIC_OF_FILES)) == _MAGIC_OF_FILES
    file.seek(0)
    return ipc.open_file(file) if has_index else ipc.open_stream(file)


def require_columns(header: Sequence[str], fields: Fields, source: AnySource) -> list[str]:
    """Return the columns to read: text, unit, label and any document id; each exactly once in `header`.

    So a table has all fields of a text template, with or without values in them.

    Raises:
        ColumnMissing: one is not there exactly once, in the header or in the path of the file.
    """
    has_id = fields.document_id in header and fields.document_id not in fields.required
    required = [*fields.required, *([fields.document_id] if has_id else [])]
    for name in required:
        if header.count(name) + (name in fields.constants) != 1:
            raise column_missing(source, name)
    return sorted(name for name in required if name not in fields.constants)


def _documents(
    source: AnySource, fields: Fields, schema: Any, columns: Sequence[str], batches: _Batches
) -> Iterator[SourceDocument]:
    from pyarrow import types

    plain = [name for name in columns if _is_plain(schema.field(name).type)]
    for name in fields.required:
        if name in columns and name not in plain and not types.is_null(schema.field(name).type):
            raise _column_unfit(source, name, str(schema.field(name).type))
    without_value = dict.fromkeys(name for name in columns if name not in plain)
    position = 0
    try:
        for batch, offset in batches:
            held = {name: batch.column(name) for name in plain}
            for row in range(batch.num_rows):
                position += 1
                record = without_value | {name: column[row].as_py() for name, column in held.items()}
                yield fields.document(record, source, position, offset)
    except UnicodeDecodeError:
        raise BadRecord(NOT_UTF8, source, position, "", "its bytes are not UTF-8") from None


def _require_valid(batch: Any, columns: Sequence[str]) -> None:
    """Raise ArrowInvalid if some value of these columns lies outside of its buffer, or a dictionary's index in none.

    Broken UTF-8 passes here, so that the record can be named.
    """
    from pyarrow import types

    bytes_of = ((types.is_string, "binary"), (types.is_large_string, "large_binary"))
    for name in columns:
        column = batch.column(name)
        raw = next((kind for is_kind, kind in bytes_of if is_kind(column.type)), None)
        (column.view(raw) if raw else column).validate(full=True)


@contextmanager
def _named_problems(source: AnySource, what: str) -> Iterator[None]:
    """Turn an error of pyarrow, whose text may quote records, into SourceUnreadable."""
    import pyarrow

    try:
        yield
    except MemoryError:
        raise source_unreadable(source, "a part of it does not fit into memory, or it is damaged") from None
    except (pyarrow.ArrowException, UnicodeDecodeError):  # of a column's name; those of records have names
        raise source_unreadable(source, f"it is not {what}, or it is damaged") from None


def _seekable(source: AnySource) -> AbstractContextManager[Any]:
    """Return the file that pyarrow reads: it opens a path on its own."""
    file = source.file if isinstance(source, Shard) else source
    if not isinstance(file, Path):
        return open_bytes(file)
    require_user_file(file)
    return nullcontext(file)


def _is_plain(kind: Any) -> bool:
    """Return whether a column holds strings or integers; others count as missing and are never converted."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_integer(kind)
    )


def _column_unfit(source: AnySource, column: str, kind: str) -> UsageError:
    """Return the error of a column of neither text nor integers; its type is of the schema, which holds no value."""
    return UsageError(
        f"The column {column!r} of {name_of(source)!r} is of the type {kind}, neither text nor integers, so it"
        " cannot be a unit, a text, a label or part of one.",
        "Name another field, or convert the column to text or integers. Integers beside missing values become"
        " floating point in many tools: remove the rows without a value before.",
        {"file": name_of(source), "column": column, "type": kind},
        code="ColumnUnfit",
    )


def column_missing(source: AnySource, column: str) -> UsageError:
    """Return the error of a table that does not have a wanted column exactly once."""
    return UsageError(
        f"{name_of(source)!r} does not have exactly one column {column!r}.",
        "Name the right field: `--text`, `--unit` or `--label-field`. On a terminal, `almoner dataset register"
        " --check` lists those of a source, and `head -n 1` shows the header of a CSV file, whose cells commas,"
        " semicolons, tabs or pipes separate. Errors list none: without a header the first line is somebody's"
        " record.",
        {"file": name_of(source), "column": column},
        code="ColumnMissing",
    )
