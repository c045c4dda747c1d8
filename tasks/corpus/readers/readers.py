"""Streaming readers for private sources: JSONL, CSV, Parquet, Arrow, and folders of such files or of texts.

A source is read front to back in bounded memory, and every problem ends in a named error with the file and
the place. Errors name the fields that were asked for, never those that were found: a CSV file without a
header has a person's record in its first line. So nothing that a reader of an extension says in an error is shown.
"""

import codecs
import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

from models_db.errors import UsageError
from models_db.values.canonical_json import InvalidJson, parse_json
from models_db.values.untrusted_text import spell_out_unseen
from tasks.common import extensions
from tasks.corpus.readers.documents import (
    LINES_ANEW,
    LONE_CR,
    MALFORMED_ROW,
    MAX_RECORD_BYTES,
    NOT_AN_OBJECT,
    NOT_ENCODED,
    NOT_JSON,
    NOT_UTF8,
    RECORD_TOO_LONG,
    BadRecord,
    Fields,
    NoUnit,
    SourceDocument,
    TextTemplate,
)
from tasks.corpus.readers.record_batches import read_arrow, read_parquet, require_columns
from tasks.corpus.readers.sources import (
    GZIP,
    TEXT,
    AnySource,
    Source,
    data_files,
    format_of,
    formats,
    name_of,
    named_problems,
    open_bytes,
    require_present_state,
    shards_of,
    size_of,
    source_changed,
    source_empty,
    source_missing,
    source_state,
    source_unreadable,
)
from tasks.corpus.readers.text_form import (
    AS_FOUND,
    DELIMITERS,
    UTF_8,
    WIDE,
    TextForm,
    contradicts,
    form_unfit,
    has_odd_zeros,
    is_utf8_under,
    marked_encoding,
    names_delimiter,
    what_bytes_say,
)
from tasks.corpus.units import FIELD_SEPARATOR, LabelFields, fields_of_label, normalise_unit

FOLDER_UNITS = ("folder", "file")
_LONGEST_MARK = 4
_WIDE_PART = 1 << 20
_WITHOUT_ENCODING = (".parquet", ".arrow", ".feather")
_NOT_GZIP = "it is not a gzip file, or it is damaged"

Documents: TypeAlias = Generator[SourceDocument, None, None]
_Reader: TypeAlias = Callable[[AnySource, Fields], Documents]


