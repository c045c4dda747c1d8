"""Doubts about a generated text that a reader should look at first, from the text and its public prompt alone.

They are hints, not findings: an address in a private release is usually the model's invention, and a text without a
doubt may still be unfit. Nothing here reads private data, so doubts may stand wherever the texts do.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Final

from tasks.text.words import plain_words

PROMPT_RUN: Final = 6
"""Words in a row that a text must share with a passage of its prompt to count as a copy of it."""
SHORTEST_PASSAGE: Final = 4
"""Words of a passage that is shorter than `PROMPT_RUN` and counts as a whole; a shorter one is anybody's."""
REPEATED_RUN: Final = 3
REPETITIONS: Final = 4
"""A run of three words that often is a loop."""
LEAST_LETTERS: Final = 0.6
"""Share of letters and spaces below which a text of some length is hardly language."""
LEAST_SIGNS: Final = 20

LOOKED_FOR: Final[Mapping[str, str]] = {
    "empty": "empty text",
    "e-mail address": "address",
    "web address": "address",
    "long number": "long or telephone number",
    "telephone number": "long or telephone number",
    "refusal": "refusal",
    "placeholder": "placeholder",
    "assistant talk": "assistant talk",
    "copies the prompt": "copy of the prompt",
    "repeats itself": "loop",
    "hardly any words": "noise",
}
"""Every doubt in the order of `find_doubts`, with its name in `describe_doubts`."""
NOT_CHECKED: Final = "Names and sense are not checked"
"""What no doubt is about, wherever a page could be read as a clearance of texts."""

_CANNOT = r"\bi ?(?:can't|cannot|can not|won't|(?:will|would) not|(?:am|'m) (?:not able|unable) to)"
_WRITING = (
    r"(?:advice|article|content|conversation|dialogue|document|edit|example|information|letter|material|message"
    r"|monologue|note|paragraph|passage|post|record|report|response|review|sample|script|sentence|speech|story|summary"
    r"|text|version)s?\b"
)
_REFUSALS = (
    (
        r"\b(?:as|i am|i'm)(?: just| only| merely)? an? (?:ai(?:[,.;:!?]| (?:and|assistant|but|created|designed"
        r"|developed|so|that|trained|without)\b)|(?:ai |large )?language model|artificial intelligence)"
    ),
    r"\b(?:sorry|apologi[sz]e|apologies|unfortunately)\b[^.!?\n]{0,20}"
    + _CANNOT
    + r" (?:assist|comply|create|discuss|engage|fulfill?|generate|help with|produce|provide|respond|share|write)\b",
    _CANNOT + r" (?:assist|comply|help)(?: you)? with (?:that|this|your|such|any)\b",
    _CANNOT + r" (?:fulfill?|process) (?:that|this|your|such|the) requests?\b",
    _CANNOT + r" (?:create|fabricate|generate|produce|provide|write)(?: you with)? (?:\w+ ){1,5}?" + _WRITING,
    (
        r"\bi (?:don't|do not) have (?:access to (?!my )(?:\w+ ){0,3}(?:data|information|records)|personal"
        r" (?:experience|opinion|feeling|belief)s?|the ability to (?:access|browse|create|generate|provide|write))\b"
    ),
    r"\bmy (?:training data|knowledge cutoff|programming|ethical guidelines|content policy)\b",
)
_TURNS = (
    r"<\|[\w.-]{1,40}\|>|<\uff5c|\[/?INST\]|<</?SYS>>|</?(?:start_of_turn|end_of_turn|think|bos|eos)>|\A<s>|</s>\Z",
    r"^[^\w\n]{0,9}(?:Human|Assistant|User|AI)[^\w\n]{0,3}:|(?<=[.!?] )(?:Human|Assistant|User):",
    r"^(?:user|assistant|system) ?$|^#{2,} ?(?:Human|Assistant|User|System|Instruction|Input|Response)\b",
)
"""Signs of a conversation, in this case of letters; a physician's ASSISTANT: is none."""
_ASSISTANT = (
    (
        r"\A\W{0,9}(?:sure|certainly|of course|absolutely|great)\b[,!.: -]{1,9}(?:here(?:'s| is| are)\b|let me\b"
        r"|i(?:'d| would| will|'ll) (?:be )?(?:happy|glad|help|write|provide)\b)"
    ),
    (
        r"\A\W{0,9}i(?:'m| am|'d be| would be|'ll be| will be) (?:more than )?(?:happy|glad|ready|here) to (?:assist"
        r"|create|edit|help|provide|review|rewrite|write)\b"
    ),
    r"\A\W{0,9}here(?:'s| is| are) (?:an?|another|the|your|some) (?:[\w'-]+ ){0,5}?"
    + _WRITING
    + r"(?! (?:from|that i)\b)",
    (
        r"\bhere(?:'s| is) (?:an?|another|the|your) (?:[\w'-]+ ){0,4}?(?:continuation|re-?writ\w+|rewording|sample"
        r"|variation|version)\b"
    ),
    r"\blet me know if (?:any|anything|that|there|this|you)\b[^.!?\n]{0,120}[.!?]{0,9}\s*\Z",
    r"\bi hope (?:this|that) helps\b|\bfeel free to (?:ask|reach out|let me know)\b",
    r"\b(?:is there anything else i can (?:help|assist)|how (?:can|may) i assist) you\b",
    r"\bi(?:'m| am) sorry for (?:any|the) (?:confusion|mis\w+)|\byou(?:'ve| have) provided me with\b",
    r"\bi(?:'m| am) an? (?:ai|digital|helpful|virtual|writing) assistant\b",
)
_PATTERNS: Final = (
    ("e-mail address", re.compile(r"(?<![^\s@<>])[^\s@<>]+@[^\s@<>]+\.[a-zA-Z]{2,}")),
    ("web address", re.compile(r"\bhttps?://\S+|\bwww\.\S+", re.IGNORECASE)),
    ("long number", re.compile(r"(?<![\d.,])\d{7,}(?![\d.,])")),
    ("refusal", re.compile("|".join(_REFUSALS), re.IGNORECASE)),
    ("assistant talk", re.compile("|".join(_TURNS), re.MULTILINE)),
    ("assistant talk", re.compile("|".join(_ASSISTANT), re.IGNORECASE)),
)
_MARKUP = re.compile(
    "a|abbr|article|aside|b|big|body|br|center|cite|code|dd|del|div|dl|dt|em|font|footer|h[1-6]|head|header|hr|html|i"
    "|img|ins|kbd|li|main|mark|nav|ol|p|pre|q|s|samp|section|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th"
    "|thead|title|tr|tt|u|ul|var",
    re.IGNORECASE,
)
"""Elements of HTML: texts from the web have them, and no template does."""
_LETTER = r"[^\W\u0250-\u02ff]"  # any but phonetic ones, which stand in brackets as pronunciations
_WORDS = rf"(?![\d_]){_LETTER}(?:{_LETTER}|['-])*(?:[ /](?:{_LETTER}|['-])+){{0,5}}"
_PLACEHOLDER = re.compile(
    rf"\{{\s?{_WORDS}\s?\}}|\[\s?{_WORDS}\s?\]|<({_WORDS})>|\{{[A-Za-z0-9_]{{1,40}}\}}"
    r"|\[\*\*[^\]\n]{0,80}\*\*\]|\[(?i:insert|your|enter|fill in|add)\b[^\]\n]{0,200}\]|\b[xX]{4,}\b|(?<!_)_{3,20}(?!_)"
)

