"""Metrics of a rehearsal, and the share of the way from the public model to no privacy that each one shows.

Share of the way from the public model to no privacy, by one metric, with a bootstrap interval. For a metric's closeness
to held-out documents s, the share is (s_request - s_public) / (s_nonprivate - s_public). Texts of each release and the
documents are resampled independently (percentile bootstrap; Efron and Tibshirani, 1993, section 13.3), from an ordinary
generator with a fixed start: everything here is public. Where the interval of the denominator includes zero, the metric
cannot distinguish the two references, and there is no share; where it lies below zero, texts without privacy are worse
by this metric than the public model's own, and there is no way to go.

Metrics of a rehearsal: MAUVE, coverage, the perplexity gap, and a classifier where texts have labels. They are the
internal metrics of docs/metrics.md, here of public data: three releases of equal size against one hold-out, in bins,
balls and documents that are the same for all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.algorithms import Classes, fit_softmax
from tasks.evaluation.distributions import Labels, mauve_area, mauve_bins, quantised
from tasks.evaluation.evaluation_input import Scorer, points
from tasks.evaluation.intervals import CONFIDENCE, Picks
from tasks.evaluation.model_based import NegativeLogLikelihood
from tasks.evaluation.neighbours import NEAREST_DENSE, Distances, radii
from tasks.rehearsal.result import MetricName, MetricShare
from tasks.text.public_models import Embedder, Points

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


FEWEST_MEASURED = 2
"""Texts of each release, and documents, that a bootstrap needs."""


class _HigherIsCloser:
    def closeness(self, value: float) -> float:
        """Return the value: larger is closer."""
        return value


@dataclass(frozen=True)
class PerplexityGap:
    """Nats per token of the texts minus those of the documents, under the public model; 0 is like the documents."""

    releases: Sequence[NegativeLogLikelihood]
    held_out: NegativeLogLikelihood

    name: ClassVar[MetricName] = "perplexity_gap"

    @classmethod
    def of(cls, releases: Sequence[Sequence[str]], held_out: Sequence[str], score: Scorer) -> "PerplexityGap | None":
        """Score all texts; None if a release has fewer than two that can be scored."""
        *scored, documents = (NegativeLogLikelihood.of(score, texts) for texts in (*releases, held_out))
        few = any(one.scored < FEWEST_MEASURED for one in (*scored, documents))
        return None if few else cls(scored, documents)

    @property
    def sizes(self) -> Sequence[int]:
        """Scored texts of each release."""
        return [one.scored for one in self.releases]

    @property
    def documents(self) -> int:
        """Scored documents."""
        return self.held_out.scored

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        """Return the gap in nats per token."""
        return self.releases[release].over(texts) - self.held_out.over(documents)

    def closeness(self, value: float) -> float:
        """Return how near to zero the gap is."""
        return -abs(value)


@dataclass(frozen=True)
class Mauve(_HigherIsCloser):
    """MAUVE in bins of all texts and documents together."""

    releases: Sequence[Labels] = field(repr=False)
    held_out: Labels = field(repr=False)
    count: int

    name: ClassVar[MetricName] = "mauve"

    @classmethod
    def of(cls, releases: Sequence[Points], held_out: Points) -> "Mauve":
        """Put everything into bins, one for every 20 texts of a release."""
        count = mauve_bins(len(releases[0]))
        texts, documents = quantised(np.concatenate(releases), held_out, count)
        ends = np.cumsum([len(one) for one in releases])[:-1]
        return cls(np.split(texts, ends, axis=1), documents, count)

    @property
    def sizes(self) -> Sequence[int]:
        """Texts of each release."""
        return [one.shape[1] for one in self.releases]

    @property
    def documents(self) -> int:
        """Documents."""
        return int(self.held_out.shape[1])

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        """Return MAUVE, 0 to 1."""
        return mauve_area(self.releases[release][:, texts], self.held_out[:, documents], self.count)


@dataclass(frozen=True)
class Coverage(_HigherIsCloser):
    """Share of documents that some text reaches, each within its distance to its 5th nearest document.

    Attributes:
        reached: bool [texts, documents], for each release.
    """

    reached: Sequence[NDArray[np.bool_]] = field(repr=False)

    name: ClassVar[MetricName] = "coverage"

    @classmethod
    def of(cls, releases: Sequence[Points], held_out: Points) -> "Coverage":
        """Compare all texts with all documents."""
        from scipy.spatial.distance import cdist  # slow to import

        own: Distances = radii(cdist(held_out, held_out), NEAREST_DENSE)
        return cls([cdist(texts, held_out) <= own for texts in releases])

    @property
    def sizes(self) -> Sequence[int]:
        """Texts of each release."""
        return [len(one) for one in self.reached]

    @property
    def documents(self) -> int:
        """Documents."""
        return int(self.reached[0].shape[1])

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        """Return the share, 0 to 1."""
        reached = np.asarray(self.reached[release][texts].any(0))
        return float(reached[documents].mean())


@dataclass(frozen=True)
class Accuracy(_HigherIsCloser):
    """Share of documents that a logistic regression, trained on the texts and their labels, labels right."""

    releases: Sequence[Points] = field(repr=False)
    classes: Classes = field(repr=False)
    held_out: Points = field(repr=False)
    true: Classes = field(repr=False)
    count: int

    name: ClassVar[MetricName] = "accuracy"

    @property
    def sizes(self) -> Sequence[int]:
        """Texts of each release."""
        return [len(one) for one in self.releases]

    @property
    def documents(self) -> int:
        """Documents."""
        return len(self.true)

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        """Return the accuracy, 0 to 1; the classifier is trained again on every resample of texts."""
        model = fit_softmax(self.releases[release][texts], self.classes[texts], self.count)
        return float((model(self.held_out[documents]) == self.true[documents]).mean())


def cut_documents(documents: Sequence[str], releases: Sequence[Sequence[str]]) -> list[str]:
    """Return the documents cut, between words, to the length of the longest text of all releases.

    Texts have a limit of tokens and documents have none: whole documents would be easier to predict, per token, and
    would be about more, for a reason that has nothing to do with privacy.
    """
    most = max((len(text) for texts in releases for text in texts), default=0)
    return [_beginning(document, most) for document in documents]


def _beginning(document: str, most: int) -> str:
    if len(document) <= most:
        return document
    words, _, _ = document[: most + 1].rpartition(" ")
    return words or document[:most]


def embedded_measures(
    releases: Sequence[Sequence[str]],
    held_out: Sequence[str],
    labels_of_texts: Sequence[str | None],
    labels_of_documents: Sequence[str | None],
    embed: Embedder,
) -> list[Mauve | Coverage | Accuracy]:
    """Return the metrics in embedding space.

    Args:
        labels_of_texts: the labels of the texts of every release, in their order; None without labels.
    """
    rows, documents = [points(embed, texts) for texts in releases], points(embed, held_out)
    measures: list[Mauve | Coverage | Accuracy] = [Mauve.of(rows, documents), Coverage.of(rows, documents)]
    names = sorted({label for label in labels_of_texts if label is not None})
    if len(names) > 1 and all(len(texts) == len(labels_of_texts) for texts in releases):
        classes, true = (
            np.array([names.index(label) for label in labels if label is not None], np.int64)
            for labels in (labels_of_texts, labels_of_documents)
        )
        measures.append(Accuracy(rows, classes, documents, true, len(names)))
    return measures
