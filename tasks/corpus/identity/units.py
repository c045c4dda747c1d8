"""Ids of privacy units (PRIVACY §1): named ones are normalised once, unnamed records get a random one."""

import secrets
import unicodedata

from models_db.errors import UsageError


class UnitInvalid(UsageError):
    """A value that cannot name a privacy unit. The value itself is private and never part of the message."""

    def __init__(self) -> None:
        super().__init__(
            "A unit id is missing, empty, not valid Unicode, or neither a string nor an integer.",
            "Give every record a non-empty string or integer in the unit field.",
        )


def normalise_unit(value: object) -> str:
    """Return the one spelling of a named id: NFC, trimmed of white space; 7 and "7" are one unit.

    Raises:
        UnitInvalid: empty, no string or integer (a boolean is neither), or half of a surrogate pair.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UnitInvalid
    unit = unicodedata.normalize("NFC", str(value)).strip()
    if not unit or not is_unicode(unit):
        raise UnitInvalid
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