_DATE: Final = re.compile(r"\b(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b")
_DIGIT_GROUPS: Final = re.compile(r"\d[\d()/ -]*")
FEWEST_DIGITS, MOST_DIGITS = 7, 15
"""Digits of a telephone number (ITU-T E.164 allows 15)."""


def find_doubts(text: str, prompt: tuple[str, ...]) -> tuple[str, ...]:
    """Return the doubts about a text, in the order of `LOOKED_FOR`; empty if there is none.

    Args:
        prompt: the public passages that the text may have been copied from (`tasks.release.prompt_passages`).

    >>> find_doubts("Call 030 1234 5678.", ("A note.",))
    ('telephone number',)
    """
    if not text.strip():
        return ("empty",)
    plain, words = text.replace("\u2019", "'"), plain_words(text)
    found = {name for name, pattern in _PATTERNS if pattern.search(plain)}
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("telephone number", lambda: _has_telephone_number(text)),
        ("placeholder", lambda: has_placeholder(text)),
        ("copies the prompt", lambda: _copies(words, prompt)),
        ("repeats itself", lambda: _repeats(words)),
        ("hardly any words", lambda: _is_noise(text)),
    )
    found |= {name for name, holds in checks if holds()}
    return tuple(name for name in LOOKED_FOR if name in found)


def describe_doubts(doubtful: int, texts: int) -> str:
    """Return the sentence about how many texts have a doubt: what was looked for, and what nobody has checked.

    >>> describe_doubts(0, 4).partition(",")[0]
    '0 of 4 texts with a doubt; no empty text'
    """
    *names, last = dict.fromkeys(LOOKED_FOR.values())
    looked_for = f"{', '.join(names)} or {last}"
    found = f"looked for: {looked_for}" if doubtful else f"no {looked_for} was found"
    limits = f"{NOT_CHECKED}; refusals and assistant talk are found in English only."
    return f"{doubtful:,} of {texts:,} texts with a doubt; {found}. {limits}"


def has_placeholder(text: str) -> bool:
    """Return whether anything in the text reads like `[WORD]`, `{word}`, `<WORD>`, `[**word**]`, `XXXX` or `___`."""
    return any(match[1] is None or not _MARKUP.fullmatch(match[1]) for match in _PLACEHOLDER.finditer(text))


def _copies(words: list[str], prompt: tuple[str, ...]) -> bool:
    return any(not runs.isdisjoint(_runs(words, length)) for length, runs in _prompt_runs(prompt).items())


@lru_cache(maxsize=16)
def _prompt_runs(prompt: tuple[str, ...]) -> Mapping[int, set[tuple[str, ...]]]:
    """Return the runs of words that copy a passage, by their length."""
    found: dict[int, set[tuple[str, ...]]] = {}
    for words in map(plain_words, prompt):
        if (length := min(PROMPT_RUN, len(words))) >= SHORTEST_PASSAGE:
            found.setdefault(length, set()).update(_runs(words, length))
    return found


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
