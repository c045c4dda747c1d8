"""Text from outside: made safe for screens, pages and files; whole numbers, plain names and reasons that can be stored.

Text from outside, made safe for screens, pages and files; and what a reader sees of it. Two spellings of an id or a
name that look the same are one person. So what decides about people (`principals.comparable_name`) and what names
people in data (`tasks.corpus.units`) use one set of characters that nobody sees.

Plain names of datasets, adapters and endpoints: one spelling for files, paths and eyes. Lower-case ASCII letters,
digits, `-`, `_` and `.`, beginning with a letter or digit. Two such names look different if they are: no capitals, no
letters of other scripts, no spaces, no way out of a folder.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from models_db.errors import UsageError

_UNSTORABLE = re.compile(r"[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_PERMITTED_CONTROLS = "\n\t\u200c\u200d"
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS: Final = "\u200c\u200d\ufe0e\ufe0f"
"""Characters that nobody sees and that change their neighbours: Persian and Indic words and emoji contain them."""

_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\U0001d159]"
)
"""Default_Ignorable_Code_Point of Unicode 16, and two signs of empty shape: U+2800 of braille, U+1D159 of music."""
_CONTROLS: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})


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


def without_surrogates(text: str) -> str:
    """Return a text with a question mark for each half of a surrogate pair, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


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


class HiddenCharacter(ValueError):
    """A character that nobody sees stands inside a name; the message quotes nothing of it."""

    def __init__(self) -> None:
        super().__init__("a control character, or one that nobody sees, stands inside it")


def is_unseen(sign: str) -> bool:
    """Return whether nobody sees a character: control, format, line separator, default ignorable or of empty shape.

    White space other than the separators of lines is no such character.
    """
    return bool(_IGNORABLE.match(sign)) or unicodedata.category(sign) in _CONTROLS


def without_unseen(text: str) -> str:
    """Return a text without the characters that nobody sees."""
    return text if text.isascii() and text.isprintable() else "".join(one for one in text if not is_unseen(one))


def spell_out_unseen(text: str) -> str:
    r"""Return a text with the characters that nobody sees written as escapes, so that different texts look different.

    >>> spell_out_unseen("a\u200eb")
    'a\\u200eb'
    """
    return "".join(sign.encode("unicode_escape").decode() if is_unseen(sign) else sign for sign in text)


def is_visible(text: str) -> bool:
    """Return whether a reader sees anything of a text."""
    return any(not _is_margin(sign) for sign in text)


def plain_spelling(text: str, inside: str = "") -> str:
    r"""Return the one spelling of a name: NFC, with nothing unseen around it and one space for white space inside.

    Case, width and letters of other scripts that look alike stay, and tell names apart.

    Args:
        inside: the unseen characters that may stand inside.

    Raises:
        HiddenCharacter: another one stands inside; a tab or a line break is one.

    >>> plain_spelling("\u202aAna\u00a0 B.\u202c")
    'Ana B.'
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    text = unicodedata.normalize("NFC", text)
    start, end = 0, len(text)
    while start < end and _is_margin(text[start]):
        start += 1
    while start < end and _is_margin(text[end - 1]):
        end -= 1
    spaced = "".join(" " if unicodedata.category(sign) == "Zs" else sign for sign in text[start:end])
    if any(is_unseen(sign) and sign not in inside for sign in spaced):
        raise HiddenCharacter
    return " ".join(filter(None, spaced.split(" ")))


def _is_margin(sign: str) -> bool:
    return sign.isspace() or is_unseen(sign)


def _escape_character(sign: str) -> str:
    harmless = sign in _PERMITTED_CONTROLS or unicodedata.category(sign) not in _CONTROL_CATEGORIES
    return sign if harmless else sign.encode("unicode_escape").decode()


MOST_DIGITS: Final = 18
LARGEST_INTEGER: Final = 10**MOST_DIGITS - 1
"""SQLite and PostgreSQL store integers below 2**63."""


def parse_digits(text: str, most: int = MOST_DIGITS) -> int | None:
    """Return the whole number that `text` spells in at most `most` digits; None if it spells none.

    Digits of other scripts, signs and blanks are none, and a number is measured before it is read: thousands of
    digits cost nothing.

    >>> parse_digits("17"), parse_digits("-1"), parse_digits("²"), parse_digits("9" * 5000)
    (17, None, None, None)
    """
    if len(text) <= most and text.isascii() and text.isdigit():
        return int(text)
    return None


LONGEST_PLAIN_NAME: Final = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def require_plain_name(what: str, name: str) -> None:
    """Check that `name` cannot be confused with another.

    Raises:
        InvalidPlainName: it is not.
    """
    if not 0 < len(name) <= LONGEST_PLAIN_NAME or _NAME.fullmatch(name) is None:
        raise invalid_plain_name(what)


def invalid_plain_name(what: str) -> UsageError:
    """Return the error of a name that could be taken for another one, or for a path."""
    return UsageError(
        f"The name of {what} is 1 to {LONGEST_PLAIN_NAME} lower-case letters a to z, digits, `-`, `_` and `.`,"
        " and begins with a letter or digit.",
        "Choose such a name, for example `clinic-2027`.",
        {"what": what},
        code="InvalidPlainName",
    )


LONGEST_REASON: Final = 1000
"""Characters of a reason that a person gives for a step that is kept in the audit log."""


def is_reason(text: str) -> bool:
    """Return whether a text can be the reason for a step: storable, not blank, at most LONGEST_REASON characters."""
    return bool(text.strip()) and len(text) <= LONGEST_REASON and is_storable(text)


def require_storable(arguments: Mapping[str, object]) -> None:
    """Check that the ledger can store every argument: texts and paths that are storable, integers of 18 digits.

    Raises:
        UnreadableArgument: a text or path is not UTF-8, or holds a control character.
        IntegerTooLarge: an integer has more than 18 digits.
    """
    for name, value in arguments.items():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str | Path) and not is_storable(str(each)):
                raise UsageError(
                    f"The argument {name!r} is not readable text: it holds bytes that are not UTF-8, or a control"
                    " character.",
                    "Type it again in UTF-8, without control characters.",
                    {"argument": name},
                    code="UnreadableArgument",
                )
            if isinstance(each, int) and abs(each) > LARGEST_INTEGER:
                raise UsageError(
                    f"The argument {name!r} has more than {MOST_DIGITS} digits.",
                    "Type a smaller integer.",
                    {"argument": name, "largest": LARGEST_INTEGER},
                    code="IntegerTooLarge",
                )
