"""Plain names of datasets, adapters and endpoints: one spelling for files, paths and eyes.

Lower-case ASCII letters, digits, `-`, `_` and `.`, beginning with a letter or digit. Two such names look different
if they are: no capitals, no letters of other scripts, no spaces, no way out of a folder.
"""

import re
from typing import Final

from models_db.errors import UsageError

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
