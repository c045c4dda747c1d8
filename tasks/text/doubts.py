"""Doubts about a generated text that a reader should look at first, from the text and its public prompt alone.

They are hints, not findings: an address in a private release is usually the model's invention, and a text without a
doubt may still be unfit. Nothing here reads private data, so doubts may stand wherever the texts do.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from tasks.text.words import plain_words

PROMPT_RUN: Final = 6
"""Words in a row that a text must share with its prompt to count as a copy of it."""
REPEATED_RUN: Final = 3
REPETITIONS: Final = 4
"""A run of three words that often is a loop."""
LEAST_LETTERS: Final = 0.6
"""Share of letters and spaces below which a text of some length is hardly language."""
LEAST_SIGNS: Final = 20

_PATTERNS: Final = (
    ("e-mail address", re.compile(r"(?<![^\s@<>])[^\s@<>]+@[^\s@<>]+\.[a-zA-Z]{2,}")),
    ("web address", re.compile(r"\bhttps?://\S+|\bwww\.\S+", re.IGNORECASE)),
    ("long number", re.compile(r"(?<![\d.,])\d{7,}(?![\d.,])")),
)


_DATE: Final = re.compile(r"\b(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b")
_DIGIT_GROUPS: Final = re.compile(r"\d[\d()/ -]*")
FEWEST_DIGITS, MOST_DIGITS = 7, 15
"""Digits of a telephone number (ITU-T E.164 allows 15)."""


def find_doubts(text: str, prompt: str) -> tuple[str, ...]:
    """Return the doubts about a text, in a fixed order; empty if there is none.

    Args:
        prompt: the public description that the request gave the model.

    >>> find_doubts("Call 030 1234 5678.", "A note.")
    ('telephone number',)
    """
    if not text.strip():
        return ("empty",)
    found = [name for name, pattern in _PATTERNS if pattern.search(text)]
    words, of_prompt = plain_words(text), plain_words(prompt)
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("telephone number", lambda: _has_telephone_number(text)),
        ("copies the prompt", lambda: bool(set(_runs(words, PROMPT_RUN)) & set(_runs(of_prompt, PROMPT_RUN)))),
        ("repeats itself", lambda: _repeats(words)),
        ("hardly any words", lambda: _is_noise(text)),
    )
    return (*found, *(name for name, holds in checks if holds()))


def _has_telephone_number(text: str) -> bool:
    return any(map(_is_telephone_number, _DIGIT_GROUPS.findall(_DATE.sub(";", text))))


def _is_telephone_number(run: str) -> bool:
    groups = re.findall(r"\d+", run)
    return len(groups) > 1 and FEWEST_DIGITS <= sum(map(len, groups)) <= MOST_DIGITS


def _repeats(words: list[str]) -> bool:
    counted = Counter(_runs(words, REPEATED_RUN))
    same_word = any(len(list(run)) >= REPETITIONS for _, run in groupby(words))
    return same_word or any(count >= REPETITIONS for count in counted.values())


def _is_noise(text: str) -> bool:
    letters = sum(sign.isalpha() or sign.isspace() for sign in text)
    return len(text) >= LEAST_SIGNS and letters < LEAST_LETTERS * len(text)


def _runs(words: list[str], length: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))
