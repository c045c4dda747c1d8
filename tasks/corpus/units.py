"""Ids of privacy units and labels of documents: their one spelling; spellings of a missing value (PRIVACY §1, §3).

*Units.* Named ones are normalised once, unnamed records get a random one.

*Labels.* Which labels a corpus has, and how often, is private. A request names the labels it wants from public
knowledge, a public set; what it names and the corpus has not is generated all the same, from null rows.

Labels may come from several fields of a record, such as a category and a number of stars. They are then one label,
spelt as its values with ` / ` between them: `books / 5`. A slash inside a value stands without spaces, so that a label
is of one combination of values alone. Nothing else knows of fields: a combination is a label like any other.

*Missing values.* Exports spell them in ways that are on closed lists (docs/inputs.md#ids-of-people). JSON and Parquet
have a null, and a record without a unit is refused. CSV and careless exports have words for it, and one word for all
strangers would make them one person, beside the unit that each of them is under an id.
"""

import re
import secrets
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from itertools import product
from math import prod
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from models_db.errors import UsageError
from models_db.values.requests import normalise_spelling
from models_db.values.untrusted_text import HiddenCharacter, plain_spelling, without_unseen


class UnitFault(Enum):
    """What is wrong with the id of a unit: the end of a sentence about it, the same in short, and what to do."""

    MISSING = (
        "is missing or empty",
        "missing or empty",
        "Give every record the id of the person or thing that it is about",
    )
    KIND = ("is neither a string nor an integer", "no string or integer", "Write ids as strings or integers")
    HALF = (
        "contains half of a surrogate pair, which is no character",
        "half of a pair",
        "Repair the id, or number the people",
    )
    HIDDEN = (
        "contains a control character, or one that nobody sees, so that one person would be two",
        "with a hidden character",
        "Remove the character from the id, in every version alike; where an id needs it (Persian, emoji) number people",
    )
    BROKEN = (
        "contains a sign for bytes that could not be read, or a character without a meaning (for private use, or none)",
        "with a broken character",
        "Export the ids anew, in UTF-8 or with `--encoding`; where they need such characters, number people",
    )
    NULL = (
        "spells that a value is missing, so that strangers would be one person",
        "spelt as missing",
        "Give the records ids or leave them out; `--allow-unit ID` at every ingest takes the real name of somebody",
    )
    SPREADSHEET = (
        'was written by a spreadsheet (="007", \'007 or 1.23E+11), which is another id than the one it was made of',
        "of a spreadsheet",
        "Export the ids anew, as plain text",
    )

    def __init__(self, sentence: str, short: str, remedy: str) -> None:
        self.sentence, self.short, self.remedy = sentence, short, remedy


class UnitInvalid(UsageError):
    """A value that cannot name a privacy unit. The value itself is private and never part of the message.

    The advice is for an id that a person types; a refused record has that of its fault (`documents.NoUnit`).

    Attributes:
        word: the word of the public list that spells a missing value.
    """

    def __init__(self, fault: UnitFault = UnitFault.MISSING, word: str | None = None) -> None:
        self.fault, self.word = fault, word
        super().__init__(
            f"The id of a unit {fault.sentence}.",
            "Give the id as the records have it. Every ingest refuses this one.",
        )


def normalise_unit(value: object) -> str:
    """Return the one spelling of a named id (`plain_spelling`); 7 and "7" are one unit.

    Raises:
        UnitInvalid: empty, no string or integer (a boolean is neither), half of a surrogate pair, with a character
            inside that nobody sees, or with one that is broken.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UnitInvalid(UnitFault.MISSING if value is None else UnitFault.KIND)
    try:
        unit = plain_spelling(str(value))
    except HiddenCharacter:
        raise UnitInvalid(UnitFault.HIDDEN) from None
    if not unit:
        raise UnitInvalid
    if not is_unicode(unit):
        raise UnitInvalid(UnitFault.HALF)
    if _is_broken(unit):
        raise UnitInvalid(UnitFault.BROKEN)
    return unit


def _is_broken(unit: str) -> bool:
    """Return whether a program that could not read an id left a sign in it, or a character never has a public meaning.

    Two names may have the same broken spelling, and one name another in the next version. A character that this
    Python does not know yet may be a letter of a name.
    """
    if unit.isascii():
        return False
    left = any(sign in unit for sign in ("\ufffd", "\ufffc", "ï¿½"))  # the last: U+FFFD in UTF-8, read as cp1252
    return left or any(unicodedata.category(sign) == "Co" or _is_noncharacter(ord(sign)) for sign in unit)


def _is_noncharacter(code: int) -> bool:
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


def read_unit(value: object, allowed: Collection[str] = ()) -> str:
    """Return the normalised id of a record's unit.

    Args:
        allowed: normalised ids that are taken although they spell a missing value.

    Raises:
        UnitInvalid: as `normalise_unit`; or it spells a missing value, or was written by a spreadsheet.
    """
    unit = normalise_unit(value)
    if unit not in allowed and (word := missing_unit_word(unit)) is not None:
        raise UnitInvalid(UnitFault.NULL, word)
    if is_of_spreadsheet(unit):
        raise UnitInvalid(UnitFault.SPREADSHEET)
    return unit


def random_unit() -> str:
    """Return a fresh 128-bit id for a record without a unit field: never reused, independent of place and content.

    An index would renumber everybody when one record leaves; a content hash would merge equal records.
    """
    return secrets.token_hex(16)


def is_unicode(text: str) -> bool:
    r"""Return whether `text` has a UTF-8 form; JSON's "\ud800" alone has none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


