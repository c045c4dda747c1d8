"""Text from outside, made safe for screens, pages and files."""

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

_UNSTORABLE = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_PERMITTED_CONTROLS = "\n\t\u200c\u200d"
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def escape_controls(text: object) -> str:
    r"""Return `text` with control characters spelt out, so that it cannot control a terminal or a page.

    >>> escape_controls("plain \x1b[31m red")
    'plain \\x1b[31m red'
    """
    string = str(text)
    return string if string.isascii() and string.isprintable() else "".join(map(_escape_character, string))


def is_storable(text: str) -> bool:
    """Return whether a text is UTF-8 without control characters but tab and line feed: the ledger takes nothing else.

    The database compares again (`migrations.schema.forms`).
    """
    return is_transferable(text) and _UNSTORABLE.search(text) is None


def is_transferable(text: str) -> bool:
    """Return whether a text is UTF-8 without NUL: no database, file name or terminal takes anything else."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as Python spells bytes that are not UTF-8
        return False


def value_text(value: object) -> str:
    """Return a value as text: None as a dash, several values separated by commas."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)


def json_text(value: object, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """`value` as JSON with its letters as they are, or escaped where UTF-8 cannot hold them (half of a pair)."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=default)
    return text


def _escape_character(sign: str) -> str:
    harmless = sign in _PERMITTED_CONTROLS or unicodedata.category(sign) not in _CONTROL_CATEGORIES
    return sign if harmless else sign.encode("unicode_escape").decode()
