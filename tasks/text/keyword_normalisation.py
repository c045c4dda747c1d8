"""Normalisation of keywords: one spelling for one meaning, and no character that breaks a page or a prompt.

Keywords come out of people's texts and are published. Whether a string may be one is a public rule about that string
alone, and it is applied to each unit's own keywords before anything is counted.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tasks.text.stop_words import STOP_WORDS
from tasks.text.vague_words import VAGUE_WORDS
from tasks.text.words import plain_words

LONGEST: Final = 60
"""Characters of a keyword at most."""

_SILENT = STOP_WORDS | VAGUE_WORDS
_SIGNS = frozenset(" -'’+#&./_%")  # beside letters, their marks and digits: c++, q&a, tcp/ip, node.js
_EDGES = " -'’./_&,;:!?\"`*"


def normalise_keyword(raw: str) -> str | None:
    """Return the one spelling of a keyword; None for a string that cannot be one.

    NFC, lower case, single spaces, no punctuation around it. A keyword has at most LONGEST characters, at least two
    of them or one ideograph, a word with a letter that is neither a stop word nor vague, and no sign beside letters,
    digits and a few marks: no bracket, quotation mark, control or formatting character.
    """
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", raw).lower())
    keyword = " ".join(lowered.split()).strip(_EDGES)
    if not keyword or len(keyword) > LONGEST or (len(keyword) == 1 and not _is_ideograph(keyword)):
        return None
    if not all(sign in _SIGNS or unicodedata.category(sign)[0] in "LM" or sign.isdecimal() for sign in keyword):
        return None
    return keyword if any(_says_something(word) for word in plain_words(keyword)) else None


def normalise_keywords(raw: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return the first `most` different keywords of these, in their order."""
    keywords = dict.fromkeys(keyword for candidate in raw if (keyword := normalise_keyword(candidate)) is not None)
    return tuple(keywords)[:most]


def tokens_of(text: str) -> Counter[str]:
    """Count in a text each single word that could be a keyword.

    A word is a run of letters, digits and underscores, so a language that writes no spaces has whole clauses for
    words, and those that are longer than a keyword are none.
    """
    counts = Counter[str]()
    for word, count in Counter(plain_words(text)).items():
        plain = word.isascii() and word.isalpha() and 1 < len(word) <= LONGEST  # most are, and no more is to be asked
        token = (word if word not in _SILENT else None) if plain else normalise_keyword(word)
        if token is not None:
            counts[token] += count
    return counts


def roots(text: str) -> frozenset[str]:
    """Return the words of a text without stop words and plural endings; `near` compares them."""
    return frozenset(singular(word) for word in set(plain_words(text)) - STOP_WORDS)


def near(keyword: str, public: Iterable[frozenset[str]]) -> bool:
    """Return whether a keyword says no more than one of these public ones, given by their roots, already does.

    It does if it has all their words: `python decorators` is near `python`, and `python` is not near `python courses`.
    """
    own = roots(keyword)
    return any(root_set <= own for root_set in public)


def _says_something(word: str) -> bool:
    return word not in _SILENT and any(sign.isalpha() for sign in word)


def singular(word: str) -> str:
    """Return a word without its plural ending.

    English endings alone: a word of another language loses an s or an es at most, and the same one everywhere.
    """
    if not word.endswith("s") or len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def _is_ideograph(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith("CJK UNIFIED IDEOGRAPH")
