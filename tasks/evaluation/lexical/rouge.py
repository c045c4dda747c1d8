"""ROUGE-1 and ROUGE-L of each released text with its closest private document."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.algorithms.longest_common_subsequence import CommonSubsequence
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.core.subsample import sample
from tasks.values.results import MetricResult, MetricValue, rounded

COMPARED = 1000
"""Documents that a release is compared with: a sample where there are more."""

_TOKEN = re.compile("[a-z0-9]+")

Words = list[str]


def rouge(subject: EvaluationInput) -> MetricResult:
    """F1 of each text with its best match among documents. INTERNAL: it reads private documents.

    A text without a Latin letter or digit has no word for ROUGE; it is counted as unscored and left out. Without
    texts, or without documents that have words, the figures are null.
    """
    private = subject.require_documents()
    texts = [words for text in subject.texts if (words := rouge_words(text.text))]
    documents = [rouge_words(document) for document in sample(private(), COMPARED)] if texts else []
    closest = Closest(documents)
    scores = [closest.to(words) for words in texts] if closest.possible else []
    table = np.array(scores, np.float64).reshape(-1, 2)
    values: dict[str, MetricValue] = {
        "scored": len(table),
        "unscored": len(subject.texts) - len(table),
        "documents": len(documents),
        **_score_figures("rouge_1", table[:, 0]),
        **_score_figures("rouge_l", table[:, 1]),
    }
    summary = f"best match among {len(documents)} documents: ROUGE-1 {values['rouge_1']}, ROUGE-L {values['rouge_l']}"
    return MetricResult(
        name="rouge",
        exposure="internal",
        values=values,
        source="Lin, 'ROUGE: A Package for Automatic Evaluation of Summaries', Text Summarization Branches Out 2004,"
        " sections 2 and 3; as a measure of utility: Gutierrez, Khalaf, Qi et al., 'Differentially Private"
        " Summarization with Large Language Models', section 5.1",
        method="F1 of words (runs of a-z and 0-9 in lower case, no stemming, as the package rouge-score) of each text"
        f" with the document that it has the highest F1 with, for ROUGE-1 and ROUGE-L apart; at most {COMPARED}"
        f" documents, sampled with a fixed ordinary random start; mean over texts; {bootstrap.METHOD}",
        line=summary if len(table) else "nothing to compare",
    )


def rouge_words(text: str) -> Words:
    """Return the words that ROUGE counts, as the package rouge-score without its stemmer."""
    return _TOKEN.findall(text.lower())


class Closest:
    """Documents, ready to be compared with many texts.

    Attributes:
        possible: whether any document has a word.
    """

    def __init__(self, documents: Sequence[Words]) -> None:
        self._documents = documents
        self._lengths = np.array([len(words) for words in documents], np.int64)
        self.possible = bool(self._lengths.any())
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, words in enumerate(documents):
            for word, count in Counter(words).items():
                places[word].append((number, count))
        self._places = {word: np.array(positions, np.int64).T for word, positions in places.items()}

    def to(self, words: Words) -> tuple[float, float]:
        """Return the highest ROUGE-1 F1 and the highest ROUGE-L F1 of `words`, at least one, with any document."""
        ones = 2 * self._shared_word_counts(words) / (len(words) + self._lengths)
        own, best = CommonSubsequence(words), 0.0
        # A common subsequence has no more words than there are shared words: ROUGE-L is at most ROUGE-1.
        for number in np.argsort(-ones, kind="stable"):
            if ones[number] <= best:
                break
            length = own.with_(self._documents[number])
            best = max(best, 2 * length / (len(words) + len(self._documents[number])))
        return float(ones.max()), best

    def _shared_word_counts(self, words: Words) -> NDArray[np.int64]:
        """Return how many words each document shares with `words`, a repeated one as often as both have it."""
        shared = np.zeros(len(self._documents), np.int64)
        for word, count in Counter(words).items():
            if word in self._places:
                numbers, counts = self._places[word]
                shared[numbers] += np.minimum(counts, count)
        return shared


def _score_figures(name: str, scores: NDArray[np.float64]) -> dict[str, MetricValue]:
    """Return mean, its interval and the largest, of four places each."""
    low, high = bootstrap.of_mean(scores) or (None, None)
    return {
        name: rounded(float(scores.mean()), 4) if len(scores) else None,
        f"{name}_low": rounded(low, 4),
        f"{name}_high": rounded(high, 4),
        f"{name}_max": rounded(float(scores.max()), 4) if len(scores) else None,
    }
