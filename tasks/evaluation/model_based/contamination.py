"""Contamination probe: signs that the public model had read the private documents before any release.

A document is cut into a beginning and a continuation. Somebody who knows a text by heart continues it as it goes on, so
its own continuation is much likelier than another document's (the control). But whoever understands a language finds a
fitting continuation likelier, too. So the same figures stand beside it for passages that every model has read, and for
passages that none has (`contamination_trial`): the gain of a corpus tells something only where these two are apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import figure
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput, Scorer
from tasks.evaluation.core.subsample import sample
from tasks.evaluation.model_based.contamination_trial import FRESH, KNOWN
from tasks.values.results import MetricResult, MetricValue, rounded

MOST, BEGINNING, CONTINUATION = 100, 24, 12
"""Documents that are asked about, a sample where there are more; words of either part. Shorter ones are left out."""
BY_HEART = 0.5
"""Nats a token: a continuation that is likelier on average is known by heart."""


@dataclass(frozen=True)
class Continuations:
    """Losses of continuations, nats per token, float64 [n] each.

    Attributes:
        own: of each document's own continuation.
        others: of another document's, behind the same beginning.
    """

    own: NDArray[np.float64]
    others: NDArray[np.float64]

    @classmethod
    def of(cls, score: Scorer, texts: Sequence[str]) -> "Continuations":
        """Score texts of at least BEGINNING + CONTINUATION words; none if there are fewer than two."""
        parts = [_cut(text) for text in texts if len(text.split()) >= BEGINNING + CONTINUATION]
        if len(parts) < 2:
            return cls(np.empty(0), np.empty(0))
        later = [*parts[1:], parts[0]]
        begun = score([beginning for beginning, _ in parts])
        own = score([beginning + rest for beginning, rest in parts])
        others = score([beginning + rest for (beginning, _), (_, rest) in zip(parts, later, strict=True)])
        losses = np.array([[*map(_loss, begun, whole)] for whole in (own, others)])
        finite = losses[:, np.isfinite(losses).all(axis=0)]
        return cls(finite[0], finite[1])

    @property
    def gain(self) -> NDArray[np.float64]:
        """How much likelier the own continuation is, nats per token."""
        return self.others - self.own

    @property
    def by_heart(self) -> int:
        """Documents whose own continuation is known by heart, and no other one behind the same beginning."""
        return int(((self.own <= BY_HEART) & (self.others > BY_HEART)).sum())

    def values(self, name: str) -> dict[str, MetricValue]:
        """Return the figures, each under its name with this one before it."""
        count = len(self.own)
        return {
            f"{name}documents": count,
            f"{name}by_heart": self.by_heart if count else None,
            **figure(f"{name}gain", float(self.gain.mean()) if count else None, bootstrap.of_mean(self.gain), 3),
        }


def contamination(subject: EvaluationInput) -> MetricResult:
    """Own continuations against other documents', under the public model. INTERNAL: it reads private documents."""
    private = subject.require_documents()
    if subject.score is None:
        raise ValueError("this metric needs a public model")
    found = Continuations.of(subject.score, sample(private(), MOST))
    known, fresh = (Continuations.of(subject.score, passages) for passages in (KNOWN, FRESH))
    low, high = wilson(found.by_heart, len(found.own)) if len(found.own) else (None, None)
    return MetricResult(
        name="contamination",
        exposure="internal",
        values={
            **found.values(""),
            "by_heart_low": rounded(low, 4),
            "by_heart_high": rounded(high, 4),
            **known.values("known_"),
            **fresh.values("fresh_"),
        },
        source="continuation of a beginning: Carlini et al., 'Quantifying Memorization Across Neural Language Models',"
        " ICLR 2023, by likelihood; why nothing follows without texts of both kinds: Duan et al., 'Do Membership"
        " Inference Attacks Work on Large Language Models?', COLM 2024",
        method=f"of at most {MOST} documents of {BEGINNING + CONTINUATION} words or more, the first {BEGINNING} words"
        f" and the next {CONTINUATION}: nats per token by which the own continuation is likelier than another's"
        f" behind the same beginning; by heart: at most {BY_HEART} nats per token, and the other's not; the same of"
        f" {len(KNOWN)} passages that models have read and {len(FRESH)} that none has; score interval;"
        f" {bootstrap.METHOD}",
        line=_line(found, known, fresh),
    )


def _line(found: Continuations, known: Continuations, fresh: Continuations) -> str:
    if not len(found.own):
        return f"not measured: fewer than two documents have {BEGINNING + CONTINUATION} words"
    told = f"{found.by_heart} of {len(found.own)} documents are known by heart"
    gains = ", ".join(
        f"{rounded(float(part.gain.mean()), 2) if len(part.gain) else 'none'} {name}"
        for name, part in (("here", found), ("known", known), ("fresh", fresh))
    )
    judged = (
        f"of {len(known.own)} passages that models have read, {known.by_heart}"
        if known.by_heart
        else f"which says nothing: of {len(known.own)} passages that it must have read, it recites none"
    )
    return f"{told}; {judged}; gain of the own continuation: {gains} (nats per token)"


def _cut(text: str) -> tuple[str, str]:
    """Return the first words, and the next ones with a space before them."""
    words = text.split()
    return " ".join(words[:BEGINNING]), " " + " ".join(words[BEGINNING : BEGINNING + CONTINUATION])


Score = tuple[float, int]


def _loss(begun: Score, whole: Score) -> float:
    """Return the nats per token of what follows a beginning; NaN without a token."""
    tokens = whole[1] - begun[1]
    return (begun[0] - whole[0]) / tokens if tokens > 0 else math.nan
