"""Populations of units whose phrases are correlated as strongly as was planted.

Each of four labels has some topics, each topic some phrases, each phrase a point of length 1. A unit has a hidden
theme: one topic of its label (`topics`), or two (`pairings`). Each of its phrases is of that theme with probability
sqrt(c), and else of any of the label's topics; which topic a phrase is of is as likely whatever c is. So a label tells
as much of single phrases at every c, and two phrases of a unit are of one theme with probability c + (1 - c) / themes.

    topics     a label has topics of its own; single phrases tell it
    pairings   two labels share their topics, as likely in both, and differ only in which of them go together
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LABELS, WIDTH = 4, 128
PER_TOPIC, PER_UNIT = 25, 8
COMMON, OF_LABEL = 0.1, 0.1
"""The cosine that all phrases have, and what those of one group of topics have more."""

Reals = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """What is planted.

    Attributes:
        kind: `topics` or `pairings`.
        strength: c, from 0 (a unit's phrases are independent given its label) to 1 (all of one theme).
        topics: of a label.
        near: the cosine of two phrases of one topic; those of two topics of a label have 0.2.
    """

    kind: str = "topics"
    strength: float = 0.5
    topics: int = 4
    near: float = 0.6

    @property
    def groups(self) -> int:
        """How many sets of topics there are."""
        return LABELS if self.kind == "topics" else LABELS // 2

    @property
    def together(self) -> int:
        """Topics of a theme."""
        return 1 if self.kind == "topics" else 2

    @property
    def themes(self) -> int:
        """Of a label."""
        return self.topics // self.together

    def topics_of(self, label: int) -> Numbers:
        """Its themes one after the other: [themes, topics of a theme]."""
        if self.kind == "topics":
            return (label * self.topics + np.arange(self.topics))[:, None]
        group, other = divmod(label, 2)
        own = np.arange(self.topics).reshape(self.themes, 2)
        if other:  # the second ones go on to the next theme
            own[:, 1] = np.roll(own[:, 1], 1)
        return group * self.topics + own

    def pairs(self, label: int) -> Reals:
        """How likely two phrases of a unit are of two topics: [topics, topics] of all labels together."""
        found = np.zeros((self.groups * self.topics,) * 2)
        for theme in self.topics_of(label):
            found[np.ix_(theme, theme)] = self.strength / self.themes / self.together**2
        own = self.topics_of(label).ravel()
        found[np.ix_(own, own)] += (1 - self.strength) / self.topics**2
        return found


@dataclass(frozen=True)
class Units:
    """Units of one label after the other.

    Attributes:
        label, theme: int64 [n].
        phrases: int64 [n, 8], different ones, in no order.
    """

    label: Numbers
    theme: Numbers
    phrases: Numbers


@dataclass(frozen=True)
class Planted:
    """A vocabulary with points, and as many units as are wanted."""

    world: World
    rng: np.random.Generator

    @cached_property
    def topic_of(self) -> Numbers:
        """Of every phrase: int64 [V]."""
        return np.repeat(np.arange(self.world.groups * self.world.topics), PER_TOPIC)

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """Of every phrase: float32 [V, d] of length 1."""
        world, count = self.world, len(self.topic_of)
        parts = (
            (COMMON, np.zeros(count, np.int64)),
            (OF_LABEL, self.topic_of // world.topics),
            (world.near - COMMON - OF_LABEL, self.topic_of),
            (1 - world.near, np.arange(count)),
        )
        summed = sum(np.sqrt(share) * self._directions(int(of.max()) + 1)[of] for share, of in parts)
        return unit(summed).astype(np.float32)

    def units(self, each: int) -> Units:
        """As many of every label, drawn anew."""
        drawn = [self._of_label(label, each) for label in range(LABELS)]
        theme, phrases = (np.concatenate(part) for part in zip(*drawn, strict=True))
        return Units(np.repeat(np.arange(LABELS), each), theme, phrases)

    def _of_label(self, label: int, each: int) -> tuple[Numbers, Numbers]:
        world, rng = self.world, self.rng
        theme = rng.integers(world.themes, size=each)
        own = rng.random((each, PER_UNIT)) < np.sqrt(world.strength)
        chosen = np.where(own, theme[:, None], rng.integers(world.themes, size=own.shape))
        topic = chosen * world.together + rng.integers(world.together, size=own.shape)
        among = rng.random((each, world.topics, PER_TOPIC)).argsort(axis=2)
        before = (topic[:, :, None] == topic[:, None, :]) & np.tri(PER_UNIT, k=-1, dtype=bool)
        phrase = among[np.arange(each)[:, None], topic, before.sum(axis=2)]
        return theme, world.topics_of(label).ravel()[topic] * PER_TOPIC + phrase

    def _directions(self, count: int) -> Reals:
        return unit(self.rng.standard_normal((count, WIDTH)))


def unit(rows: Reals) -> Reals:
    """Rows of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
