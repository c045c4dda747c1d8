"""Ids of privacy units (PRIVACY §1): named ones are normalised once, unnamed records get a random one."""

import secrets
import unicodedata
from collections.abc import Collection
from enum import Enum

from models_db.errors import UsageError
from models_db.values.printable_text import HiddenCharacter, plain_spelling
from tasks.corpus.identity.null_spellings import is_of_spreadsheet, missing_unit_word


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
