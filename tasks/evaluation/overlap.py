"""Overlap of released texts with private documents: Jaccard similarity, ROUGE, verbatim runs.

Verbatim overlap: the longest run of a private document in a released text. It is the one metric that reads every
document, and not a sample; on workers it does so shard by shard.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation import intervals
from tasks.evaluation.algorithms import CommonSubsequence, SuffixAutomaton
from tasks.evaluation.evaluation_input import Documents, EvaluationInput, halves, sample
from tasks.evaluation.intervals import Interval
from tasks.text.features import Features, chunks, pairs, phrases, tokens, weighted_terms
from tasks.text.words import words
from tasks.values.results import MetricResult, MetricValue, rounded

COMPARED = 1000
"""Released texts that are read: a sample where there are more. As many documents are, and as many again."""

TERMS = 100
"""The terms with the highest TF-IDF on each side that are compared."""

FIGURES = ("key_phrases", "noun_chunks", "tf_idf", "tokens", "bigrams")

Weights = NDArray[np.float64]
Chosen = Callable[[Weights], NDArray[np.bool_]]


def jaccard(subject: EvaluationInput) -> MetricResult:
    """Jaccard similarity of five kinds of features with as many documents. INTERNAL: it reads private documents.

    Each figure stands beside that of the same documents with as many others (`_of_corpus`), which is what a perfect
    release would have; null if the corpus has too few. Texts without a word are left out.
    """
    private = subject.require_documents()
    texts = sample((text.text for text in subject.texts if text.text.strip()), COMPARED)
    first, second = halves(filter(str.strip, private()), len(texts)) if texts else ([], [])
    if first and subject.tag is None:
        raise ValueError("jaccard needs a tagger for noun chunks")
    values: dict[str, MetricValue] = {"texts": len(texts), "documents": len(first)}
    sides = [_features(subject, side) for side in (texts, first, second)] if first else []
    for name in FIGURES:
        chosen = heaviest if name == "tf_idf" else present
        features = [side[name] for side in sides]
        values |= _named_figures(name, jaccard_similarity(features[0], features[1], chosen) if features else None)
        reference = (
            jaccard_similarity(features[1], features[2], chosen) if features and len(first) == len(second) else None
        )
        values[f"{name}_of_corpus"] = rounded(reference[0], 4) if reference else None
    summary = ", ".join(
        f"{name} {values[name]} (corpus {values[f'{name}_of_corpus']})" for name in ("tokens", "bigrams")
    )
    return MetricResult(
        name="jaccard",
        exposure="internal",
        values=values,
        source="URANIA, section 5.1, items 1 and 2, table 1; Jaccard 1901; key phrases: RAKE, Rose et al. 2010, section"
        " 1.2; which extractors URANIA used it does not say",
        method="features in both sets by features in either; words case folded; key phrases by RAKE, each text's best"
        f" third; noun chunks by {subject.tag.name if subject.tag else 'a tagger'}; the {TERMS} terms of highest TF-IDF"
        f" on each side; at most {COMPARED} texts and as many documents, sampled with a fixed ordinary random start;"
        f" {intervals.JACKKNIFE}",
        line=f"Jaccard with the corpus: {summary}" if sides else "nothing to compare",
    )


def jaccard_similarity(
    first: Sequence[Features], second: Sequence[Features], chosen: Chosen
) -> tuple[float, Interval | None] | None:
    """Jaccard similarity of the features chosen on either side, and its interval; None if none is chosen."""
    sides = Sides.of(first, second)
    whole = sides.jaccard(chosen)
    if whole is None:
        return None
    # Without a group there may be nothing left to choose; then nothing is in common either.
    without = [[sides.jaccard(chosen, **{side: group}) or 0.0 for group in sides.groups(side)] for side in ("a", "b")]
    return whole, intervals.share_interval(whole, *without)


def present(weights: Weights) -> NDArray[np.bool_]:
    """Return every feature that occurs."""
    return weights > 0


def heaviest(weights: Weights) -> NDArray[np.bool_]:
    """Return the features of the greatest weight, at most TERMS; of equal ones the first in the alphabet."""
    best = np.argsort(-weights, kind="stable")[:TERMS]
    chosen = np.zeros(len(weights), bool)
    chosen[best] = weights[best] > 1e-9  # what subtracting a group leaves of 0
    return chosen


@dataclass(frozen=True)
class Sides:
    """The features of two sets of texts, texts in groups.

    Attributes:
        a, b: float64 [groups, features], the weight of each feature in a group; features in the order of the alphabet.
    """

    a: Weights
    b: Weights

    @classmethod
    def of(cls, first: Sequence[Features], second: Sequence[Features]) -> "Sides":
        """Texts go round the groups in turn."""
        every = sorted({name for text in (*first, *second) for name in text})
        names = {name: place for place, name in enumerate(every)}
        return cls(_group_weights(first, names), _group_weights(second, names))

    def groups(self, side: str) -> range:
        """Return the groups of side "a" or "b"."""
        return range(len(getattr(self, side)))

    def jaccard(self, chosen: Chosen, a: int | None = None, b: int | None = None) -> float | None:
        """Return the similarity, without group `a` of side one or `b` of side two; None if nothing is chosen."""
        one, other = chosen(_sum_without(self.a, a)), chosen(_sum_without(self.b, b))
        either = int((one | other).sum())
        return float((one & other).sum() / either) if either else None


def _sum_without(groups: Weights, left_out: int | None) -> Weights:
    total: Weights = groups.sum(0)
    return total if left_out is None else total - groups[left_out]


def _group_weights(texts: Sequence[Features], names: dict[str, int]) -> Weights:
    groups = np.zeros((min(len(texts), intervals.GROUPS), len(names)))
    for number, text in enumerate(texts):
        for name, weight in text.items():
            groups[number % len(groups), names[name]] += weight
    return groups


def _features(subject: EvaluationInput, texts: Sequence[str]) -> dict[str, list[Features]]:
    noun_phrases = subject.tag.noun_chunks(texts) if subject.tag else []
    features = (phrases(texts), chunks(noun_phrases), weighted_terms(texts), tokens(texts), pairs(texts))
    return dict(zip(FIGURES, features, strict=True))


def _named_figures(name: str, figures: tuple[float, Interval | None] | None) -> dict[str, MetricValue]:
    value, ends = figures or (None, None)
    low, high = ends or (None, None)
    return {name: rounded(value, 4), f"{name}_low": rounded(low, 4), f"{name}_high": rounded(high, 4)}


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
        f" documents, sampled with a fixed ordinary random start; mean over texts; {intervals.BOOTSTRAP}",
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
        for number, document in enumerate(documents):
            for word, count in Counter(document).items():
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
    low, high = intervals.of_mean(scores) or (None, None)
    return {
        name: rounded(float(scores.mean()), 4) if len(scores) else None,
        f"{name}_low": rounded(low, 4),
        f"{name}_high": rounded(high, 4),
        f"{name}_max": rounded(float(scores.max()), 4) if len(scores) else None,
    }


def verbatim_overlap(subject: EvaluationInput) -> MetricResult:
    """Longest common run of words with any private document, per text. INTERNAL: it reads private documents.

    An empty text shares 0 words; without texts the figures are null.
    """
    runs = _longest_runs(subject, subject.require_documents())
    low, high = intervals.of_mean(runs) or (None, None)
    return MetricResult(
        name="verbatim_overlap",
        exposure="internal",
        values={
            "texts": len(runs),
            "max_words": max(runs, default=None),
            "mean_words": rounded(float(np.mean(runs)), 2) if runs else None,
            "mean_words_low": rounded(low, 2),
            "mean_words_high": rounded(high, 2),
            "p95_words": rounded(float(np.quantile(runs, 0.95)), 2) if runs else None,
        },
        source="the longest common substring; as a measure of memorisation: Lee et al., 'Deduplicating Training Data"
        " Makes Language Models Better', ACL 2022",
        method="for each released text, the longest run of words (case folded) found in any private"
        f" document; interval of the mean: {intervals.BOOTSTRAP}",
        line=f"longest shared run {max(runs)} words" if runs else "no texts",
    )


def _longest_runs(subject: EvaluationInput, documents: Documents) -> list[int]:
    texts = [words(text.text) for text in subject.texts]
    automaton = SuffixAutomaton(texts)
    if subject.by_shard is None:
        return automaton.longest_shared(map(words, documents()))
    shards = subject.by_shard(partial(_matching, texts))
    return automaton.longest(reduce(np.maximum, shards, automaton.matched(())))


def _matching(texts: Sequence[Sequence[str]]) -> Callable[[Sequence[str]], NDArray[np.int32]]:
    """Return the function that a worker applies to the documents of a shard."""
    automaton = SuffixAutomaton(texts)
    return lambda documents: automaton.matched(map(words, documents))
