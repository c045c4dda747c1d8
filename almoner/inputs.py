"""Data of other libraries as a source that the readers know: rows as JSON lines in the home, gone after the call.

A path or address is opened as `almoner dataset ingest` opens it. Everything else is written, a thousand rows at a time
and only the fields that the dataset needs, to a file of its own in the home's `scratch` (0600, in a folder 0700). It is
removed at the end of the call, also after a failure; after a kill `almoner run sweep` removes it. Nothing is written
outside the home, and no library is imported: an object of pandas exists only where pandas was imported.

No error quotes a value: libraries put values into their messages, so what they raise is replaced.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, TypeAlias

from models_db.errors import UsageError
from models_db.home import ProjectHome
from tasks.corpus.readers.record_batches import column_missing
from tasks.corpus.readers.sources import Source

ROWS_AT_ONCE: Final = 1000
FILE_NAME: Final = "rows.jsonl"
"""Named in errors about a record: line 7 is the seventh row."""
_UNFIT: Final[list[object]] = []
"""Written in place of a value that is no text and no integer; the readers refuse it with the row's number."""

Rows: TypeAlias = Iterator[Mapping[str, object]]


class _HasColumns(Protocol):
    """pandas and polars data frames."""

    @property
    def columns(self) -> Any: ...


class _HasColumnNames(Protocol):
    """pyarrow tables and `datasets.Dataset`."""

    @property
    def column_names(self) -> Any: ...


class _HasSchema(Protocol):
    """pyarrow batches and readers."""

    @property
    def schema(self) -> Any: ...


Data: TypeAlias = str | os.PathLike[str] | Iterable[Mapping[str, object]] | _HasColumns | _HasColumnNames | _HasSchema


@contextmanager
def open_input(
    home: ProjectHome, data: Data, fields: Sequence[str], *, optional: str = "", most: int | None = None
) -> Iterator[Source]:
    """Open data as a source of documents until the end of the block.

    Args:
        fields: the fields that every table must have.
        optional: a field that is read where a table has it.
        most: how many rows are read; all without it.

    Raises:
        InputUnknown: it is no data of a known kind.
        ColumnMissing: a table does not have a field exactly once.
        InputUnreadable: its library cannot convert it.
        AlmonerError: the errors of `flows.workspace.object_stores.open_source`.
    """
    if isinstance(data, str | os.PathLike):
        from flows.workspace.object_stores import open_source
        from tasks.object_storage.hub_dataset import parse_source

        with open_source(home, parse_source(os.fspath(data))) as source:
            yield source
        return
    if most is not None and hasattr(data, "__next__"):
        raise _input_unknown(data, "It can be read only once, so it cannot be looked at beforehand.")
    rows = rows_of(data, tuple(dict.fromkeys(fields)), optional)
    with TemporaryDirectory(prefix="ingest-", dir=home.require().scratch) as folder:
        path = Path(folder) / FILE_NAME
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            for row in islice(rows, most):
                file.write(json.dumps({name: _plain(value) for name, value in row.items()}) + "\n")
        yield path


def rows_of(data: object, fields: tuple[str, ...], optional: str) -> Rows:
    """Return the rows of data with the named fields alone.

    Raises:
        InputUnknown, ColumnMissing: at once.
        InputUnknown, InputUnreadable: while reading.
    """
    for library, kind, names_of, read in _KINDS:
        module = sys.modules.get(library)
        known = getattr(module, kind, None) if module is not None else None
        if isinstance(known, type) and isinstance(data, known):
            columns = _columns(names_of(data), f"{library}.{kind}", fields, optional)
            return _guarded(read(data, columns), f"{library}.{kind}")
    if isinstance(data, Mapping | bytes) or not isinstance(data, Iterable) or hasattr(data, "columns"):
        raise _input_unknown(data)
    return _mappings(data, (*fields, optional))


def _columns(names: Sequence[object] | None, what: str, fields: tuple[str, ...], optional: str) -> list[str]:
    """Return the columns to read; of a table that does not know its own, every one, and the readers look at each row.

    Raises:
        ColumnMissing: a field is not there exactly once.
    """
    if names is None:
        return [*fields, optional]
    for name in fields:
        if names.count(name) != 1:
            raise column_missing(Path(what), name)
    return [*fields, *([optional] if names.count(optional) == 1 and optional not in fields else [])]


