"""Metrics of whole distributions: Fréchet distance, MAUVE, topics, and a classifier trained on the release."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.clustering.kmeans import k_means, nearest_centre, principal
from tasks.evaluation import intervals
from tasks.evaluation.algorithms import (
    CORAL_WEIGHT,
    SCALING,
    Classes,
    fit_softmax,
    frontier_area,
    macro_f1,
    plain_histogram,
    smoothed_histogram,
)
from tasks.evaluation.evaluation_input import (
    MOST,
    READ,
    EvaluationInput,
    MatchedTexts,
    embedder_of,
    figure,
    points,
    sample,
    sides,
)
from tasks.evaluation.intervals import wilson
from tasks.text.public_models import Points
from tasks.values.results import MetricResult, MetricValue, rounded

_FRECHET_RESAMPLES = 100


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
        value = frechet_distance(released, private)
        interval = intervals.around(
            value,
            count,
            count,
            lambda some, others: frechet_distance(released[some], private[others]),
            _FRECHET_RESAMPLES,
        )
        corpus = None if matched.others is None else frechet_distance(matched.others, private)
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
        f" 95 % interval: {_FRECHET_RESAMPLES} resamples of both sides, laid around the figure; corpus: other documents"
        " in place of the texts",
        line="nothing to compare" if values["frechet"] is None else f"distance {values['frechet']}{beside}",
    )


def frechet_distance(first: Points, second: Points) -> float:
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


CLUSTERINGS = 5
_VARIANCE = 0.9
_MAUVE_RESAMPLES = 300

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
    values |= _measure_mauve(matched) if matched and count > 1 else _null_figures()
    return MetricResult(
        name="mauve",
        exposure="internal",
        values=values,
        source="Pillutla et al., NeurIPS 2021, and JMLR 24, 2023, for MAUVE*; bins and scaling as InvisibleInk,"
        " appendix D.4",
        method=f"{texts.embedder if texts else 'embeddings'}; as many texts as documents, {READ}; principal directions"
        f" with {_VARIANCE:.0%} of the variance; k-means with a bin for every 20 texts; scaling {SCALING}; mean of"
        f" {CLUSTERINGS} clusterings; 95 % interval: {_MAUVE_RESAMPLES} resamples of texts and documents in fixed bins,"
        " laid around the figure; corpus: other documents in place of the texts",
        line=_mauve_summary_line(values),
    )


def mauve_bins(count: int) -> int:
    """Return the number of bins: one for every 20 texts of each side, at least 2."""
    return max(2, round(count / 20))


def quantised(first: Points, second: Points, count: int) -> tuple[Labels, Labels]:
    """Return the bins of both sides under each of several clusterings of all points together."""
    together = principal(np.concatenate([first, second]), _VARIANCE)
    labels = np.stack([nearest_centre(together, k_means(together, count, seed)) for seed in range(CLUSTERINGS)])
    return labels[:, : len(first)], labels[:, len(first) :]


def _measure_mauve(matched: MatchedTexts) -> dict[str, MetricValue]:
    count = mauve_bins(len(matched.released))
    released, private = quantised(matched.released, matched.private, count)
    corpus = None
    if matched.others is not None:
        corpus = mauve_area(*quantised(matched.others, matched.private, count), count)
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
    value = mauve_area(released, private, count, starred=starred)
    interval = intervals.around(
        value,
        released.shape[1],
        private.shape[1],
        lambda some, others: mauve_area(released[:, some], private[:, others], count, starred=starred),
        _MAUVE_RESAMPLES,
    )
    return figure(name, value, interval and (interval[0], min(1.0, interval[1])))


def mauve_area(released: Labels, private: Labels, count: int, *, starred: bool = False) -> float:
    """Return the area under the frontier of both sides, mean over clusterings."""
    shape = smoothed_histogram if starred else plain_histogram
    p, q = (shape(np.stack([np.bincount(row, minlength=count) for row in side])) for side in (private, released))
    return float(frontier_area(p, q).mean())


def _mauve_summary_line(values: dict[str, MetricValue]) -> str:
    if values["mauve"] is None:
        return "nothing to compare"
    beside = "" if values["corpus"] is None else f", other documents score {values['corpus']}"
    return f"MAUVE {values['mauve']} [{values['mauve_low']}, {values['mauve_high']}]{beside}"


_TOPIC_RESAMPLES = 1000

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
        centres = k_means(texts.private, number_of_topics(len(texts.private)), seed=0)
        values |= _measure_topics(nearest_centre(texts.released, centres), nearest_centre(texts.private, centres))
    return MetricResult(
        name="topics",
        exposure="internal",
        values=values,
        source="topics as clusters of embeddings: Grootendorst, 'BERTopic', arXiv:2203.05794, section 3; their overlap"
        " as a measure of utility: URANIA, section 5.1",
        method=f"{texts.embedder if texts else 'embeddings'}; {READ}; k-means of the documents into the square root of"
        " their number of topics; coverage: share of topics with a text; corpus: the share that as many documents,"
        " drawn with replacement, would reach on average; overlap: 1 minus the total variation of both histograms; 95 %"
        f" intervals: {_TOPIC_RESAMPLES} resamples of texts and documents, laid around the figure",
        line=f"{values['reached']} of {values['topics']} topics reached, overlap {values['overlap']}"
        if texts
        else "nothing to compare",
    )


def number_of_topics(documents: int) -> int:
    """Return the rounded square root."""
    return max(1, round(math.sqrt(documents)))


def _measure_topics(released: Topics, private: Topics) -> dict[str, MetricValue]:
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
        **_share_figure("coverage", coverage, intervals.around(coverage, *sizes, lambda a, b: covered(released[a]))),
        "corpus": rounded(float(chance), 4),
        **_share_figure(
            "overlap", overlap, intervals.around(overlap, *sizes, lambda a, b: shared(released[a], private[b]))
        ),
    }


def _share_figure(name: str, value: float, interval: tuple[float, float] | None) -> dict[str, MetricValue]:
    return figure(name, value, interval and (interval[0], min(1.0, interval[1])))


_SYSTEMS = ("synthetic", "coral", "real")


@dataclass(frozen=True)
class Labelled:
    """Points with their classes."""

    rows: Points = field(repr=False)
    classes: Classes = field(repr=False)

    def __getitem__(self, part: slice) -> "Labelled":
        """Return a slice of the examples."""
        return Labelled(self.rows[part], self.classes[part])

    @property
    def learnable(self) -> bool:
        """Return whether there are at least two classes."""
        return len(np.unique(self.classes)) > 1


def train_on_synthetic(subject: EvaluationInput) -> MetricResult:
    """Accuracy and macro-F1 on documents that no classifier has seen. INTERNAL: it reads private documents.

    Aligning with a private target, as Deep CORAL does, is no post-processing (PRIVACY §5); here nothing but
    figures comes of it. Null if texts or documents have no labels, or released texts have fewer than two.
    """
    subject.require_documents()
    released = sample(((text.text, text.label) for text in subject.texts if text.label is not None), MOST)
    labels = sorted({label for _, label in released})
    documents = _documents(subject, labels) if len(labels) > 1 else []
    values: dict[str, MetricValue] = {
        "labels": len(labels),
        "trained_on": len(released),
        "tested_on": len(documents) // 2,
    }
    values |= dict.fromkeys(_figures())
    name = "embeddings"
    if len(documents) > 3:
        embed = embedder_of(subject)
        name = embed.name
        labelled = [
            Labelled(points(embed, [text for text, _ in side]), np.array([labels.index(label) for _, label in side]))
            for side in (released, documents)
        ]
        values |= _measure_accuracy(labelled[0], labelled[1], len(labels))
    return MetricResult(
        name="train_on_synthetic",
        exposure="internal",
        values=values,
        source="train on synthetic, test on real: Esteban, Hyland, Rätsch, arXiv:1706.02633, section 4; Deep CORAL: Sun"
        " and Saenko, ECCV 2016 workshops; both together: DP-KPS",
        method=f"logistic regression (L2, C = 1) on {name}; {READ}; half of the documents with a released label are for"
        " tests; real: trained on as many documents of the other half; coral: trained on the texts with Deep CORAL's"
        f" loss of weight {CORAL_WEIGHT} towards the other half without labels; majority: the commonest label of the"
        " tests; 95 % intervals: of accuracies score intervals; of macro-F1 and of the gap in accuracy"
        f" {intervals.BOOTSTRAP.replace('texts', 'tested documents')}",
        line=_accuracy_summary_line(values),
    )


def _documents(subject: EvaluationInput, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Labelled documents in random order, of the labels that the release has."""
    if subject.labelled is None:
        return []
    documents = sample((pair for pair in subject.labelled() if pair[1] in labels), MOST)
    return [documents[number] for number in np.random.default_rng(0).permutation(len(documents))]


