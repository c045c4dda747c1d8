"""The words of a text, the same for every metric that counts them."""

import re
import unicodedata

_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, and single other signs; NFC, case folded."""
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())