LONGEST_LABEL = 200
"""Characters."""

MOST_LABELS = 1000

FIELD_SEPARATOR: Final = " / "
"""Between the values of a label that comes from several fields, and between the fields' names."""

LabelFields: TypeAlias = str | Sequence[str] | None
"""The field of a document's label, several of them in the order of their values, or None without labels."""


def normalise_label(value: object) -> str | None:
    """Return the one spelling of a label (`spell`); 7 and "7" are one label. None if empty.

    Raises:
        ValueError: as `spell`, or it is too long.
    """
    label = spell_label(value)
    if label is not None and len(label) > LONGEST_LABEL:
        raise ValueError(f"it has more than {LONGEST_LABEL} characters")
    return label


def spell_label(value: object) -> str | None:
    """Return the one spelling of the name of a thing, such as a label or a document's id; None if empty.

    Raises:
        ValueError: no string or integer (a boolean is neither), half of a surrogate pair, or with a character inside
            that nobody sees. The value is private where it comes from a corpus, and never part of the message.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("it is neither text nor an integer; in YAML, put words such as yes and no in quotes")
    name = normalise_spelling(value)
    if not is_unicode(name):
        raise ValueError("it contains half of a surrogate pair, which is no character")
    return name or None


def fields_of_label(given: LabelFields) -> tuple[str, ...]:
    """Return the fields that labels come from."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def combined_label(values: Sequence[object]) -> str | None:
    """Return the label of a record with these values in its label fields; None if one of them is missing or empty.

    Raises:
        ValueError: as `normalise_label`, of a value or of them together.

    >>> combined_label(["Home / Garden", 5])
    'Home/Garden / 5'
    """
    parts = [normalise_label(value) for value in values]
    if len(parts) == 1:
        return parts[0]
    spelt = [re.sub(r"\s*/\s*", "/", part) for part in parts if part is not None]
    return normalise_label(FIELD_SEPARATOR.join(spelt)) if len(spelt) == len(parts) else None


def _label_products(declared: object) -> object:
    """Return the labels of all combinations of values of fields, the last field fastest; a list as it is."""
    if not isinstance(declared, Mapping):
        return declared
    if not declared or not all(isinstance(values, list | tuple) and values for values in declared.values()):
        raise ValueError("labels of several fields are a list of values for each field")
    if prod(map(len, declared.values())) > MOST_LABELS:
        raise ValueError(f"the fields have more than {MOST_LABELS} combinations")
    labels = [combined_label(values) for values in product(*declared.values())]
    if None in labels:
        raise ValueError("a label is not empty")
    return tuple(labels)


def _declared_label(value: object) -> str:
    label = normalise_label(value)
    if label is None:
        raise ValueError("a label is not empty")
    return label


def _each_once(labels: Sequence[str]) -> tuple[str, ...]:
    if len(set(labels)) != len(labels):
        raise ValueError("each label once")
    return tuple(labels)


DeclaredLabel = Annotated[str, BeforeValidator(_declared_label)]
DeclaredLabels = Annotated[
    tuple[DeclaredLabel, ...],
    Field(max_length=MOST_LABELS),
    AfterValidator(_each_once),
    BeforeValidator(
        _label_products,
        json_schema_input_type=tuple[DeclaredLabel, ...] | dict[str, Annotated[list[DeclaredLabel], Field()]],
    ),
]
"""`parameters.labels` of a request: public, in the order in which samples are shared out; empty for none. A mapping of
fields to values stands for all their combinations."""


