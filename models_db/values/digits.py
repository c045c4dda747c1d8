"""Whole numbers as people type them: ASCII digits, as many as a column of the ledger holds."""

from typing import Final

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
