"""`in_context`: accuracy of a public model on documents, after a few released texts with their labels.

Tables on five public tasks, at several numbers of demonstrations, are made by `tasks.evaluation.in_context`; this is
the same measurement for whatever labels a release has.
"""

from collections.abc import Sequence

from tasks.evaluation.evaluation_input import EvaluationInput, Learner, Pair, figure, sample
from tasks.values.results import MetricResult, MetricValue, rounded

ITEMS = 60
SHOTS = 4
SEEDS = range(3)


def in_context(subject: EvaluationInput) -> MetricResult:
    """Calibrated accuracy with 4 demonstrations, over 3 choices of them. INTERNAL: it asks about private documents.

    Null if texts or documents have no labels, or the released ones are all alike.
    """
    subject.require_documents()
    pool = [(text.text, text.label) for text in subject.texts if text.label is not None and text.text.strip()]
    labels = sorted({label for _, label in pool})
    items = _items(subject, labels) if len(labels) > 1 else []
    shots = min(SHOTS, len(pool))
    values: dict[str, MetricValue] = {"labels": len(labels), "tested_on": len(items), "shots": shots}
    values |= {**figure("accuracy", None, None), **figure("zero_shot", None, None), "chance": None}
    note, model = "not measured", "a public model"
    if items:
        learn = _learner(subject)
        model = learn.name
        few, none = learn(items, pool, shots, SEEDS)
        values |= {
            **figure("accuracy", few.mean(), few.item_interval()),
            **figure("zero_shot", none.mean(), none.item_interval()),
            "chance": rounded(few.chance, 4),
        }
        note = f"{few.mean():.0%} right with {shots} demonstrations, {none.mean():.0%} with none"
    return MetricResult(
        name="in_context",
        exposure="internal",
        values=values,
        source="Bhusal et al., private ICL, section 5 and table 2; contextual calibration: Zhao et al., ICML 2021",
        method=f"{model}; at most {ITEMS} documents with a released label, {SHOTS} released texts in each prompt, mean"
        f" of {len(SEEDS)} choices of them by fixed ordinary starts, calibrated; chance: the best constant answer; 95 %"
        " score intervals over documents",
        line=note,
    )


def _items(subject: EvaluationInput, labels: Sequence[str]) -> list[Pair]:
    if subject.labelled is None:
        return []
    return sample((pair for pair in subject.labelled() if pair[1] in labels and pair[0].strip()), ITEMS)


def _learner(subject: EvaluationInput) -> Learner:
    if subject.learn is None:
        raise ValueError("labelling needs a public model")
    return subject.learn