def read_documents(
    path: Source,
    unit_field: str | None,
    text_field: str = "text",
    id_field: str = "id",
    label_field: LabelFields = None,
    most: int | None = None,
    allowed_units: Collection[str] = (),
    on_bad_unit: Callable[[NoUnit], None] | None = None,
    form: TextForm = AS_FOUND,
    forms: set[TextForm] | None = None,
) -> Documents:
    """Return an iterator over the documents, in order. A caller that stops early closes it, and with it the file.

    Blank lines of JSONL and CSV are passed over; a byte-order mark at the start of a file is no part of it and says
    its encoding. CSV has a header, whose delimiter is the one with which it has the fields that are asked for. A folder
    of tables is read file after file, in byte order of the paths; the parts `name=value` of a path are fields of its
    records. In a text folder every *.txt below it is a document, in byte order of the paths (links to folders are not
    followed); its id is its path inside the folder. The unit field is then None, `folder` (the sub-folder directly
    below `path` that holds it, at whatever depth) or `file` (its name without .txt; files of one name in different
    sub-folders are then one unit).

    Args:
        path: a file of one of `sources.FORMATS` but .txt, or a folder of such files or of texts; here or in a store.
        unit_field: the field with the privacy unit's id, or None if every record is a unit of its own.
        text_field: the field with the text, or a template of several (`TextTemplate`); a text folder has none.
        id_field: the field with the document's id, which may be absent (a text folder has none). If it is the unit's,
            documents have none.
        label_field: the field with the document's label, several whose values together are the label, or None if no
            labels are kept. A record that lacks one of them is a document without a label.
        most: how many records are read, at most half of them of files with the same fields in their paths; all by
            default.
        allowed_units: ids of units that are taken although they spell a missing value, such as `Null`.
        on_bad_unit: called with each refusal of a unit in place of raising it; the document then has no unit.

        form: the encoding and the delimiter, where they are named.
        forms: a set to which those are added with which files were read.

    Raises:
        SourceMissing, UnknownFileType, UnknownFolderUnit, FolderWithoutLabels, LabelFieldRepeated, FormUnfit,
        TextTemplateInvalid, UnitInvalid (of `allowed_units`): at once.
        FolderMixed, TableLogUnread, SavedDatasetUnfit, FilesUnread, FileTwice: at once or while reading.
        PathFieldUnfit: while reading.
        SourceUnreadable, ColumnMissing, ColumnUnfit, SourceEmpty, BadRecord (see `records`): while reading.
        LabelFieldEmpty, TemplateFieldMissing: at the end, if not one record has a label, or a field of the template.
    """
    with named_problems(path):
        exists, is_folder = path.exists() or path.is_symlink(), path.is_dir()
    if not exists:
        raise source_missing(path)
    labels = fields_of_label(label_field)
    if len(set(labels)) < len(labels):
        raise UsageError(
            f"A field is named twice among the label fields: {', '.join(labels)}.",
            "Name each field once; their values together are a document's label.",
            {"label": list(labels)},
            code="LabelFieldRepeated",
        )
    allowed = frozenset(map(normalise_unit, allowed_units))
    require_present_state(path)
    kind = source_state(path).format if is_folder else format_of(path)
    if is_folder and kind is None:
        raise source_empty(path)
    if (kind in _WITHOUT_ENCODING and form.encoding) or (kind not in (".csv", ".csv.gz") and form.delimiter):
        raise form_unfit(name_of(path), "a delimiter" if form.delimiter else "an encoding")
    forms = set() if forms is None else forms
    if is_folder and kind == TEXT:
        if unit_field not in (None, *FOLDER_UNITS):
            raise _unknown_folder_unit(path, unit_field or "")
        if labels:
            raise _folder_without_labels(path, FIELD_SEPARATOR.join(labels))
        fields = Fields(unit_field, TextTemplate.parse("text"), "id", (), {}, allowed, on_bad_unit, None, form, forms)
        return _guarded(_read_folder, path, fields, most)
    read = _read_shards if is_folder else _reader_of(path)
    if read is None:
        raise _unknown_file_type(path)
    template = TextTemplate.parse(text_field)
    fields = Fields(
        unit_field, template, id_field, labels, {}, allowed, on_bad_unit, most // 2 if most else None, form, forms
    )
    return _guarded(read, path, fields, most)


def _guarded(read: Callable[[Source, Fields], Documents], path: Source, fields: Fields, most: int | None) -> Documents:
    empty, labelled, unseen = True, False, fields.text.optional_fields
    with named_problems(path), closing(read(path, fields)) as documents:
        for document in islice(documents, most):
            empty, labelled = False, labelled or document.label is not None
            unseen &= document.absent
            yield document
    if empty:
        raise source_empty(path)
    if fields.labels and not labelled:
        raise _label_field_empty(path, FIELD_SEPARATOR.join(fields.labels))
    if unseen:
        raise _template_field_missing(path, min(unseen), str(fields.text))


