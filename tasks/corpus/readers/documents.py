"""Parser from one raw record to one document; an error names the file and the place, never the content.

The text of a document is one field, or a template of several between literal characters: `note` is the field `note`.
`{title}\\n\\n{body}` is the fields `title` and `body` with an empty line between them: `\\n` is a line break, `{{` and
`}}` are braces. A template is public; the dataset's registration fixes it.

Below, each `RecordFault` is one code of `BadRecord`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Final

from models_db.errors import UsageError
from models_db.values.untrusted_text import is_visible
from tasks.corpus.readers.sources import AnySource, Shard, format_of, name_of
from tasks.corpus.readers.text_form import AS_FOUND, TextForm
from tasks.corpus.units import (
    FIELD_SEPARATOR,
    UnitInvalid,
    combined_label,
    is_unicode,
    missing_unit_word,
    normalise_label,
    read_unit,
    spell_label,
    spells_missing_text,
)


@dataclass(frozen=True)
class TextTemplate:
    """Template of a text.

    Attributes:
        written: the template as it was written.
        parts: the literal characters before a field, and the field's name; None after the last field.
        composed: whether it is a template, and not the name of a field.
    """

    written: str
    parts: tuple[tuple[str, str | None], ...]
    composed: bool

    @classmethod
    def parse(cls, written: str) -> "TextTemplate":
        """Parse the name of a field or a template.

        Raises:
            TextTemplateInvalid: it has a brace that is neither part of a place nor written twice, or no place.
        """
        if "{" not in written and "}" not in written:
            return cls(written, (("", written),), composed=False)
        try:
            parts = tuple(Formatter().parse(written.replace("\\n", "\n")))
        except ValueError:
            raise _text_template_invalid(written) from None
        if any(name == "" or form or conversion for _, name, form, conversion in parts):
            raise _text_template_invalid(written)
        template = cls(written, tuple((literal, name) for literal, name, _, _ in parts), composed=True)
        if not template.fields:
            raise _text_template_invalid(written)
        return template

    def __str__(self) -> str:
        return self.written

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of its fields, each once, in the order of the template."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name is not None))

    @cached_property
    def optional_fields(self) -> frozenset[str]:
        """The fields that a record may lack: those of a template, which are empty then."""
        return frozenset(self.fields if self.composed else ())

    def text_of(self, record: Mapping[str, object]) -> str | None:
        """Return the text of a record; None if it has none.

        The text of a field stands as it is in the source. In a template a missing field is empty, an integer is its
        digits, and white space around the whole is removed; without one field that is filled there is no text. A
        field is filled if a reader sees something in it that is no word for a missing value.
        """
        if not self.composed:
            text = record.get(self.fields[0])
            return text if isinstance(text, str) and _is_filled(text) else None
        values = {name: _value_text(record.get(name)) for name in self.fields}
        if None in values.values() or not any(value and _is_filled(value) for value in values.values()):
            return None
        return "".join(literal + (values[name] or "" if name else "") for literal, name in self.parts).strip()


def _is_filled(text: str) -> bool:
    return is_visible(text) and not spells_missing_text(text)


def _value_text(value: object) -> str | None:
    """Return a value as text; None if it is neither a string nor an integer nor missing."""
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _text_template_invalid(written: str) -> UsageError:
    return UsageError(
        f"The text {written!r} is neither the name of a field nor a template with places such as {{title}}.",
        "Write a field's name, or for instance '{title}\\n\\n{body}'; a literal brace is written twice.",
        {"text": written},
        code="TextTemplateInvalid",
    )


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
        allowed_units: normalised ids of units that are taken although they spell a missing value.
        on_bad_unit: called with a refusal of a unit in place of raising it; the document then has no unit.
        most_of_path: how many records are read of files with the same fields in their paths; None for all.
        form: the encoding and the delimiter that are named.
        forms: those with which files were read, which readers add.
    """

    unit: str | None
    text: TextTemplate
    document_id: str
    labels: tuple[str, ...] = ()
    constants: Mapping[str, str | None] = field(default_factory=dict)
    allowed_units: Collection[str] = field(default=(), repr=False)
    on_bad_unit: "Callable[[NoUnit], None] | None" = field(default=None, repr=False)
    most_of_path: int | None = None
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
            raise BadRecord(NO_TEXT, source, position, str(self.text))
        if len(text) > MAX_RECORD_BYTES:
            raise BadRecord(RECORD_TOO_LONG, source, position)
        if not is_unicode(text):
            raise BadRecord(NOT_UTF8, source, position, "", "it contains half of a surrogate pair")
        unit = self._unit(record, source, position)
        document_id, label = self._document_id(record, source, position), self._label(record, source, position)
        absent = self.text.optional_fields.difference(record)
        return SourceDocument(document_id, unit, text, position, offset, source, label, absent)

    def _with_constants(self, record: Mapping[str, object], source: AnySource, position: int) -> Mapping[str, object]:
        """Return the record with the fields that are asked for and that its path fixes; a path may name persons."""
        fixed = {name: self.constants[name] for name in (*self.required, self.document_id) if name in self.constants}
        for name in fixed:
            if name in record:
                raise BadRecord(FIELD_TWICE, source, position, name)
        return {**record, **fixed}

    def _unit(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        if self.unit is None:
            return None
        try:
            return read_unit(record.get(self.unit), self.allowed_units)
        except UnitInvalid as invalid:
            refusal = NoUnit(source, position, self.unit, invalid)
        if self.on_bad_unit is None:
            raise refusal
        self.on_bad_unit(refusal)
        return None

    def _document_id(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        """Return the id, None where it is missing, also if it says so in words."""
        if self.document_id == self.unit:  # the records of a person have one id, and it is the person's
            return None
        try:
            found = spell_label(record.get(self.document_id))
        except ValueError as problem:
            raise BadRecord(BAD_DOCUMENT_ID, source, position, self.document_id, str(problem)) from None
        return None if found is None or missing_unit_word(found) else found

    def _label(self, record: Mapping[str, object], source: AnySource, position: int) -> str | None:
        for name in self.labels:
            try:
                normalise_label(record.get(name))
            except ValueError as problem:
                raise BadRecord(BAD_LABEL, source, position, name, str(problem)) from None
        try:
            return combined_label([record.get(name) for name in self.labels]) if self.labels else None
        except ValueError as problem:  # each of them is a label, and together they are too long
            raise BadRecord(BAD_LABEL, source, position, FIELD_SEPARATOR.join(self.labels), str(problem)) from None


def place(source: AnySource, position: int) -> str:
    """Return the position of a record, in words.

    A file of a text folder is named by its number only, since its name may be the id of a person.
    """
    if not isinstance(source, Shard) and source.is_dir():
        return f"File {position} of the folder {name_of(source)!r}"
    rows = format_of(source) in (".parquet", ".arrow", ".feather")
    return f"{'Row' if rows else 'Line'} {position} of {name_of(source)!r}"


@dataclass(frozen=True)
class RecordFault:
    """A fault of a record, and what to do about it.

    Attributes:
        code: the code of the error.
        problem: what is said of the record's place, with `{field}` and `{reason}`.
        remedy: the beginning of the advice.
        other_field: advice on a field that a registration fixed and that may be the wrong one.
        other_field_unregistered: the same before a registration.
    """

    code: str
    problem: str
    remedy: str = "Repair or remove it"
    other_field: str = ""
    other_field_unregistered: str = ""


class BadRecord(UsageError):
    """A record that cannot be taken, named by file and place; its code is that of the fault."""

    def __init__(
        self,
        fault: RecordFault,
        source: AnySource,
        position: int,
        field_name: str = "",
        reason: str = "",
        remedy: str = "",
    ) -> None:
        self._fault, self._remedy, self._finding = fault, remedy or fault.remedy, ""
        if isinstance(source, Shard):
            self._finding = "Files are counted in byte order of their paths."
        elif isinstance(source, Path) and source.is_dir():
            self._finding = (
                f"To see its name: find . -iname '*.txt' ! -path '*/[._]*' | LC_ALL=C sort | sed -n {position}p"
            )
        super().__init__(
            f"{place(source, position)} {fault.problem.format(field=field_name, reason=reason)}.",
            self._advice("ingest again; nothing of this attempt was kept", fault.other_field),
            {"file": name_of(source), "position": position},
            code=fault.code,
        )

    def advise_unregistered(self) -> None:
        """Change the advice to that of a check before a dataset is registered."""
        self.advise(self._advice("check again; nothing was registered", self._fault.other_field_unregistered))

    def _advice(self, then: str, other_field: str) -> str:
        return " ".join(filter(None, (f"{self._remedy}, then {then}.", other_field, self._finding)))


class NoUnit(BadRecord):
    """A record without a unit, or with no id that names one person (`UnitFault`).

    Attributes:
        cause: what is wrong with the id; never the id.
    """

    def __init__(self, source: AnySource, position: int, field_name: str, cause: UnitInvalid) -> None:
        self.cause = cause
        super().__init__(_NO_UNIT, source, position, field_name, cause.fault.sentence, cause.fault.remedy)

    def count(self, refused: "Sequence[NoUnit]", records: int) -> None:
        """Add to the message how many of the first records have no usable unit, and why; of ids only public words."""
        causes = Counter(one.cause.word or one.cause.fault.short for one in refused)
        listed = ", ".join(f"{count:,} {cause}" for cause, count in causes.most_common())
        self.message += f" Of the first {records:,} records {len(refused):,} have none: {listed}."
        self.args = (self.message,)


NOT_UTF8: Final = RecordFault("NotUtf8", "cannot be read as text: {reason}", "Repair or remove the text")
"""Broken bytes, another encoding, zero bytes of a crash, or half of a surrogate pair."""

NOT_ENCODED: Final = RecordFault(
    "NotEncoded",
    "is not valid {field}, the encoding that is named or that the file's first bytes say",
    "Name the right encoding with `--encoding` (utf-16-le or utf-16-be without a byte-order mark), or repair the"
    " record",
)
"""Bytes that are nothing in the encoding of the file; in wide encodings this line or one soon after it."""

LONE_CR: Final = ", or lines end with CR alone, as on old Macs"
LINES_ANEW: Final = "Write the file anew with LF at the ends of lines (`tr '\\r' '\\n' < FILE > NEW`)"

NOT_JSON: Final = RecordFault(
    "NotJson",
    "cannot be read as JSON: {reason}",
    "Write one JSON object a line, with each key once, at most 64 levels, and null for what is missing",
)
"""A line that is not JSON (RFC 8259) within bounds, or that has a key twice, which is ambiguous."""

NOT_AN_OBJECT: Final = RecordFault("NotAnObject", "is JSON, but not an object", "Write one JSON object a line")

MALFORMED_ROW: Final = RecordFault(
    "MalformedRow", "has broken quotes or not as many cells as the header, or is the header once more{reason}"
)
"""A row of CSV with broken quotes or another number of cells than the header, or the header once more."""

NO_TEXT: Final = RecordFault(
    "NoText",
    "has no text: {field!r} is missing, not a string, a word for a missing value such as NULL, or has nothing that"
    " a reader sees",
    other_field="`--text` named the field when the dataset was registered: if another one holds the text, name that"
    " one. `almoner dataset register` may be repeated until the first ingest.",
    other_field_unregistered="If another field holds the text, name it with `--text`.",
)

_NO_UNIT: Final = RecordFault(
    "NoUnit",
    "has no usable unit: {field!r} {reason}",
    other_field="`--unit` named the field when the dataset was registered. If another field holds the id, name that"
    " one: `almoner dataset register` may be repeated until the first ingest, and `--check PATH` tries the field.",
    other_field_unregistered="If another field holds the id, name it with `--unit`.",
)

BAD_DOCUMENT_ID: Final = RecordFault("BadDocumentId", "has a document id in {field!r} that cannot be used: {reason}")
"""A document id that is neither string nor integer, or that has a character which nobody sees."""

BAD_LABEL: Final = RecordFault("BadLabel", "has a label in {field!r} that cannot be used: {reason}")
"""A label that is neither a string nor an integer, too long, or with a character that nobody sees."""

DUPLICATE_DOCUMENT: Final = RecordFault(
    "DuplicateDocument",
    "has a document id that came before",
    "Give every document its own id (a unit with several documents needs a field beside it)",
)

RECORD_TOO_LONG: Final = RecordFault(
    "RecordTooLong", f"is longer than {MAX_RECORD_BYTES // 2**20} MiB", "Write one document a record, or split it"
)

FIELD_TWICE: Final = RecordFault(
    "FieldTwice",
    "has a field {field!r}, which the path of its file fixes for all records",
    "Remove it from the records, or rename the folders",
)
"""A field that the path of the file fixes, `stars=5/`, stands in the record too."""
