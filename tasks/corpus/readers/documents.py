"""Parser from one raw record to one document; an error names the file and the place, never the content.

BadRecord (UsageError)
├── NotUtf8         broken bytes, or half of a surrogate pair
├── NotEncoded      broken bytes in another encoding
├── NotJson         the line is not JSON
├── NotAnObject     the line is JSON, but not an object
├── MalformedRow    a CSV row with broken quotes or another number of cells than the header, or the header again
├── NoText          text missing, blank or no string
├── NoUnit          unit missing, empty, or neither string nor integer
├── BadDocumentId   a document id that is neither string nor integer
├── BadLabel        a label that is neither string nor integer, or too long
├── DuplicateDocument
├── RecordTooLong
└── FieldTwice     a field that the path of the file fixes stands in the record too
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models_db.errors import UsageError
from tasks.corpus.identity.labels import FIELD_SEPARATOR, LONGEST_LABEL, combined_label, normalise_label
from tasks.corpus.identity.units import UnitInvalid, is_unicode, normalise_unit
from tasks.corpus.readers.sources import AnySource, Shard, format_of, name_of
from tasks.corpus.readers.text_form import AS_FOUND, TextForm
from tasks.corpus.readers.text_template import TextTemplate

MAX_RECORD_BYTES = 64 * 2**20
"""A longer line, cell or file is refused, so that memory stays bounded for any source."""


@dataclass(frozen=True)
class SourceDocument:
    """One document of a source. Everything but position and offset is private and left out of its repr.

    Attributes:
        document_id: its normalised id, None if the record has none.
        unit: the normalised id of its privacy unit, None if the dataset has no unit field.
        text: the text as it stands in the source; not blank, valid Unicode.
        position: its line (JSONL, CSV), row (Parquet, Arrow) or file in sorted order (text folder), from 1.
        offset: bytes of the source read when it was reached, for progress (an estimate for Parquet and Arrow).
        source: the file, or the text folder, in which the position is counted.
        label: its normalised label, None if the record has none or labels are not kept.
        absent: the fields of a text template that its record lacks.
    """

    document_id: str | None = field(repr=False)
    unit: str | None = field(repr=False)
    text: str = field(repr=False)
    position: int
    offset: int
    source: AnySource = field(repr=False, compare=False)
    label: str | None = field(default=None, repr=False)
    absent: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True)
class Fields:
    """The names of the fields that make a document; all of them public.

    Attributes:
        constants: the fields that the path of the file fixes for all of its records.
        form: the encoding and the delimiter that are named.
        forms: those with which files were read, which readers add.
    """

    unit: str | None
    text: TextTemplate
    document_id: str
    labels: tuple[str, ...] = ()
    constants: Mapping[str, str | None] = field(default_factory=dict)
    form: TextForm = AS_FOUND
    forms: set[TextForm] = field(default_factory=set)

    @property
    def required(self) -> tuple[str, ...]:
        """The fields that a table must have: those of the text, the unit's and the label's."""
        unit = () if self.unit is None else (self.unit,)
        return tuple(sorted({*self.text.fields, *unit, *self.labels}))

    @property
    def columns_in_files(self) -> tuple[str, ...]:
        """The fields that a table must have in its files, and not in their paths."""
        return tuple(name for name in self.required if name not in self.constants)

    def document(self, record: Mapping[str, object], source: AnySource, position: int, offset: int) -> SourceDocument:
        """Return the document in `record`.

        Raises:
            BadRecord: NoText, NoUnit, BadDocumentId, BadLabel, NotUtf8, RecordTooLong or FieldTwice.
        """
        if self.constants:
            record = self._with_constants(record, source, position)
        text = self.text.text_of(record)
        if text is None:
            raise NoText(source, position, str(self.text))
        if len(text) > MAX_RECORD_BYTES:
            raise RecordTooLong(source, position)
        if not is_unicode(text):
            raise NotUtf8(source, position)
        unit = self._unit(record, source, position)
        document_id, label = self._document_id(record, source, position), self._label(record, source, position)
        absent = self.text.optional_fields.difference(record)
        return SourceDocument(document_id, unit, text, position, offset, source, label, absent)

    def _with_constants(self, record: Mapping[str, object], source: AnySource, position: int) -> Mapping[str, object]:
        """Return the record with the fields that are asked for and that its path fixes; a path may name persons."""
        fixed = {name: self.constants[name] for name in (*self.required, self.document_id) if name in self.constants}
        for name in fixed:
            if name in record:
                raise FieldTwice(source, position, name)
        return {**record, **fixed}

    def _unit(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        if self.unit is None:
            return None
        try:
            return normalise_unit(record.get(self.unit))
        except UnitInvalid:
            raise NoUnit(source, position, self.unit) from None

    def _document_id(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        if self.document_id == self.unit:  # the records of a person have one id, and it is the person's
            return None
        value = record.get(self.document_id)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            return normalise_unit(value)
        except UnitInvalid:
            raise BadDocumentId(source, position, self.document_id) from None

    def _label(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        for name in self.labels:
            try:
                normalise_label(record.get(name))
            except ValueError:
                raise BadLabel(source, position, name) from None
        try:
            return combined_label([record.get(name) for name in self.labels]) if self.labels else None
        except ValueError:  # each of them is a label, and together they are too long
            raise BadLabel(source, position, FIELD_SEPARATOR.join(self.labels)) from None


def place(source: AnySource, position: int) -> str:
    """Return the position of a record, in words.

    A file of a text folder is named by its number only, since its name may be the id of a person.
    """
    if not isinstance(source, Shard) and source.is_dir():
        return f"File {position} of the folder {name_of(source)!r}"
    rows = format_of(source) in (".parquet", ".arrow", ".feather")
    return f"{'Row' if rows else 'Line'} {position} of {name_of(source)!r}"


class BadRecord(UsageError):
    """A record that cannot be taken, named by file and place."""

    problem = "cannot be taken"
    remedy = "Repair or remove it"

    def __init__(self, source: AnySource, position: int, field_name: str = "") -> None:
        advice = f"{self.remedy}, then ingest again; nothing of this attempt was kept."
        if isinstance(source, Shard):
            advice += " Files are counted in byte order of their paths."
        elif isinstance(source, Path) and source.is_dir():
            advice += f" To see its name: find . -iname '*.txt' ! -path '*/[._]*' | LC_ALL=C sort | sed -n {position}p"
        super().__init__(
            f"{place(source, position)} {self.problem.format(field=field_name)}.",
            advice,
            {"file": name_of(source), "position": position},
        )


class NotUtf8(BadRecord):
    """Broken bytes, another encoding, or half of a surrogate pair."""

    problem = "is not valid UTF-8"
    remedy = (
        "If the file is in another encoding, name it (`--encoding cp1252`: Windows in Western Europe; cp1250: in"
        " Central Europe). almoner does not guess: the same bytes are other letters in each, and a unit whose id is in"
        " the wrong letters is another unit. Else repair the record"
    )


class NotEncoded(BadRecord):
    """Bytes that are nothing in the encoding of the file; in wide encodings this line or one soon after it."""

    problem = "is not valid {field}, the encoding that is named or that the file's first bytes say"
    remedy = "Name the right encoding with `--encoding`, or repair the record"


class NotJson(BadRecord):
    """A line that is not JSON (RFC 8259) within bounds, or that has a key twice, which is ambiguous."""

    problem = "is not JSON with each key once"
    remedy = "Write one JSON object a line"


class NotAnObject(BadRecord):
    """A line that is JSON, but not an object."""

    problem = "is JSON, but not an object"
    remedy = "Write one JSON object a line"


class MalformedRow(BadRecord):
    """A CSV row with broken quotes or another number of cells than the header, or the header once more."""

    problem = "has broken quotes or not as many cells as the header, or is the header once more"


class NoText(BadRecord):
    """Text missing, blank or no string."""

    problem = "has no text: {field!r} is missing, blank or not a string"
    remedy = (
        "Repair or remove it. The field was fixed by `--text` when the dataset was registered: if another one holds the"
        " text, register a dataset with that field; `almoner dataset forget` removes an empty one from lists"
    )


class NoUnit(BadRecord):
    """Unit missing, empty, or neither string nor integer."""

    problem = "has no unit: {field!r} is missing, empty, or neither a string nor an integer"
    remedy = (
        "Give it the id of the person or thing it is about. `--unit` fixed the field when the dataset was registered."
        " If another field holds the id, `almoner dataset forget` takes the empty dataset out of lists, and"
        " `almoner dataset register NEW_NAME --unit FIELD --check PATH` tries the field before it is fixed"
    )


class BadDocumentId(BadRecord):
    """A document id that is neither string nor integer."""

    problem = "has a document id in {field!r} that is neither a string nor an integer"


class BadLabel(BadRecord):
    """A label that is neither a string nor an integer, or too long to be one."""

    problem = f"has a label in {{field!r}} that is not a string or integer, or longer than {LONGEST_LABEL} characters"


class DuplicateDocument(BadRecord):
    """A document id that came before."""

    problem = "has a document id that came before"
    remedy = "Give every document its own id (a unit with several documents needs a field beside it)"


class RecordTooLong(BadRecord):
    """A record beyond MAX_RECORD_BYTES."""

    problem = f"is longer than {MAX_RECORD_BYTES // 2**20} MiB"
    remedy = "Write one document a record, or split it"


class FieldTwice(BadRecord):
    """A field that the path of the file fixes, `stars=5/`, stands in the record too."""

    problem = "has a field {field!r}, which the path of its file fixes for all records"
    remedy = "Remove it from the records, or rename the folders"
