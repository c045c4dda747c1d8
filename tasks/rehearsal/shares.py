"""Share of the way from the public model to no privacy, by one metric, with a bootstrap interval.

For a metric's closeness to held-out documents s, the share is (s_request - s_public) / (s_nonprivate - s_public). Texts
of each release and the documents are resampled independently (percentile bootstrap; Efron and Tibshirani, 1993, section
13.3), from an ordinary generator with a fixed start: everything here is public. Where the interval of the denominator
includes zero, the metric cannot distinguish the two references, and there is no share; where it lies below zero, texts
without privacy are worse by this metric than the public model's own, and there is no way to go.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core.bootstrap import Picks
from tasks.evaluation.core.intervals import CONFIDENCE
from tasks.rehearsal.result import MetricName, MetricShare

PUBLIC_ONLY, REQUEST, NON_PRIVATE = "public_only", "request", "non_private"
RELEASES = (PUBLIC_ONLY, REQUEST, NON_PRIVATE)
"""The three releases of a rehearsal, in the order of a measure's numbers."""
RESAMPLES = 300
NOT_DISTINGUISHED = "it cannot distinguish them here"
REFERENCE_WORSE = "without privacy the texts are further from the corpus than the public model's"


class Measure(Protocol):
    """One metric of the three releases against the same held-out documents."""

    @property
    def name(self) -> MetricName:
        """The metric's name in results."""

    @property
    def sizes(self) -> Sequence[int]:
        """Number of texts of each release that can be measured."""

    @property
    def documents(self) -> int:
        """Number of held-out documents."""

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        """Return the metric of a resample of one release and of the documents."""

    def closeness(self, value: float) -> float:
        """Return how close to the documents a value is; larger is closer."""


def measure_share(measure: Measure) -> MetricShare:
    """Return the metric's figures and the share of the way."""
    every = np.arange(measure.documents)
    values = [measure.value(number, np.arange(size), every) for number, size in enumerate(measure.sizes)]
    low, value, high = (format(one, ".4f") for one in values)
    figures = MetricShare(metric=measure.name, public_only=low, request=value, non_private=high)
    resamples = _resampled(measure)
    way, made = resamples[:, 2] - resamples[:, 0], resamples[:, 1] - resamples[:, 0]
    least, most = _ends(way)
    near = [measure.closeness(one) for one in values]
    if least <= 0 <= most or near[2] == near[0]:
        return figures.model_copy(update={"reason": NOT_DISTINGUISHED})
    if most < 0:
        return figures.model_copy(update={"reason": REFERENCE_WORSE})
    share = (near[1] - near[0]) / (near[2] - near[0])
    ends = _ends(made[way > 0] / way[way > 0])
    percent = [round(100 * max(min(one, 9999.0), -9999.0)) for one in (share, min(*ends, share), max(*ends, share))]
    return figures.model_copy(update={"share": percent[0], "low": percent[1], "high": percent[2]})


def _resampled(measure: Measure) -> NDArray[np.float64]:
    """Return the closeness of each release in each resample, float64 [RESAMPLES, 3]."""
    generator = np.random.default_rng(0)
    rows = np.empty((RESAMPLES, len(RELEASES)))
    for row in rows:
        documents = generator.integers(measure.documents, size=measure.documents)
        for number, size in enumerate(measure.sizes):
            row[number] = measure.closeness(measure.value(number, generator.integers(size, size=size), documents))
    return rows


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
