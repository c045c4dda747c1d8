"""Perplexity under a public model: `perplexity` of the release, `perplexity_gap` to the corpus."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.intervals import Interval
from tasks.evaluation.core.subject import EvaluationInput, Scorer
from tasks.evaluation.core.subsample import sample
from tasks.values.results import MetricResult, rounded

COMPARED = 500
"""Documents that a release is compared with: a sample where there are more. Scoring takes longest of all metrics."""

_SOURCE = "Jelinek, Mercer, Bahl, Baker, 'Perplexity - a measure of the difficulty of speech recognition tasks', 1977"


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """Log-loss of a set of texts.

    Attributes:
        losses: float64 [n], nats per text.
        tokens: int64 [n], at least 1 each.
        unscored: texts without a token to score, or with a score that is not finite.
    """

    losses: NDArray[np.float64]
    tokens: NDArray[np.int64]
    unscored: int

    @classmethod
    def of(cls, score: Scorer, texts: Sequence[str]) -> "NegativeLogLikelihood":
        """Score `texts`; empty ones are not handed to the model."""
        scores = score([text for text in texts if text])
        scored = [(-total, count) for total, count in scores if count > 0 and math.isfinite(total)]
        losses, tokens = zip(*scored, strict=True) if scored else ((), ())
        return cls(np.array(losses, np.float64), np.array(tokens, np.int64), len(texts) - len(scored))

    @property
    def scored(self) -> int:
        """Number of texts with a score."""
        return len(self.losses)

    @property
    def per_token(self) -> float | None:
        """Nats per token over all texts together; None without a scored text."""
        return self.over(np.arange(self.scored)) if self.scored else None

    def over(self, picks: bootstrap.Picks) -> float:
        """Nats per token of a resample, int64 [n], of at least one text."""
        return float(self.losses[picks].sum() / self.tokens[picks].sum())

    def interval(self) -> Interval | None:
        """Bootstrap over texts, 95 %, of `per_token`; None below two texts."""
        return bootstrap.of_ratio(self.losses, self.tokens)


def perplexity(subject: EvaluationInput) -> MetricResult:
    """Perplexity of the released texts, token-weighted, with a bootstrap interval; null if no text has a token."""
    likelihood = NegativeLogLikelihood.of(_scorer(subject), [text.text for text in subject.texts])
    low, high = likelihood.interval() or (None, None)
    figure = rounded(_exp(likelihood.per_token), 3)
    return MetricResult(
        name="perplexity",
        exposure="public",
        values={
            "perplexity": figure,
            "interval_low": rounded(_exp(low), 3),
            "interval_high": rounded(_exp(high), 3),
            "nats_per_token": rounded(likelihood.per_token, 5),
            "scored": likelihood.scored,
            "unscored": likelihood.unscored,
        },
        source=_SOURCE,
        method=f"exp of the mean log-loss per token under the public model, all texts together; {bootstrap.METHOD}",
        line=f"perplexity {figure} under the public model" if likelihood.scored else "no text could be scored",
    )


def perplexity_gap(subject: EvaluationInput) -> MetricResult:
    """Released minus corpus, in nats per token. INTERNAL: it reads private documents without protection."""
    score = _scorer(subject)
    released = NegativeLogLikelihood.of(score, [text.text for text in subject.texts])
    corpus = NegativeLogLikelihood.of(score, sample(subject.require_documents()(), COMPARED))
    measurable = released.per_token is not None and corpus.per_token is not None
    gap = (released.per_token or 0.0) - (corpus.per_token or 0.0) if measurable else None
    low, high = bootstrap.of_two(
        released.scored, corpus.scored, lambda some, others: released.over(some) - corpus.over(others)
    ) or (None, None)
    return MetricResult(
        name="perplexity_gap",
        exposure="internal",
        values={
            "released_nats_per_token": rounded(released.per_token, 5),
            "corpus_nats_per_token": rounded(corpus.per_token, 5),
            "gap_nats_per_token": rounded(gap, 5),
            "gap_nats_per_token_low": rounded(low, 5),
            "gap_nats_per_token_high": rounded(high, 5),
            "ratio": rounded(_exp(gap), 4),
        },
        source=_SOURCE,
        method="mean log-loss per token of the released texts minus that of the private documents, same public model;"
        f" at most {COMPARED} documents, sampled with a fixed ordinary random start; both sides resampled:"
        f" {bootstrap.METHOD}",
        line=f"{rounded(gap, 3)} nats per token above the corpus" if measurable else "not measurable",
    )


def _scorer(subject: EvaluationInput) -> Scorer:
    if subject.score is None:
        raise ValueError("perplexity needs a public model")
    return subject.score


def _exp(nats: float | None) -> float | None:
    return None if nats is None else math.exp(min(nats, 700.0))
