"""Verbatim overlap: the longest run of a private document in a released text.

It is the one metric that reads every document, and not a sample; on workers it does so shard by shard.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.algorithms.suffix_automaton import SuffixAutomaton
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.subject import Documents, EvaluationInput
from tasks.text.words import words
from tasks.values.results import MetricResult, rounded


def verbatim_overlap(subject: EvaluationInput) -> MetricResult:
    """Longest common run of words with any private document, per text. INTERNAL: it reads private documents.

    An empty text shares 0 words; without texts the figures are null.
    """
    runs = _longest_runs(subject, subject.require_documents())
    low, high = bootstrap.of_mean(runs) or (None, None)
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
        f" document; interval of the mean: {bootstrap.METHOD}",
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
