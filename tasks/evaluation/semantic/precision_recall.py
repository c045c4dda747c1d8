"""Precision and density of released texts, recall and coverage of documents."""

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, MatchedTexts, figure, sides
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.results import MetricResult, MetricValue

NEAREST = 3
"""k of precision and recall, as Kynkäänniemi et al. recommend."""

NEAREST_DENSE = 5
"""k of density and coverage, as Naeem et al. recommend."""

Distances = NDArray[np.float64]


def precision_recall(subject: EvaluationInput) -> MetricResult:
    """Compare as many texts as documents. INTERNAL: it reads private documents. Null below six on either side."""
    texts = sides(subject)
    matched = texts.matched() if texts else None
    count = len(matched.released) if matched else 0
    values: dict[str, MetricValue] = {"texts": count, "documents": count}
    values |= _measure(matched) if matched and count > NEAREST_DENSE else _null_figures()
    summary = f"precision {values['precision']}, recall {values['recall']}, coverage {values['coverage']}"
    return MetricResult(
        name="precision_recall",
        exposure="internal",
        values=values,
        source="Kynkäänniemi et al., 'Improved Precision and Recall Metric for Assessing Generative Models', NeurIPS"
        " 2019, section 2; density and coverage: Naeem et al., 'Reliable Fidelity and Diversity Metrics for Generative"
        " Models', ICML 2020, section 3",
        method=f"{texts.embedder if texts else 'embeddings'}; as many texts as documents, {READ}; balls around each"
        f" point up to its k-th nearest of its own side, k = {NEAREST}, for density and coverage {NEAREST_DENSE}; 95 %"
        " intervals: score intervals of shares, for density a bootstrap over texts, all with the balls as they are",
        line="nothing to compare" if values["precision"] is None else summary,
    )


def _measure(matched: MatchedTexts) -> dict[str, MetricValue]:
    from scipy.spatial.distance import cdist  # slow to import, and registries are read by every request

    across = cdist(matched.released, matched.private)
    private, released = (cdist(side, side) for side in (matched.private, matched.released))
    inside = across <= radii(private, NEAREST)
    around = across <= radii(released, NEAREST)[:, None]
    dense = across <= radii(private, NEAREST_DENSE)
    density = dense.sum(1) / NEAREST_DENSE
    return {
        **_share("precision", inside.any(1)),
        **_share("recall", around.any(0)),
        **figure("density", float(density.mean()), bootstrap.of_mean(density)),
        **_share("coverage", dense.any(0)),
    }


def radii(own: Distances, nearest: int) -> Distances:
    """Return float64 [n]: how far each point's `nearest`-th neighbour on its own side is, itself not counted."""
    return np.asarray(np.partition(own, nearest, axis=1)[:, nearest], np.float64)


def _share(name: str, hits: NDArray[np.bool_]) -> dict[str, MetricValue]:
    return figure(name, float(hits.mean()), wilson(int(hits.sum()), len(hits)))


def _null_figures() -> dict[str, MetricValue]:
    return {key: None for name in ("precision", "recall", "density", "coverage") for key in figure(name, None, None)}