_WRITTEN_BY_MACHINES: Final = (
    r"\N", "NULL", "null", "Null", "(null)", "NaN", "nan", "NAN", "-NaN", "-nan", "NaT", "<NA>", "NA", "N/A", "n/a",
    "#N/A", "#N/A N/A", "#NA", "#NULL!", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "1.#IND", "-1.#IND",
    "1.#QNAN", "-1.#QNAN", "None", "nil", "undefined",
)  # fmt: skip
"""What databases, spreadsheets and programming languages write for a missing value; all that pandas reads as one."""
_WRITTEN_BY_PEOPLE: Final = (
    "none", "n.a.", "n.a", "missing", "unknown", "anonymous", "not available", "not applicable", "no value",
    "deleted", "removed", "(blank)", "(empty)", "not set", "not specified", "unspecified",
)  # fmt: skip
_WRITTEN_AS_IDS: Final = (
    r"\\N", "[object Object]", "[object Undefined]", "[object Null]", "NoneType",
    "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "0" * 32, "0" * 24,
    "f" * 32, "f" * 24,
)  # fmt: skip
"""What programs write for a missing object and as the first and last UUID or ObjectId."""
MISSING_TEXTS: Final = frozenset(_WRITTEN_BY_MACHINES)
"""Texts that are missing, in exactly these capitals: people do write "none" and "?"."""
MISSING_UNITS: Final = {
    word.casefold(): word for word in reversed((*_WRITTEN_BY_MACHINES, *_WRITTEN_BY_PEOPLE, *_WRITTEN_AS_IDS))
}
"""Ids that are missing, in any capitals, also within brackets or quotes; to the word as it is shown."""
MISSING_SIGNS: Final = "signs without a letter or digit"
"""Ids such as `-`, `?` and `...`, in words."""

SPREADSHEET_ERRORS: Final = "errors of a spreadsheet"
"""Ids such as `#WERT!` and `#NV`, in the words of any language, always in capitals; `#wow!` is a name."""

_ENCLOSING: Final = " \\\"'`\u0301\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f«»‹›「」『』()[]{}<>"
_JOINED: Final = re.compile(r"[\s_|,;:]+")
_ERROR: Final = re.compile(r"#(?:[¡¿]?[^\W\d]{2,}(?:/0)?[!?]|[^\W\d]/[^\W\d]|NV|GETTING_DATA)")
_SIGNS: Final = " □✗"
_OF_SIGNS: Final = ("Sm", "Sc", "Sk")
"""Categories of signs that are no picture: a person may have an emoji for a name."""
_SCIENTIFIC: Final = r"[+-]?(?:[0-9]+[.,][0-9]*[Ee][+-]?[0-9]+|[0-9][Ee][+-][0-9]{2,})"
_OF_SPREADSHEET: Final = re.compile(rf"=.*|'[0-9]+|{_SCIENTIFIC}")


def missing_unit_word(unit: str) -> str | None:
    """Return the word of the list by which an id says that there is none, SIGNS or ERRORS; None if it may be an id."""
    written = unicodedata.normalize("NFKC", unit)
    word = written.casefold()
    if found := MISSING_UNITS.get(word) or MISSING_UNITS.get(word.strip(_ENCLOSING)):
        return found
    parts = _JOINED.split(word)  # a first and a last name, both missing; Na Na is a name
    if len(parts) > 1 and "na" not in parts and all(part in MISSING_UNITS for part in parts):
        return MISSING_UNITS[parts[0]]
    if word[0].isalnum():
        return None
    if all(
        unicodedata.category(sign) in _OF_SIGNS or unicodedata.category(sign)[0] in "PM" or sign in _SIGNS
        for sign in word
    ):
        return MISSING_SIGNS
    return SPREADSHEET_ERRORS if written.isupper() and _ERROR.fullmatch(written) else None


def spells_missing_text(text: str) -> bool:
    """Return whether a text says that there is none."""
    return len(text) <= _LONGEST_TEXT and without_unseen(text).strip() in MISSING_TEXTS


def is_of_spreadsheet(unit: str) -> bool:
    """Return whether a spreadsheet wrote an id: as a formula, `="007"`; marked as text, `'007`; rounded, `1.23E+11`.

    Rounded is a number with a point or comma and any exponent (Java and Spark write 1.23E11), or one digit and a sign
    with two digits or more, as in 5E+15. 1E11 and 5E-3 are ids: wards, rooms and hashes are called so.
    """
    return _OF_SPREADSHEET.fullmatch(unit) is not None


_LONGEST_TEXT: Final = 40
"""Characters of a text that is looked at: a missing one is short, even with white space around it."""
