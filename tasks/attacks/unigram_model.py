"""Unigram model of a release's language: an attacker learns it from the released texts alone.

A bigram model, as in the attacks on synthetic text of Meeus et al., "The Canary's Echo", arXiv 2502.14921, smoothed by
a hierarchical Dirichlet prior (MacKay and Peto, Natural Language Engineering 1, 1995):

    P(w | v) = (c(v, w) + P(w)) / (c(v) + 1),     P(w) = (c(w) + 1/V) / (N + 1),

V the number of different words, one of them for every unknown word. A text's words are `tasks.text.words`.
"""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from tasks.text.words import words

_START = ""


class UnigramModel:
    """The bigram model of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._single: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        for text in texts:
            read = words(text)
            self._single.update(read)
            self._pairs.update(pairwise([_START, *read]))
        self._before: Counter[str] = Counter()
        for (first, _), count in self._pairs.items():
            self._before[first] += count
        self._total, self._kinds = self._single.total(), len(self._single) + 1

    def log_likelihood(self, text: str) -> float:
        """Return the sum of the words' log-probabilities, nats; 0 for a text without words."""
        return math.fsum(self._log(first, word) for first, word in pairwise([_START, *words(text)]))

    def _log(self, first: str, word: str) -> float:
        alone = (self._single[word] + 1 / self._kinds) / (self._total + 1)
        return math.log((self._pairs[first, word] + alone) / (self._before[first] + 1))
