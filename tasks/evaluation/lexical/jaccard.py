"""Jaccard similarity of released texts and private documents: phrases, terms, words and pairs of words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import jackknife
from tasks.evaluation.core.intervals import Interval
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.core.subsample import halves, sample
from tasks.text.features import Features, chunks, pairs, phrases, tokens, weighted_terms
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
        values |= _named_figures(name, similarity(features[0], features[1], chosen) if features else None)
        reference = similarity(features[1], features[2], chosen) if features and len(first) == len(second) else None
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
        f" {jackknife.METHOD}",
        line=f"Jaccard with the corpus: {summary}" if sides else "nothing to compare",
    )


def similarity(
    first: Sequence[Features], second: Sequence[Features], chosen: Chosen
) -> tuple[float, Interval | None] | None:
    """Jaccard similarity of the features chosen on either side, and its interval; None if none is chosen."""
    sides = Sides.of(first, second)
    whole = sides.jaccard(chosen)
    if whole is None:
        return None
    # Without a group there may be nothing left to choose; then nothing is in common either.
    without = [[sides.jaccard(chosen, **{side: group}) or 0.0 for group in sides.groups(side)] for side in ("a", "b")]
    return whole, jackknife.share_interval(whole, *without)


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
    groups = np.zeros((min(len(texts), jackknife.GROUPS), len(names)))
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