def _measure_accuracy(released: Labelled, documents: Labelled, count: int) -> dict[str, MetricValue]:
    half = len(documents.rows) // 2
    tests, others = documents[:half], documents[half:]
    real = others[: len(released.rows)]
    predictions = {
        "synthetic": fit_softmax(released.rows, released.classes, count)(tests.rows),
        "coral": fit_softmax(released.rows, released.classes, count, others.rows)(tests.rows),
    }
    if real.learnable:
        predictions["real"] = fit_softmax(real.rows, real.classes, count)(tests.rows)
    values: dict[str, MetricValue] = {}
    for system, classes in predictions.items():
        values |= _scores(system, tests.classes, classes, count)
    if "real" in predictions:
        gains = (predictions["real"] == tests.classes).astype(float) - (predictions["synthetic"] == tests.classes)
        values |= figure("gap", float(gains.mean()), intervals.of_mean(gains))
    values["majority"] = rounded(float(np.bincount(tests.classes).max() / half), 4)
    return values


def _scores(system: str, true: Classes, predicted: Classes, count: int) -> dict[str, MetricValue]:
    right = int((true == predicted).sum())
    f1 = intervals.of_statistic(len(true), lambda picks: macro_f1(true[picks], predicted[picks], count))
    return {
        **figure(f"{system}_accuracy", right / len(true), wilson(right, len(true))),
        **figure(f"{system}_macro_f1", macro_f1(true, predicted, count), f1),
    }


def _figures() -> list[str]:
    names = [f"{system}_{score}" for system in _SYSTEMS for score in ("accuracy", "macro_f1")]
    return [key for name in [*names, "gap"] for key in figure(name, None, None)] + ["majority"]


def _accuracy_summary_line(values: dict[str, MetricValue]) -> str:
    if values["synthetic_accuracy"] is None:
        return "no labels to learn from, or too few documents that carry them"
    real = "" if values["real_accuracy"] is None else f", on real documents {values['real_accuracy']}"
    return (
        f"trained on the release {values['synthetic_accuracy']}, with Deep CORAL {values['coral_accuracy']}{real}"
        f" right of {values['tested_on']}"
    )
