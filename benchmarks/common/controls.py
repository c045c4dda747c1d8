"""Controls: what a figure is for a system that has nothing of the data.

A conclusion of a results page names one of these, or one of the systems that read no private text, and an interval:

    own and others    a text scored with its own group's references and with those of the other groups of its kind; who
                      has nothing of the group scores alike, and prefers its own in half of the cases (`preference`)
    shuffled          the same values, but each at another's place (`rotated`, `shuffled_within`, `permuted`)
    at random         a choice without a look at the data (`picked`, `answers_at_random`)
    the constant      the share that the commonest answer has (`best_constant`)
"""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class OwnAndOthers:
    """A text's score with the references of its own group, and with those of each other group of its kind."""

    own: float
    others: tuple[float, ...]

    @property
    def difference(self) -> float:
        """Own less the mean of the others: 0 in the mean for a text that has nothing of its group."""
        return self.own - sum(self.others) / len(self.others)

    @property
    def preference(self) -> float:
        """The share of the others that score less, ties half: 1/2 in the mean for a text without its group."""
        return preference(self.own, self.others)


def own_and_others(score: Callable[[Group], float], own: Group, kinds: Mapping[Group, str]) -> OwnAndOthers:
    """Score a text with its own group and with every other one of its kind.

    Args:
        score: of the text with the references of a group.
        kinds: of every group, such as the category of a product: what is public is alike within a kind.

    Raises:
        ValueError: the group is alone in its kind.
    """
    others = tuple(score(group) for group, kind in kinds.items() if kind == kinds[own] and group != own)
    if not others:
        raise ValueError(f"{own} has no other group of the kind {kinds[own]} to be compared with")
    return OwnAndOthers(score(own), others)


def preference(own: float, others: Sequence[float]) -> float:
    """Return the share of `others` below `own`, ties half."""
    return sum(1.0 if other < own else 0.5 if other == own else 0.0 for other in others) / len(others)


def rotated(values: Sequence[T]) -> list[T]:
    """Return the same values, each half their number further on: none stays where it was, if there are two or more."""
    half = len(values) // 2
    return [*values[half:], *values[:half]]


def permuted(values: Sequence[T], seed: int) -> list[T]:
    """Return the same values in a random order."""
    return random.Random(seed).sample(values, len(values))


def shuffled_within(groups: NDArray[Any], seed: int) -> NDArray[Any]:
    """Return an array [groups, texts, places] whose values are at the same places in other texts of their group.

    Each place is shuffled by itself, so what a group has at a place stays, and what stood together does not.
    """
    return np.asarray(np.random.default_rng(seed).permuted(groups, axis=1))


def picked(values: Sequence[T], count: int, seed: int | str) -> list[T]:
    """Return so many of the values, or all if there are fewer, without a look at what they are; each once."""
    return random.Random(seed).sample(values, min(count, len(values)))


def answers_at_random(count: int, answers: int, seed: int) -> list[int]:
    """Return an answer for each of so many questions, each of the answers equally likely."""
    source = random.Random(seed)
    return [source.randrange(answers) for _ in range(count)]


def best_constant(labels: Sequence[Hashable]) -> float:
    """Return the share that is right if every answer is the commonest label."""
    return max(Counter(labels).values()) / len(labels)
