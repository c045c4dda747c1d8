"""Small subjects for metrics: texts, and public tools whose answers can be worked out by hand."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.evaluation_input import Pair
from tasks.evaluation.in_context.result import InContextResult, Run, Score
from tasks.text.public_models import Entity


@dataclass(frozen=True)
class Text:
    text: str
    tokens: int = 0
    complete: bool = True
    label: str | None = None


def texts(*given: str) -> tuple[Text, ...]:
    return tuple(Text(text, len(text.split())) for text in given)


def nats_per_word(each: float):
    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        return [(-each * len(text.split()), len(text.split())) for text in given]

    return score


class Capitals:
    """A tagger by spelling: capitals are PERSON, numbers CARDINAL; words of four letters or more are phrases."""

    name = "capitals 1"

    def __call__(self, given: Sequence[str]) -> list[list[Entity]]:
        return [
            [Entity("CARDINAL" if found.isdigit() else "PERSON", found) for found in re.findall(r"[A-Z]\w*|\d+", text)]
            for text in given
        ]

    def noun_chunks(self, given: Sequence[str]) -> list[list[str]]:
        return [re.findall(r"\w{4,}", text) for text in given]


class Undecided:
    """A judge to whom all answers are the same."""

    name = "undecided 1"

    def __call__(
        self, instruction: str, contents: Sequence[str], question: str, answers: Sequence[str]
    ) -> NDArray[np.float64]:
        return np.zeros((len(contents), len(answers)))


class Half:
    """A learner that labels every other item right, whatever it is shown."""

    name = "half 1"

    def __call__(
        self, items: Sequence[Pair], pool: Sequence[Pair], shots: int, seeds: Sequence[int]
    ) -> tuple[InContextResult, InContextResult]:
        score = Score(len(items), 0, len(items) // 2)
        few = tuple(Run(seed, score, shots, 0, 0) for seed in seeds)
        return InContextResult("t", "few", shots, 1, few), InContextResult("t", "none", 0, 1, (Run(0, score, 0, 0, 0),))
