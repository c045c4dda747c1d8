"""Words of a text, the same for every metric that counts them."""

import re
import unicodedata

_WORD, _PLAIN = re.compile(r"\w+|[^\w\s]"), re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Runs of letters, digits and underscores, and single other signs; NFC, case folded."""
    return _WORD.findall(unicodedata.normalize("NFC", text).casefold())


def plain_words(text: str) -> list[str]:
    """Return the words of `words`, without the other signs."""
    return _PLAIN.findall(unicodedata.normalize("NFC", text).casefold())
