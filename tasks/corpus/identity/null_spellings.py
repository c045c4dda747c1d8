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
    "deleted", "removed",
)  # fmt: skip
MISSING_TEXTS: Final = frozenset(_WRITTEN_BY_MACHINES)
"""Texts that are missing, in exactly these capitals: people do write "none" and "?"."""
MISSING_UNITS: Final = {word.casefold(): word for word in reversed((*_WRITTEN_BY_MACHINES, *_WRITTEN_BY_PEOPLE))}
"""Ids that are missing, in any capitals, also within brackets or quotes; to the word as it is shown."""
SIGNS: Final = "signs without a letter or digit"
"""Ids such as `-`, `?` and `...`, in words."""

_ENCLOSED: Final = re.compile(r"""^(?:\((.*)\)|\[(.*)\]|<(.*)>|\{(.*)\}|"(.*)"|'(.*)')$""")
_SIGNS: Final = " \ufffc\ufffd□✗"
_OF_SIGNS: Final = ("Sm", "Sc", "Sk")
"""Categories of signs that are no picture: a person may have an emoji for a name."""
_OF_SPREADSHEET: Final = re.compile(r"=.*|'[0-9]+|[+-]?[0-9](?:[.,][0-9]+)?[Ee]\+[0-9]+")


def missing_unit_word(unit: str) -> str | None:
    """Return the word of the list by which an id says that there is none, or SIGNS; None if it may be an id."""
    word = unicodedata.normalize("NFKC", unit)
    if found := MISSING_UNITS.get(word.casefold()):
        return found
    if word[0].isalnum():
        return None
    if all(
        unicodedata.category(sign) in _OF_SIGNS or unicodedata.category(sign)[0] in "PM" or sign in _SIGNS
        for sign in word
    ):
        return SIGNS
    enclosed = _ENCLOSED.match(word)
    inner = next((each for each in enclosed.groups() if each is not None), "") if enclosed else ""
    return MISSING_UNITS.get(inner.strip().casefold())


def spells_missing_text(text: str) -> bool:
    """Return whether a text says that there is none."""
    return len(text) <= _LONGEST_TEXT and without_unseen(text).strip() in MISSING_TEXTS


def is_of_spreadsheet(unit: str) -> bool:
    """Return whether a spreadsheet wrote an id: as a formula, `="007"`; marked as text, `'007`; rounded, `1.23E+11`."""
    return _OF_SPREADSHEET.fullmatch(unit) is not None


_LONGEST_TEXT: Final = 40
"""Characters of a text that is looked at: a missing one is short, even with white space around it."""
