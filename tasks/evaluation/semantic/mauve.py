"""MAUVE: distance of the distributions of released texts and corpus, both ways at once."""

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.clustering.kmeans import k_means, nearest_centre, principal
from tasks.evaluation.algorithms.divergence import SCALING, frontier_area, plain, smoothed
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, MatchedTexts, figure, sides
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.interfaces import Points
from tasks.values.results import MetricResult, MetricValue, rounded

CLUSTERINGS = 5
_VARIANCE = 0.9
_RESAMPLES = 300

Labels = NDArray[np.int64]
"""int64 [clusterings, n]: the bin of every text."""


def mauve(subject: EvaluationInput) -> MetricResult:
    """MAUVE and MAUVE* of as many texts as documents. INTERNAL: it reads private documents.

    Null without texts, without documents, or with one alone on either side.
    """
    texts = sides(subject)
    matched = texts.matched() if texts else None
    count = len(matched.released) if matched else 0
    values: dict[str, MetricValue] = {"texts": count, "documents": count}
    values |= _measure(matched) if matched and count > 1 else _null_figures()
    return MetricResult(
        name="mauve",
        exposure="internal",
        values=values,
        source="Pillutla et al., NeurIPS 2021, and JMLR 24, 2023, for MAUVE*; bins and scaling as InvisibleInk,"
        " appendix D.4",
        method=f"{texts.embedder if texts else 'embeddings'}; as many texts as documents, {READ}; principal directions"
        f" with {_VARIANCE:.0%} of the variance; k-means with a bin for every 20 texts; scaling {SCALING}; mean of"
        f" {CLUSTERINGS} clusterings; 95 % interval: {_RESAMPLES} resamples of texts and documents in fixed bins, laid"
        " around the figure; corpus: other documents in place of the texts",
        line=_summary_line(values),
    )


def bins(count: int) -> int:
    """Return the number of bins: one for every 20 texts of each side, at least 2."""
    return max(2, round(count / 20))


def quantised(first: Points, second: Points, count: int) -> tuple[Labels, Labels]:
    """Return the bins of both sides under each of several clusterings of all points together."""
    together = principal(np.concatenate([first, second]), _VARIANCE)
    labels = np.stack([nearest_centre(together, k_means(together, count, seed)) for seed in range(CLUSTERINGS)])
    return labels[:, : len(first)], labels[:, len(first) :]


def _measure(matched: MatchedTexts) -> dict[str, MetricValue]:
    count = bins(len(matched.released))
    released, private = quantised(matched.released, matched.private, count)
    corpus = None
    if matched.others is not None:
        corpus = area(*quantised(matched.others, matched.private, count), count)
    return {
        "bins": count,
        **_with_interval("mauve", released, private, count, starred=False),
        **_with_interval("mauve_star", released, private, count, starred=True),
        "corpus": rounded(corpus, 4),
    }


def _null_figures() -> dict[str, MetricValue]:
    return {"bins": None, **figure("mauve", None, None), **figure("mauve_star", None, None), "corpus": None}


def _with_interval(
    name: str, released: Labels, private: Labels, count: int, *, starred: bool
) -> dict[str, MetricValue]:
    value = area(released, private, count, starred=starred)
    interval = bootstrap.around(
        value,
        released.shape[1],
        private.shape[1],
        lambda some, others: area(released[:, some], private[:, others], count, starred=starred),
        _RESAMPLES,
    )
    return figure(name, value, interval and (interval[0], min(1.0, interval[1])))


def area(released: Labels, private: Labels, count: int, *, starred: bool = False) -> float:
    """Return the area under the frontier of both sides, mean over clusterings."""
    shape = smoothed if starred else plain
    p, q = (shape(np.stack([np.bincount(row, minlength=count) for row in side])) for side in (private, released))
    return float(frontier_area(p, q).mean())


def _summary_line(values: dict[str, MetricValue]) -> str:
    if values["mauve"] is None:
        return "nothing to compare"
    beside = "" if values["corpus"] is None else f", other documents score {values['corpus']}"
    return f"MAUVE {values['mauve']} [{values['mauve_low']}, {values['mauve_high']}]{beside}"
