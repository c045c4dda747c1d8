"""RAKE key phrases of one text.

Rose, Engel, Cramer, Cowley, "Automatic keyword extraction from individual documents", in Text Mining: Applications and
Theory, 2010, section 1.2: candidates are runs of words between stop words and punctuation; a word is worth its degree
(words in all candidates that it is in) by its frequency, a phrase the sum of its words; the best third is taken.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from tasks.text.stop_words import STOP_WORDS

_PART = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]|\n\s*\n")

Phrase = tuple[str, ...]


def key_phrases(text: str) -> list[str]:
    """Return the best phrases, the best first: a third as many as the text has distinct content words."""
    scores = phrase_scores(text)
    best = sorted(scores, key=lambda phrase: (-scores[phrase], phrase))
    different = {word for phrase in scores for word in phrase}
    return [" ".join(phrase) for phrase in best[: len(different) // 3]]


def phrase_scores(text: str) -> dict[Phrase, float]:
    """Return the score of each different candidate."""
    candidates = list(_candidates(text))
    frequency, degree = Counter[str](), Counter[str]()
    for phrase in candidates:
        for word in phrase:
            frequency[word] += 1
            degree[word] += len(phrase)
    return {phrase: sum(degree[word] / frequency[word] for word in phrase) for phrase in candidates}


def _candidates(text: str) -> Iterator[Phrase]:
    """Runs of words that are neither stop words nor apart; NFC, case folded."""
    phrase: list[str] = []
    for part in (*_PART.findall(unicodedata.normalize("NFC", text).casefold()), "."):
        if part[0].isalnum() and re.split("['’]", part)[0] not in STOP_WORDS:
            phrase.append(part)
        elif phrase:
            yield tuple(phrase)
            phrase = []
