"""Words of a name that supported keywords do not have: what a name says without support.

A public rule about strings: a run applies it to what a model wrote, and verification to the rows of a release.
"""

from collections.abc import Iterable
from typing import Final

from tasks.text.keyword_normalisation import roots
from tasks.text.vague_words import VAGUE_WORDS

_STATEMENTS: Final = frozenset(("life", "man", "men", "people", "person", "woman", "women", "world"))
"""Vague as keywords, but a name that has them says something about its topic."""
_FREE: Final = frozenset(root for word in VAGUE_WORDS - _STATEMENTS for root in roots(word)) - _STATEMENTS


def unsupported_words(text: str, keywords: Iterable[str]) -> frozenset[str]:
    """Return the words of a text, without plural endings, that no keyword has.

    Stop words and words that name no topic need no support. A word of a script without spaces is a whole clause, and a
    keyword must be that clause.

    >>> sorted(unsupported_words("Questions about films and directors", ["film", "actor"]))
    ['director']
    """
    return roots(text) - frozenset[str]().union(*map(roots, keywords)) - _FREE
