"""Topics of the corpus that the released texts reach, and their proportions."""

import math

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.clustering.kmeans import k_means, nearest_centre
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, figure, sides
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.results import MetricResult, MetricValue, rounded

_RESAMPLES = 1000

Topics = NDArray[np.int64]
"""int64 [n]: the topic of each text."""


def topics(subject: EvaluationInput) -> MetricResult:
    """Coverage and overlap of topics. INTERNAL: topics are clusters of private documents. Null without either side."""
    texts = sides(subject)
    values: dict[str, MetricValue] = {
        "texts": len(texts.texts) if texts else 0,
        "documents": len(texts.documents) if texts else 0,
        "topics": None,
        "reached": None,
        **figure("coverage", None, None),
        "corpus": None,
        **figure("overlap", None, None),
    }
    if texts:
        centres = k_means(texts.private, how_many(len(texts.private)), seed=0)
        values |= _measure(nearest_centre(texts.released, centres), nearest_centre(texts.private, centres))
    return MetricResult(
        name="topics",
        exposure="internal",
        values=values,
        source="topics as clusters of embeddings: Grootendorst, 'BERTopic', arXiv:2203.05794, section 3; their overlap"
        " as a measure of utility: URANIA, section 5.1",
        method=f"{texts.embedder if texts else 'embeddings'}; {READ}; k-means of the documents into the square root of"
        " their number of topics; coverage: share of topics with a text; corpus: the share that as many documents,"
        " drawn with replacement, would reach on average; overlap: 1 minus the total variation of both histograms; 95 %"
        f" intervals: {_RESAMPLES} resamples of texts and documents, laid around the figure",
        line=f"{values['reached']} of {values['topics']} topics reached, overlap {values['overlap']}"
        if texts
        else "nothing to compare",
    )


def how_many(documents: int) -> int:
    """Return the rounded square root."""
    return max(1, round(math.sqrt(documents)))


def _measure(released: Topics, private: Topics) -> dict[str, MetricValue]:
    used, private = np.unique(private, return_inverse=True)
    place = {int(topic): number for number, topic in enumerate(used)}
    # A centre without documents is no topic, but it may stand nearest to a text: that text is in none of them.
    released = np.array([place.get(int(topic), len(used)) for topic in released])

    def covered(topics: Topics) -> float:
        return float(np.count_nonzero(np.bincount(topics, minlength=len(used) + 1)[:-1]) / len(used))

    def shared(topics: Topics, others: Topics) -> float:
        p, q = (np.bincount(side, minlength=len(used) + 1) / len(side) for side in (topics, others))
        return float(np.minimum(p, q).sum())

    coverage, overlap = covered(released), shared(released, private)
    sizes = len(released), len(private)
    chance = (1 - (1 - np.bincount(private) / len(private)) ** len(released)).mean()
    return {
        "topics": len(used),
        "reached": round(coverage * len(used)),
        **_share_figure("coverage", coverage, bootstrap.around(coverage, *sizes, lambda a, b: covered(released[a]))),
        "corpus": rounded(float(chance), 4),
        **_share_figure(
            "overlap", overlap, bootstrap.around(overlap, *sizes, lambda a, b: shared(released[a], private[b]))
        ),
    }


def _share_figure(name: str, value: float, interval: tuple[float, float] | None) -> dict[str, MetricValue]:
    return figure(name, value, interval and (interval[0], min(1.0, interval[1])))
