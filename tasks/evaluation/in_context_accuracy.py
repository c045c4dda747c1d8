"""`in_context`: how well a public model labels documents after it has read a few released texts with their labels.

The full measurement on five public tasks, with its tables, is `tasks.evaluation.in_context`; this is the same idea for
whatever labels a release has, at one number of demonstrations.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation import bootstrap
from tasks.evaluation.embedded import figure
from tasks.evaluation.results import MetricResult, Value, rounded
from tasks.evaluation.sampling import sample
from tasks.evaluation.subject import Judge, Subject

ITEMS = 100
SHOTS = 4
SEEDS = 3
CHARACTERS = 600
"""Of each text that are shown."""

_INSTRUCTION = "Classify each of these texts."
_QUESTION = "Answer:"

Pair = tuple[str, str]
"""A text and its label."""


def in_context(subject: Subject) -> MetricResult:
    """Accuracy with 4 demonstrations, calibrated, over 3 choices of them. INTERNAL: it asks about private documents.

    Null where texts or documents have no labels, or the released ones are all alike.
    """
    if subject.documents is None:
        raise ValueError("an internal metric needs the private documents")
    pool = [(text.text, text.label) for text in subject.texts if text.label is not None and text.text.strip()]
    labels = sorted({label for _, label in pool})
    items = _items(subject, labels) if len(labels) > 1 else []
    values: dict[str, Value] = {"labels": len(labels), "tested_on": len(items), "shots": min(SHOTS, len(pool))}
    values |= {**figure("accuracy", None, None), **figure("zero_shot", None, None), "majority": None}
    told, judge = "not measured", "a public model"
    if items:
        asked = _judge(subject)
        judge = asked.name
        right = np.stack([_right(asked, items, labels, _chosen(pool, labels, seed)) for seed in range(SEEDS)])
        without = _right(asked, items, labels, [])
        majority = max(sum(label == one for _, label in items) for one in labels) / len(items)
        each = right.mean(0)
        values |= {
            **figure("accuracy", float(each.mean()), bootstrap.of_mean(each)),
            **figure("zero_shot", float(without.mean()), bootstrap.of_mean(without)),
            "majority": rounded(majority, 4),
        }
        told = f"{each.mean():.0%} right with {values['shots']} demonstrations, {without.mean():.0%} with none"
    return MetricResult(
        name="in_context",
        exposure="internal",
        values=values,
        source="Bhusal et al., private ICL, section 5 and table 2; contextual calibration: Zhao et al., ICML 2021",
        method=f"{judge}; at most {ITEMS} documents with a released label, {SHOTS} released texts in each prompt,"
        f" balanced over labels by {SEEDS} fixed ordinary starts, texts cut to {CHARACTERS} characters, calibrated;"
        f" mean over the starts; {bootstrap.METHOD.replace('texts', 'documents')}",
        line=told,
    )


def _items(subject: Subject, labels: Sequence[str]) -> list[Pair]:
    if subject.labelled is None:
        return []
    return sample((pair for pair in subject.labelled() if pair[1] in labels), ITEMS)


def _chosen(pool: Sequence[Pair], labels: Sequence[str], seed: int) -> list[Pair]:
    """One text of a label after the other, labels and texts in an order of the seed's."""
    generator = np.random.default_rng(seed)
    left = {label: [pair for pair in pool if pair[1] == label] for label in labels}
    order = [labels[place] for place in generator.permutation(len(labels))]
    chosen: list[Pair] = []
    while len(chosen) < min(SHOTS, len(pool)):
        for label in order:
            if left[label] and len(chosen) < SHOTS:
                chosen.append(left[label].pop(int(generator.integers(len(left[label])))))
    return chosen


def _right(asked: Judge, items: Sequence[Pair], labels: Sequence[str], shown: Sequence[Pair]) -> NDArray[np.float64]:
    """1 for each item that is labelled right, 0 for others: float64 [items]."""
    import torch  # here, because pricing a request knows all metrics and must stay quick

    from tasks.evaluation.in_context.calibration import calibrated_labels, content_free
    from tasks.evaluation.in_context.prompts import CONTENT_FREE

    instruction = "\n\n".join([_INSTRUCTION, *(f"{_shown(text)}\n{_QUESTION} {label}" for text, label in shown)])
    contents = [_shown(text) for text, _ in items] + [_shown(text) for text in CONTENT_FREE]
    scores = torch.from_numpy(asked(instruction, contents, _QUESTION, labels))
    found = calibrated_labels(scores[: len(items)], content_free(scores[len(items) :])).argmax(1)
    return np.array([labels[int(place)] == label for place, (_, label) in zip(found, items, strict=True)], np.float64)


def _shown(text: str) -> str:
    return f"Input: {' '.join(text.split())[:CHARACTERS]}"


def _judge(subject: Subject) -> Judge:
    if subject.judge is None:
        raise ValueError("labelling needs a public model")
    return subject.judge