class _Lines:
    """The lines of a file as text.

    Attributes:
        number: of the current line.
        offset: bytes of the file so far.
        record_bytes: bytes of the lines of the current record, which a reader of several lines sets to 0 before it; in
            a wide encoding characters.
        encoding: the one that is named, that of a byte-order mark, or UTF-8; known with the first line.
    """

    def __init__(self, file: BinaryIO, source: AnySource, form: TextForm) -> None:
        self.source, self.number, self.offset, self.record_bytes = source, 0, 0, 0
        self.encoding = form.encoding
        self._file = file
        self._compressed = (format_of(source) or "").endswith(GZIP)

    def __iter__(self) -> Iterator[str]:
        content: Any = gzip.GzipFile(fileobj=self._file, mode="rb") if self._compressed else self._file
        begun = self._of_gzip(content.peek, _LONGEST_MARK)
        if self.encoding is None:
            self.encoding = marked_encoding(begun) or UTF_8
        elif contradicts(self.encoding, begun):
            raise BadRecord(NOT_ENCODED, self.source, 1, self.encoding)
        return self._wide_lines(content) if self.encoding in WIDE else self._plain_lines(content)

    def _plain_lines(self, content: Any) -> Iterator[str]:
        while line := self._of_gzip(content.readline, MAX_RECORD_BYTES + 1):
            self.number += 1
            self.record_bytes += len(line)
            self.offset = self._file.tell() if self._compressed else self.offset + len(line)
            yield self._decoded(line)
        self._require_begun()

    def _wide_lines(self, content: Any) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(self.encoding or UTF_8)()
        pending, more = "", True
        while more:
            try:
                part = self._of_gzip(content.read, _WIDE_PART)
                pending, more = pending + decoder.decode(part, final=not part), bool(part)
            except UnicodeError:  # of UTF-16 without a byte-order mark no UnicodeDecodeError
                raise BadRecord(NOT_ENCODED, self.source, self.number + 1, self.encoding or "") from None
            *lines, pending = pending.split("\n")
            for line in (*(f"{line}\n" for line in lines), *([pending] if pending and not more else [])):
                self.number += 1
                self.record_bytes += len(line)
                self.offset = self._file.tell()
                if self.record_bytes > MAX_RECORD_BYTES:
                    raise BadRecord(RECORD_TOO_LONG, self.source, self.number)
                yield line.removeprefix("\ufeff") if self.number == 1 else line
            if self.record_bytes + len(pending) > MAX_RECORD_BYTES:
                raise BadRecord(RECORD_TOO_LONG, self.source, self.number + 1)
        self._require_begun()

    def _require_begun(self) -> None:
        """Check that a packed file is not empty, as after an upload that was cut off."""
        if self._compressed and not self._file.tell():
            raise source_unreadable(self.source, _NOT_GZIP)

    def _of_gzip(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise source_unreadable(self.source, _NOT_GZIP) from None

    def _decoded(self, line: bytes) -> str:
        if self.record_bytes > MAX_RECORD_BYTES:
            raise BadRecord(RECORD_TOO_LONG, self.source, self.number)
        if has_odd_zeros(line):
            raise BadRecord(NOT_UTF8, self.source, self.number, "", *what_bytes_say(line))
        try:
            if self.encoding == UTF_8:
                return line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            if is_utf8_under(self.encoding or UTF_8, line):
                raise BadRecord(NOT_ENCODED, self.source, self.number, self.encoding or "")
            return line.decode(self.encoding or UTF_8)
        except UnicodeDecodeError:
            if self.encoding == UTF_8:
                raise BadRecord(NOT_UTF8, self.source, self.number, "", *what_bytes_say(line)) from None
            raise BadRecord(NOT_ENCODED, self.source, self.number, self.encoding or "") from None


def _read_jsonl(source: AnySource, fields: Fields) -> Documents:
    with open_bytes(source) as file:
        lines = _Lines(file, source, fields.form)
        for line in lines:
            lines.record_bytes = 0
            if not line.strip():
                continue
            try:
                record = parse_json(line, most_bytes=MAX_RECORD_BYTES, halves=True)
            except InvalidJson as problem:  # whose text quotes nothing
                reason = str(problem).removeprefix("line 1: ")
                if "\r" in line.strip():
                    raise BadRecord(NOT_JSON, source, lines.number, "", reason + LONE_CR, LINES_ANEW) from None
                raise BadRecord(NOT_JSON, source, lines.number, reason=reason) from None
            if not isinstance(record, dict):
                raise BadRecord(NOT_AN_OBJECT, source, lines.number)
            yield fields.document(record, source, lines.number, lines.offset)
        fields.forms.add(TextForm(lines.encoding))


def _read_csv(source: AnySource, fields: Fields) -> Documents:
    csv.field_size_limit(MAX_RECORD_BYTES)  # the module's own limit, 128 KiB, is shorter than a long document
    delimiter = fields.form.delimiter or delimiter_of(source, fields.form, fields.columns_in_files)
    with open_bytes(source) as file:
        lines = _Lines(file, source, fields.form)
        rows = csv.reader(_table_lines(lines), strict=True, delimiter=delimiter)
        header = _next_row(rows, lines)
        if header is None:
            return
        fields.forms.add(TextForm(lines.encoding, delimiter))
        require_columns(header, fields, source)
        start = lines.number + 1
        while (row := _next_row(rows, lines)) is not None:
            if len(row) not in (0, len(header)) or _repeats(row, header):
                raise BadRecord(MALFORMED_ROW, source, start)
            if row:
                yield fields.document(dict(zip(header, row, strict=True)), source, start, lines.offset)
            start = lines.number + 1


def delimiter_of(source: AnySource, form: TextForm, columns: Collection[str]) -> str:
    """Return the first of the known delimiters with which a CSV file's header has most of these columns, each once.

    The header alone decides, so that the same bytes are the same table in each version.

    Args:
        form: its encoding, if that is named.
    """
    best, most = DELIMITERS["comma"], 0
    for delimiter in DELIMITERS.values():
        header = first_row(source, replace(form, delimiter=delimiter)) or []
        found = sum(header.count(name) == 1 for name in columns)
        if found > most:
            best, most = delimiter, found
        if most == len(columns):
            break
    return best


def first_row(source: AnySource, form: TextForm) -> list[str] | None:
    """Return the cells of the first row of a CSV file; None if it cannot be parsed with the delimiter, or has none."""
    with open_bytes(source) as file:
        lines = _Lines(file, source, form)
        try:
            sign = form.delimiter or DELIMITERS["comma"]
            return next(csv.reader(_table_lines(lines), strict=True, delimiter=sign), None)
        except csv.Error:
            return None


def _table_lines(lines: _Lines) -> Iterator[str]:
    """Yield the lines of a CSV file without Excel's `sep=;` in front."""
    return (line for line in lines if lines.number > 1 or not names_delimiter(line))


def first_lines(source: AnySource, form: TextForm, most: int) -> Iterator[str]:
    """Yield the first lines of a file, of about so many bytes (in a wide encoding: characters)."""
    with open_bytes(source) as file:
        lines = _Lines(file, source, form)
        for line in lines:
            if lines.record_bytes > most:
                return
            yield line


def _repeats(row: Sequence[str], header: Sequence[str]) -> bool:
    """Return whether a row is the header again, as in files that were joined: also behind a byte-order mark."""
    return row[:1] != [] and [cell.strip("\ufeff ") for cell in row] == [cell.strip("\ufeff ") for cell in header]


def _next_row(rows: Iterator[list[str]], lines: _Lines) -> list[str] | None:
    lines.record_bytes, start = 0, lines.number + 1
    try:
        return next(rows, None)
    except csv.Error as problem:
        if "new-line character" in str(problem):  # CR in a cell without quotes
            raise BadRecord(MALFORMED_ROW, lines.source, start, "", LONE_CR, LINES_ANEW) from None
        raise BadRecord(MALFORMED_ROW, lines.source, start) from None


def _read_shards(folder: Source, fields: Fields) -> Documents:
    before, counts = 0, Counter[tuple[tuple[str, str | None], ...]]()
    for shard in shards_of(folder):
        path = tuple(shard.constants.items())
        most = None if fields.most_of_path is None or not path else fields.most_of_path - counts[path]
        if (read := _reader_of(shard)) is None:  # texts have come in the place of tables
            raise source_changed(folder)
        with named_problems(shard), closing(read(shard, replace(fields, constants=shard.constants))) as documents:
            for document in islice(documents, most):
                counts[path] += 1
                yield replace(document, offset=before + document.offset)
        before += size_of(shard)


def _read_folder(source: Source, fields: Fields) -> Documents:
    offset = 0
    for position, (inside, path) in enumerate(data_files(source), 1):
        if format_of(inside) != TEXT:  # tables have come in the place of texts
            raise source_changed(source)
        with open_bytes(path) as file:
            data = file.read(MAX_RECORD_BYTES + 1)
        if len(data) > MAX_RECORD_BYTES:
            raise BadRecord(RECORD_TOO_LONG, source, position)
        encoding = fields.form.encoding or marked_encoding(data) or UTF_8
        if contradicts(encoding, data) or is_utf8_under(encoding, data):
            raise BadRecord(NOT_ENCODED, source, position, encoding)
        if encoding not in WIDE and has_odd_zeros(data):
            raise BadRecord(NOT_UTF8, source, position, "", *what_bytes_say(data))
        try:
            text = data.decode("utf-8-sig" if encoding == UTF_8 else encoding).removeprefix("\ufeff")
        except UnicodeError:
            if encoding == UTF_8:
                raise BadRecord(NOT_UTF8, source, position, "", *what_bytes_say(data)) from None
            raise BadRecord(NOT_ENCODED, source, position, encoding) from None
        fields.forms.add(TextForm(encoding))
        offset += len(data)
        folder = inside.parts[0] if len(inside.parts) > 1 else None
        document_id = spell_out_unseen(inside.as_posix())  # a path names one file, however it looks
        record = {"text": text, "id": document_id, "folder": folder, "file": path.stem}
        yield fields.document(record, source, position, offset)


_READERS: dict[str, _Reader] = {
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".ndjson.gz": _read_jsonl,
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
}


RecordReader: TypeAlias = Callable[[BinaryIO], Iterator[Mapping[str, object]]]
"""Reader of an extension: from a file, opened in binary, to its records front to back, as fields and values.

It holds no more than one record at a time, and raises an exception where the file is not of its format.
"""


def _reader_of(source: AnySource) -> _Reader | None:
    """Return the reader of a file; None for a file that no reader is made for, and for a text."""
    kind = format_of(source)
    if kind is None or kind == TEXT:
        return None
    return _READERS.get(kind) or partial(_read_by_extension, _extension_reader(kind))


def _extension_reader(kind: str) -> RecordReader:
    reader = extensions.load(extensions.READERS)[kind]
    if not callable(reader):
        raise extensions.unfit(extensions.READERS, kind, "it is not a function")
    return reader


def _read_by_extension(read_records: RecordReader, source: AnySource, fields: Fields) -> Documents:
    with open_bytes(source) as file:
        offset = 0
        for position, record in enumerate(_records_of(read_records, file, source), 1):
            if record is None:
                raise BadRecord(NOT_AN_OBJECT, source, position)
            if sum(len(value) for value in record.values() if isinstance(value, str)) > MAX_RECORD_BYTES:
                raise BadRecord(RECORD_TOO_LONG, source, position)
            offset = offset if file.closed else file.tell()
            yield fields.document(record, source, position, offset)


def _records_of(read_records: RecordReader, file: BinaryIO, source: AnySource) -> Iterator[dict[str, object] | None]:
    """Yield copies of the records, of which no code of the extension is run afterwards; None for what is no record."""
    try:
        for record in read_records(file):
            yield dict(record) if isinstance(record, Mapping) else None
    except Exception as error:  # noqa: BLE001 - of any kind, and its text may quote a record
        raise source_unreadable(source, f"its reader failed ({type(error).__name__})") from None


def _unknown_file_type(source: Source) -> UsageError:
    tables = ", ".join(kind for kind in formats() if kind != TEXT)
    return UsageError(
        f"{name_of(source)!r} is neither {tables} nor a folder of such files or of .txt files.",
        "Convert it, or rename it if only the ending is wrong.",
        {"file": name_of(source)},
        code="UnknownFileType",
    )


def _unknown_folder_unit(source: Source, unit_field: str) -> UsageError:
    return UsageError(
        f"The text folder {name_of(source)!r} has no unit field {unit_field!r}.",
        "Use `folder` (the sub-folder) or `file` (the file's name), or no unit field.",
        {"file": name_of(source), "unit": unit_field},
        code="UnknownFolderUnit",
    )


def _folder_without_labels(source: Source, label_field: str) -> UsageError:
    return UsageError(
        f"The text folder {name_of(source)!r} has no field {label_field!r}: its files have no labels.",
        "Leave the label field out, or write the texts into a JSONL, CSV or Parquet file with a label in each.",
        {"file": name_of(source), "label": label_field},
        code="FolderWithoutLabels",
    )


def _label_field_empty(source: Source, label_field: str) -> UsageError:
    return UsageError(
        f"No record of {name_of(source)!r} has a label in {label_field!r}.",
        "Name the right field, then ingest again; nothing of this attempt was kept.",
        {"file": name_of(source), "label": label_field},
        code="LabelFieldEmpty",
    )


def _template_field_missing(source: Source, field_name: str, template: str) -> UsageError:
    return UsageError(
        f"No record of {name_of(source)!r} that was read has the field {field_name!r} of the text {template!r}.",
        "Nothing was kept. `--text` named the fields when the dataset was registered. `almoner dataset register`"
        " may be repeated with other fields until the first ingest. If the field is to be empty everywhere, write"
        " it as an empty text in one record.",
        {"file": name_of(source), "field": field_name},
        code="TemplateFieldMissing",
    )
