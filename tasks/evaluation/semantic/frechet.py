"""Frechet distance between two clouds of points, each modelled as a Gaussian."""

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, figure, sides
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.interfaces import Points
from tasks.values.results import MetricResult, MetricValue, rounded

_RESAMPLES = 100


def frechet(subject: EvaluationInput) -> MetricResult:
    """Compare as many texts as documents. INTERNAL: it reads private documents. Null below two on either side."""
    texts = sides(subject)
    matched = texts.matched() if texts else None
    count = len(matched.released) if matched else 0
    values: dict[str, MetricValue] = {
        "texts": count,
        "documents": count,
        **figure("frechet", None, None),
        "corpus": None,
    }
    if matched and count > 1:
        released, private = matched.released, matched.private
        value = distance(released, private)
        interval = bootstrap.around(
            value, count, count, lambda some, others: distance(released[some], private[others]), _RESAMPLES
        )
        corpus = None if matched.others is None else distance(matched.others, private)
        values |= figure("frechet", value, interval) | {"corpus": rounded(corpus, 4)}
    beside = "" if values["corpus"] is None else f", other documents are {values['corpus']} away"
    return MetricResult(
        name="frechet",
        exposure="internal",
        values=values,
        source="Heusel et al., 'GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium',"
        " NeurIPS 2017, section 3 (after Dowson and Landau, 1982); with MiniLM as SynthTextEval",
        method=f"{texts.embedder if texts else 'embeddings'}; as many texts as documents, {READ}; squared distance of"
        " means and covariances (divided by n - 1); it falls with the number of texts, so only equal numbers compare;"
        f" 95 % interval: {_RESAMPLES} resamples of both sides, laid around the figure; corpus: other documents in"
        " place of the texts",
        line="nothing to compare" if values["frechet"] is None else f"distance {values['frechet']}{beside}",
    )


def distance(first: Points, second: Points) -> float:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of two samples of at least two rows each.

    tr (C1 C2)^(1/2) is the sum of the singular values of A'B for any A A' = C1, B B' = C2, and the centred rows
    themselves are such roots: nothing is inverted, so fewer texts than dimensions do no harm.
    """
    roots, means = [], []
    for side in (first, second):
        means.append(side.mean(0))
        roots.append((side - means[-1]) / np.sqrt(len(side) - 1))
    spread = sum(float((root**2).sum()) for root in roots)
    shared = _nuclear_norm(roots[0], roots[1])
    return max(0.0, float(((means[0] - means[1]) ** 2).sum()) + spread - 2 * shared)


def _nuclear_norm(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the sum of the singular values of first second' [n, m]."""
    left, right = _reduce_rows(first), _reduce_rows(second)
    return float(np.linalg.svd(left @ right.T, compute_uv=False).sum())


def _reduce_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most as many rows as columns, with the same products of columns and so the same singular values."""
    count, width = rows.shape
    return np.asarray(np.linalg.qr(rows, mode="r"), np.float64) if count > width else rows
