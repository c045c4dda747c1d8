"""Choice of a prompt's demonstrations: public, by a public seed, from publishable texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Literal, TypeAlias

import numpy as np

from models_db.errors import UsageError
from tasks.evaluation.in_context.task_definitions import Task

Choice: TypeAlias = Literal["balanced", "random"]


@dataclass(frozen=True)
class Example:
    """A text and its label: a demonstration, or a test item."""

    text: str
    label: str


def _too_few_demonstrations(requested: int, available: int) -> UsageError:
    return UsageError(
        f"{requested} demonstrations are asked for; there are {available} that are not empty.",
        "Ask for fewer shots, or release more texts.",
        {"wanted": requested, "available": available},
        code="TooFewDemonstrations",
    )


def _label_without_demonstration(label: str, requested: int, available: int) -> UsageError:
    return UsageError(
        f"A balanced choice takes {requested} demonstrations of {label!r}; there are {available}.",
        "Ask for fewer shots, choose at random, or release more texts of this label.",
        {"label": label, "wanted": requested, "available": available},
        code="LabelWithoutDemonstration",
    )


def require_labels(task: Task, examples: Sequence[Example]) -> None:
    """Check that a classification knows every label.

    Raises:
        UnknownLabel.
    """
    for example in examples:
        if not task.fills_slots and example.label not in task.words:
            raise UsageError(
                f"The task {task.name!r} has no label {example.label!r}.",
                f"Its labels are {', '.join(task.labels)}.",
                {"task": task.name, "label": example.label, "known": list(task.labels)},
                code="UnknownLabel",
            )


def choose(task: Task, pool: Sequence[Example], shots: int, seed: int, how: Choice | None = None) -> list[Example]:
    """`shots` different examples of `pool`, in the order they are shown, which is the seed's too.

    Balanced: every label equally often, or once more where they do not divide; with fewer shots than labels, as many
    labels as shots, chosen by the seed. Random: any. Unless told, classification is balanced and slot filling random,
    as in Bhusal et al. (2026, Table 1). A larger choice by the same seed contains the smaller ones. Empty texts are
    passed over. The generator is an ordinary one: everything it chooses among may be shown.

    Raises:
        UnknownLabel, TooFewDemonstrations, LabelWithoutDemonstration.
    """
    require_labels(task, pool)
    usable = [example for example in pool if example.text.strip() and example.label.strip()]
    if shots > len(usable):
        raise _too_few_demonstrations(shots, len(usable))
    generator = np.random.default_rng(seed)
    mixed = [usable[place] for place in generator.permutation(len(usable))]
    balanced = (how or ("random" if task.fills_slots else "balanced")) == "balanced" and not task.fills_slots
    chosen = _balanced(task, mixed, shots, generator) if balanced else mixed[:shots]
    return [chosen[place] for place in generator.permutation(shots)]


def _balanced(task: Task, mixed: Sequence[Example], shots: int, generator: np.random.Generator) -> list[Example]:
    labels = [task.labels[place] for place in generator.permutation(len(task.labels))]
    by_label = [[example for example in mixed if example.label == label] for label in labels]
    for place, label in enumerate(labels):
        quota = shots // len(labels) + (place < shots % len(labels))
        if quota > len(by_label[place]):
            raise _label_without_demonstration(label, quota, len(by_label[place]))
    rounds = chain.from_iterable(zip_longest(*by_label))
    return [example for example in rounds if example is not None][:shots]
