"""Cleaning of model output: lines that can be published, and a check that they concern the question."""

import re
import unicodedata
from collections.abc import Iterable

from tasks.text.words import STOP_WORDS, plain_words

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})  # control, format, half a surrogate pair, private use, unassigned
_SENTENCE = re.compile(r"\S.*?[.!?…。！？]+(?=\s|$|(?<=[。！？]))")
_MARKS, _CLOSING = ".!?…。！？", " \t\"'”’»)]}*_"
_ABBREVIATIONS = frozenset({"dr", "mr", "mrs", "ms", "prof", "st", "vs", "fig", "approx", "e.g", "i.e"})
_FEWEST_DIFFERENT = 0.5
_STEM = 4
_MOST_REPEATED = 2


def line(written: object, longest: int | None = None) -> str:
    """Return one line without invisible characters; empty if `written` is not text.

    Args:
        longest: in characters; what is longer is cut.
    """
    if not isinstance(written, str):
        return ""
    visible = "".join(" " if unicodedata.category(sign) in _UNSEEN else sign for sign in written)
    joined = " ".join(unicodedata.normalize("NFC", visible).split())
    return joined if longest is None else joined[:longest].rstrip()


def plain_text(text: str) -> str:
    """Return the words of a text alone: equal for texts that differ in case and signs."""
    return " ".join(plain_words(text)) or text


def whole_words(text: str, limit: int) -> str:
    """Return a line that was written up to a limit, without the word that the limit may have cut."""
    return text if len(text) < limit else _ended(text.split()[:-1]) or text


def first_words(text: str, most: int) -> str:
    """Return the first words of a line."""
    words = text.split()
    return text if len(words) <= most else _ended(words[:most])


def _ended(words: list[str]) -> str:
    """Return a cut line without words that cannot stand last."""
    while len(words) > 1 and words[-1].casefold() in STOP_WORDS:
        words = words[:-1]
    return " ".join(words).rstrip(" ,;:-")


def sentences(text: str, most: int) -> str:
    """Return the first finished sentences of a line; if there is none, the line itself with a full stop."""
    matches = sentence_list(text)[:most]
    return " ".join(matches) if matches else text and text.rstrip(" ,;:-") + "."


def sentence_list(text: str) -> list[str]:
    """Return the finished sentences of a line, in order."""
    return _SENTENCE.findall(text)


def ends_sentence(text: str) -> bool:
    """Return whether the last sentence of a text is finished: by a mark, behind which may stand quotes, or by its line.

    A full stop behind a number, a single letter or a usual abbreviation is taken for a part of its sentence.
    """
    body = text.rstrip()
    if "\n" in text[len(body) :]:
        return bool(body)
    body = body.rstrip(_CLOSING)
    if not body.endswith(tuple(_MARKS)):
        return False
    word = body.rstrip(_MARKS).rpartition(" ")[2].strip("(\"'“‘[").casefold()
    is_part = word in _ABBREVIATIONS or word[-1:].isdigit() or (len(word) == 1 and word.isalpha())
    return not (body.endswith(".") and is_part)


def is_rambling(text: str) -> bool:
    """Return whether a line repeats itself: half of its words, or more, are there already."""
    words = plain_words(text)
    return len(set(words)) <= _FEWEST_DIFFERENT * len(words)


def has_content_word(name: str) -> bool:
    """Return whether a name has a word with a letter that is no stop word."""
    return any(word not in STOP_WORDS and any(map(str.isalpha, word)) for word in plain_words(name))


def count_mentioned(text: str, lines: Iterable[str]) -> int:
    """Return how many of `lines` have a word of which `text` speaks.

    A word is spoken of if a word of the text begins with its first four letters, so that `recipe` and `recipes` are
    alike; in scripts without spaces, wherever they stand. Stop words do not count.
    """
    words, folded = set(plain_words(text)), unicodedata.normalize("NFC", text).casefold()
    return sum(any(_speaks_of(words, folded, word) for word in _telling(one)) for one in lines)


def is_repetitive(name: str) -> bool:
    """Return whether a name says two words twice, or one three times; stop words do not count."""
    words = _telling(name)
    return len(words) - len(set(words)) >= _MOST_REPEATED


def _telling(text: str) -> list[str]:
    words = plain_words(text)
    return [word for word in words if word not in STOP_WORDS] or words


def _speaks_of(words: set[str], folded: str, word: str) -> bool:
    stem = word[:_STEM]
    if not stem.isascii() and stem in folded:
        return True
    return word in words or (len(word) >= _STEM and any(own.startswith(stem) for own in words))
