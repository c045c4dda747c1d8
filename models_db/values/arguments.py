"""Arguments of commands and of Python calls that the ledger can store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from models_db.errors import UsageError
from models_db.values.digits import LARGEST_INTEGER, MOST_DIGITS
from models_db.values.printable_text import is_storable

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
