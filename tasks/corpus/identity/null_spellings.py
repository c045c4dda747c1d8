"""Closed lists of the ways in which exports spell that a value is missing (docs/inputs.md#ids-of-people).

JSON and Parquet have a null, and a record without a unit is refused. CSV and careless exports have words for it, and
one word for all strangers would make them one person, beside the unit that each of them is under an id.
"""

import re
import unicodedata
from typing import Final

from models_db.values.printable_text import without_unseen

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
SIGNS: Final = "signs without a letter or digit"
"""Ids such as `-`, `?` and `...`, in words."""

ERRORS: Final = "errors of a spreadsheet"
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
        return SIGNS
    return ERRORS if written.isupper() and _ERROR.fullmatch(written) else None


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