def _guarded(rows: Rows, what: str) -> Rows:
    """Yield the rows of a library; what it raises may quote a value, and is replaced."""
    try:
        yield from rows
    except Exception as problem:  # noqa: BLE001  # any library, any problem
        raise _input_unreadable(what, type(problem).__name__) from None


def _mappings(data: Iterable[object], names: tuple[str, ...]) -> Rows:
    for number, row in enumerate(data, 1):
        if not isinstance(row, Mapping):
            raise _input_unknown(row, f"Row {number} is no dict.")
        yield {name: row[name] for name in names if name in row}


def _pandas(frame: Any, columns: list[str]) -> Rows:
    for start in range(0, len(frame), ROWS_AT_ONCE):
        part = frame.iloc[start : start + ROWS_AT_ONCE]
        known = {name: zip(part[name].tolist(), part[name].isna().tolist(), strict=True) for name in columns}
        values = ([None if missing else value for value, missing in known[name]] for name in columns)
        yield from (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))


def _polars(frame: Any, columns: list[str]) -> Rows:
    for part in frame.select(columns).iter_slices(ROWS_AT_ONCE):
        yield from part.to_dicts()


def _arrow_table(table: Any, columns: list[str]) -> Rows:
    yield from _arrow_batches(table.select(columns).to_batches(max_chunksize=ROWS_AT_ONCE), columns)


def _arrow_batches(batches: Iterable[Any], columns: list[str]) -> Rows:
    for batch in batches:
        chosen = batch.select(columns)
        for start in range(0, chosen.num_rows, ROWS_AT_ONCE):
            yield from chosen.slice(start, ROWS_AT_ONCE).to_pylist()


def _arrow_batch(batch: Any, columns: list[str]) -> Rows:
    return _arrow_batches([batch], columns)


def _hugging_face(data: Any, columns: list[str]) -> Rows:
    plain = data.with_format(None)
    for batch in plain.iter(batch_size=ROWS_AT_ONCE):
        present = [name for name in columns if name in batch]
        yield from (dict(zip(present, row, strict=True)) for row in zip(*map(batch.get, present), strict=True))


def _frame_columns(frame: Any) -> list[object]:
    return list(frame.columns)


def _schema_columns(data: Any) -> list[object]:
    return list(data.schema.names)


def _known_columns(data: Any) -> list[object] | None:
    return None if data.column_names is None else list(data.column_names)


_Columns: TypeAlias = Callable[[Any], list[object] | None]
_KINDS: Final[tuple[tuple[str, str, _Columns, Callable[[Any, list[str]], Rows]], ...]] = (
    ("pandas", "DataFrame", _frame_columns, _pandas),
    ("polars", "DataFrame", _frame_columns, _polars),
    ("pyarrow", "Table", _schema_columns, _arrow_table),
    ("pyarrow", "RecordBatch", _schema_columns, _arrow_batch),
    ("pyarrow", "RecordBatchReader", _schema_columns, _arrow_batches),
    ("datasets", "Dataset", _known_columns, _hugging_face),
    ("datasets", "IterableDataset", _known_columns, _hugging_face),
)
"""Tables by library and class: what columns one has, and its rows with the chosen columns."""


def _plain(value: object) -> object:
    """Return a value as JSON: text, an integer, or null for what is missing."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):  # NumPy's too
        return int(value)
    return None if isinstance(value, float) and value != value else _UNFIT


def _input_unknown(data: object, reason: str = "") -> UsageError:
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__qualname__}"
    return UsageError(
        f"Data of type {kind} cannot be ingested. {reason}".strip(),
        "Give a pandas or polars DataFrame (`collect()` a LazyFrame), a pyarrow table, batch or reader, one split"
        " of a `datasets.Dataset`, an iterable of dicts, or a path.",
        {"type": kind},
        code="InputUnknown",
    )


def _input_unreadable(what: str, problem: str) -> UsageError:
    return UsageError(
        f"The {what} cannot be read: its library raised {problem}.",
        "Convert the columns of unit, text, id and label to text or integers; nothing of this attempt was kept.",
        {"type": what, "error": problem},
        code="InputUnreadable",
    )
