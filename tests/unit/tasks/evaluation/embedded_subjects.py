"""Subjects for metrics that compare points: real-looking texts of several themes, drawn by an ordinary generator."""

from collections.abc import Sequence

import numpy as np

from tasks.evaluation.evaluation_input import EvaluationInput
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import Text

THEMES = ("fever cough flu chills", "budget invoice ledger tax", "pasta basil olive oven", "goal match keeper pitch")


def themed(count: int, seed: int, themes: Sequence[str] = THEMES) -> list[str]:
    """Texts of eight words each, every one of a theme."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(themes[generator.integers(len(themes))].split(), size=8)) for _ in range(count)]


def subject(released: Sequence[str], documents: Sequence[str], embed: Letters | None = None) -> EvaluationInput:
    return EvaluationInput([Text(text) for text in released], documents=lambda: documents, embed=embed or Letters())


def number(value: object) -> float:
    assert isinstance(value, str)
    return float(value)
