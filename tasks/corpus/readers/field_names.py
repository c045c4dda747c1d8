"""Names of the fields of a source, for the terminal of a person who may read it."""

import csv
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from models_db.errors import AlmonerError
from models_db.values.canonical_json import InvalidJson, parse_json
from tasks.corpus.readers.readers import first_lines, first_row
from tasks.corpus.readers.record_batches import schema_names
from tasks.corpus.readers.sources import TEXT, AnySource, Shard, Source, format_of, shards_of
from tasks.corpus.readers.text_form import AS_FOUND, DELIMITERS, TextForm

_BYTES_READ: Final = 1 << 20
"""Bytes of a text format that are looked at, once unpacked."""
LONGEST_NAME: Final = 64
"""Characters of a name that is shown; what is longer may be a value."""


@dataclass(frozen=True)
class FieldNames:
    """Names that may be shown.

    Attributes:
        shown: the names, in the order of the source.
        withheld: how many others there are, which may be values: long ones, and keys that few records have.
        header_doubtful: whether the first line of a CSV file has none of the fields that were asked for, so that it
            may be a record; then nothing of it is in `shown`.
    """

    shown: tuple[str, ...]
    withheld: int = 0
    header_doubtful: bool = False


def read_field_names(source: Source, asked: Collection[str], form: TextForm = AS_FOUND) -> FieldNames | None:
    """Return the field names of a file, or of the first file of a folder of tables.

    None of a folder of texts, of a file that only an extension reads, and of what cannot be read: `read_documents`
    says what is wrong with it.

    Args:
        asked: the fields that the caller knows already; a header has at least one of them.
        form: the encoding and the delimiter of the source, where they are named.
    """
    try:
        file: AnySource = source
        if source.is_dir():
            shard = next(iter(shards_of(source)), None)
            if shard is None:
                return None
            file = shard
        constants = tuple(file.constants) if isinstance(file, Shard) else ()
        read = _READERS.get(format_of(file) or TEXT)
        found = None if read is None else read(file, form, asked)
    except (AlmonerError, OSError, ValueError, EOFError, zlib.error, csv.Error):
        return None  # whose text may quote a record
    if found is None:
        return None
    if format_of(file) in _WITH_HEADER and set(asked).isdisjoint(found):
        return FieldNames((), len(found), header_doubtful=True)
    names = (*constants, *(name for name, usual in found.items() if usual))
    shown = tuple(name for name in names if 0 < len(name) <= LONGEST_NAME)
    return FieldNames(shown, len(constants) + len(found) - len(shown))


def _of_jsonl(source: AnySource, form: TextForm, _asked: Collection[str]) -> dict[str, bool]:
    """Return the keys of the first records, and whether at least half of the records have each."""
    counted: Counter[str] = Counter()
    records = 0
    for line in first_lines(source, form, _BYTES_READ):
        if line.strip():
            record = parse_json(line, most_bytes=_BYTES_READ, halves=True)
            if not isinstance(record, dict):
                raise InvalidJson
            counted.update(record.keys())
            records += 1
    return {name: 2 * count >= records for name, count in counted.items()}


def _of_csv(source: AnySource, form: TextForm, asked: Collection[str]) -> dict[str, bool]:
    """Return the cells of the header, divided by the delimiter that gives most of the fields, or else most cells."""
    best: list[str] = []
    for sign in [form.delimiter] if form.delimiter else DELIMITERS.values():
        row = first_row(source, replace(form, delimiter=sign)) or []
        best = max(best, row, key=lambda cells: (len(set(asked).intersection(cells)), len(cells)))
    return dict.fromkeys(best, True)


def _of_table(source: AnySource, _form: TextForm, _asked: Collection[str]) -> dict[str, bool]:
    return dict.fromkeys(schema_names(source), True)


_WITH_HEADER: Final = (".csv", ".csv.gz")
_READERS: Final[dict[str, Callable[[AnySource, TextForm, Collection[str]], dict[str, bool]]]] = {
    ".jsonl": _of_jsonl,
    ".jsonl.gz": _of_jsonl,
    ".ndjson": _of_jsonl,
    ".ndjson.gz": _of_jsonl,
    ".csv": _of_csv,
    ".csv.gz": _of_csv,
    ".parquet": _of_table,
    ".arrow": _of_table,
    ".feather": _of_table,
}
