"""Train on the release, test on the corpus: accuracy of a classifier of released texts and labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tasks.evaluation.algorithms.logistic_regression import CORAL_WEIGHT, Classes, fit, macro_f1
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import MOST, READ, embedder_of, figure, points
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.core.subsample import sample
from tasks.text.interfaces import Points
from tasks.values.results import MetricResult, MetricValue, rounded

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
        values |= _measure(labelled[0], labelled[1], len(labels))
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
        f" {bootstrap.METHOD.replace('texts', 'tested documents')}",
        line=_summary_line(values),
    )


def _documents(subject: EvaluationInput, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Labelled documents in random order, of the labels that the release has."""
    if subject.labelled is None:
        return []
    documents = sample((pair for pair in subject.labelled() if pair[1] in labels), MOST)
    return [documents[number] for number in np.random.default_rng(0).permutation(len(documents))]


def _measure(released: Labelled, documents: Labelled, count: int) -> dict[str, MetricValue]:
    half = len(documents.rows) // 2
    tests, others = documents[:half], documents[half:]
    real = others[: len(released.rows)]
    predictions = {
        "synthetic": fit(released.rows, released.classes, count)(tests.rows),
        "coral": fit(released.rows, released.classes, count, others.rows)(tests.rows),
    }
    if real.learnable:
        predictions["real"] = fit(real.rows, real.classes, count)(tests.rows)
    values: dict[str, MetricValue] = {}
    for system, classes in predictions.items():
        values |= _scores(system, tests.classes, classes, count)
    if "real" in predictions:
        gains = (predictions["real"] == tests.classes).astype(float) - (predictions["synthetic"] == tests.classes)
        values |= figure("gap", float(gains.mean()), bootstrap.of_mean(gains))
    values["majority"] = rounded(float(np.bincount(tests.classes).max() / half), 4)
    return values


def _scores(system: str, true: Classes, predicted: Classes, count: int) -> dict[str, MetricValue]:
    right = int((true == predicted).sum())
    f1 = bootstrap.of_statistic(len(true), lambda picks: macro_f1(true[picks], predicted[picks], count))
    return {
        **figure(f"{system}_accuracy", right / len(true), wilson(right, len(true))),
        **figure(f"{system}_macro_f1", macro_f1(true, predicted, count), f1),
    }


def _figures() -> list[str]:
    names = [f"{system}_{score}" for system in _SYSTEMS for score in ("accuracy", "macro_f1")]
    return [key for name in [*names, "gap"] for key in figure(name, None, None)] + ["majority"]


def _summary_line(values: dict[str, MetricValue]) -> str:
    if values["synthetic_accuracy"] is None:
        return "no labels to learn from, or too few documents that carry them"
    real = "" if values["real_accuracy"] is None else f", on real documents {values['real_accuracy']}"
    return (
        f"trained on the release {values['synthetic_accuracy']}, with Deep CORAL {values['coral_accuracy']}{real}"
        f" right of {values['tested_on']}"
    )
