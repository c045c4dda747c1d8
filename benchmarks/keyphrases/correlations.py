"""When iterative sequences win: phrases drawn from sketches of units whose phrases are correlated as was planted.

A cell is a planted population, a number of units of each label, an epsilon (or none: no noise) and a trial; every
system draws from the same units, so that differences within a cell are paired. No language model and no embedder is
asked. A trial has units, points and noise of its own. With `--corpora` units are texts of a public corpus, their
phrases RAKE's, their topics clusters of the phrases' points. Of what is drawn is told:

    single     total variation of the topics of single phrases from the truth, the mean over labels
    pair       the same of the topics of two phrases of one text
    together   how often two phrases of one text are of one topic
    own        how many phrases are of a topic that the text's label has
    label      how many true units a classifier tells the label of that learned from the texts' mean points
    hidden     how many it tells the theme of, where single phrases tell it (`topics`: a text's theme is that of most of
               its phrases), or where only pairs do (`pairings`: which topics go together is the label)

`true` are as many true units in place of drawn texts.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.keyphrases.data import LABELS, Planted, Units, World
from benchmarks.keyphrases.systems import INDEPENDENT, SYSTEMS, Drawing, Phrases, sums_of
from tasks.evaluation.algorithms.logistic_regression import fit
from tasks.mechanisms.vectors.kde_sketch import Sums

Reals = NDArray[np.float64]
Numbers = NDArray[np.int64]
Figures = dict[str, float | None]

TRUE = "true"
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
UNITS = (100, 400, 1600)
EPSILONS = ("1", "3", "6", "10", "15", "")
TEXTS, TESTS, LENGTH = 100, 250, 4
MOST_LENGTH = 8
CLOSE = 0.8
STRONG = ("6", "")


@dataclass(frozen=True)
class Cell:
    """One release by every system. `epsilon` is empty for no noise."""

    world: World
    length: int
    units: int
    epsilon: str
    trial: int

    @property
    def key(self) -> str:
        return json.dumps(asdict(self))


def measure(out: Path, trials: Sequence[int]) -> None:
    """Append every cell that is missing, trial by trial, so that any first part is of use."""
    known = {json.dumps(line["cell"]) for line in lines_of(out)}
    for trial in trials:
        for world, length, units, epsilons in settings():
            wanted = [Cell(world, length, count, epsilon, trial) for count in units for epsilon in epsilons]
            if missing := [cell for cell in wanted if cell.key not in known]:
                append(out, cells_of(world, missing))


def append(out: Path, lines: Iterator[Mapping[str, Any]]) -> None:
    """Write lines down, each as soon as it is there."""
    for line in lines:
        append_lines(out, [line])


def lines_of(out: Path) -> list[dict[str, Any]]:
    """Everything that is there."""
    return read_lines_if_there(out)


Setting = tuple[World, int, Sequence[int], Sequence[str]]
"""A population, phrases of a text, numbers of units of a label, epsilons."""


def settings() -> Iterator[Setting]:
    """Maps over strength and epsilon, the first over units too; then one thing changed at a time."""
    usual, few = World(), UNITS[1:2]
    for strength in STRENGTHS:
        yield replace(usual, strength=strength), LENGTH, UNITS, EPSILONS
        yield replace(usual, strength=strength, near=CLOSE), LENGTH, few, EPSILONS
        yield World("pairings", strength, near=CLOSE), LENGTH, few, EPSILONS
    for length in (2, MOST_LENGTH):
        yield World(strength=1.0, near=CLOSE), length, few, STRONG
    for topics in (2, 8):
        yield World(strength=1.0, topics=topics, near=CLOSE), LENGTH, few, STRONG
    for near in (0.4, 0.95):
        yield World(strength=1.0, near=near), LENGTH, few, STRONG


def cells_of(world: World, cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """Cells of one trial over one population, the smallest number of units first; more are the same and others."""
    first = cells[0]
    planted = Planted(world, np.random.default_rng([first.trial, zlib.crc32(repr(world).encode())]))
    phrases = Phrases(planted.points, np.arange(len(planted.topic_of)))
    judge = Judge.of(planted, phrases, first.length)
    sums: dict[str, Sums] = {}
    there = 0
    for units in sorted({cell.units for cell in cells}):
        more = planted.units(units - there)
        for system in SYSTEMS:
            added = sums_of(phrases, system, more.label, more.phrases, LABELS, first.length) if there < units else 0
            sums[system] = sums.get(system, 0) + added
        there = units
        for cell in (cell for cell in cells if cell.units == units):
            yield measured(cell, phrases, judge, sums)


def measured(cell: Cell, phrases: Phrases, judge: "Judge", sums: Mapping[str, Sums]) -> dict[str, Any]:
    """One cell as it is kept."""
    labels = np.repeat(np.arange(LABELS), TEXTS)
    drawing = Drawing(cell.epsilon, cell.units, labels.tolist(), cell.length)
    found = {TRUE: judge(labels, judge.fresh)}
    for system in SYSTEMS:
        found[system] = judge(labels, drawing.drawn(phrases, system, sums[system]))
    noise = drawing.noise(drawing.sketches(sums[INDEPENDENT]))
    return {"cell": asdict(cell), "noise": noise, "figures": found}


@dataclass(frozen=True)
class Judge:
    """Compares drawn texts with the truth.

    Attributes:
        pairs: of every label how likely two phrases of a unit are of two topics, [labels, topics, topics].
        fresh: as many true units as texts: numbers of their first phrases.
        tests: true units that nothing else has read.
        length: phrases of a text.
    """

    phrases: Phrases
    topic_of: Numbers
    pairs: Reals
    fresh: Numbers
    tests: Units
    length: int
    world: World | None = None

    @classmethod
    def of(cls, planted: Planted, phrases: Phrases, length: int) -> "Judge":
        pairs = np.array([planted.world.pairs(label) for label in range(LABELS)])
        fresh = planted.units(TEXTS).phrases[:, :length]
        return cls(phrases, planted.topic_of, pairs, fresh, planted.units(TESTS), length, planted.world)

    def __call__(self, labels: Numbers, drawn: Numbers) -> Figures:
        """Every figure, rounded."""
        topics = self.topic_of[drawn]
        singles, pairs = self._shares(labels, topics)
        truth = self.pairs.sum(axis=2)
        found: Figures = {
            "single": float(np.abs(singles - truth).sum() / 2 / len(truth)),
            "pair": float(np.abs(pairs - self.pairs).sum() / 2 / len(truth)),
            "together": float(np.trace(pairs, axis1=1, axis2=2).mean()),
            "own": float((singles * (truth > 0)).sum(axis=1).mean()),
            "label": self._label(labels, drawn),
            "hidden": self._hidden(labels, drawn, topics),
        }
        return {name: value if value is None else round(value, 4) for name, value in found.items()}

    def _shares(self, labels: Numbers, topics: Numbers) -> tuple[Reals, Reals]:
        """How often topics and ordered pairs of them are in the texts of every label."""
        count = self.pairs.shape[1]
        marks = np.eye(count)[topics]
        both = np.einsum("tja,tkb->tab", marks, marks) - np.einsum("tja,tjb->tab", marks, marks)
        pairs = np.array([both[labels == label].sum(axis=0) for label in range(len(self.pairs))])
        singles = np.array([marks[labels == label].sum(axis=(0, 1)) for label in range(len(self.pairs))])
        return singles / singles.sum(1, keepdims=True), pairs / pairs.sum((1, 2), keepdims=True)

    def _means(self, drawn: Numbers) -> Reals:
        return np.asarray(self.phrases.points[drawn].astype(np.float64).mean(axis=1))

    def _label(self, labels: Numbers, drawn: Numbers) -> float:
        """Of the group of labels that share their topics: whatever single phrases tell."""
        each = 2 if self.world and self.world.kind == "pairings" else 1
        told = fit(self._means(drawn), labels // each, len(self.pairs) // each)(self._means(self._tested))
        return float((told == self.tests.label // each).mean())

    @property
    def _tested(self) -> Numbers:
        return self.tests.phrases[:, : self.length]

    def _hidden(self, labels: Numbers, drawn: Numbers, topics: Numbers) -> float | None:
        if self.world is None:
            return None
        if self.world.kind == "pairings":
            return self._pairing(labels, topics)
        right = [self._theme(label, labels, drawn, topics) for label in range(LABELS)]
        return float(np.mean(right))

    def _theme(self, label: int, labels: Numbers, drawn: Numbers, topics: Numbers) -> float:
        """A text is of the topic that most of its phrases are of; without a phrase of its label's it is left out."""
        own, tested = self.world.topics_of(label).ravel(), self.tests.label == label  # type: ignore[union-attr]
        counts = (topics[labels == label][:, :, None] == own).sum(axis=1)
        some = counts.sum(axis=1) > 0
        if not some.any():
            return 1 / len(own)
        told = fit(self._means(drawn[labels == label][some]), counts[some].argmax(axis=1), len(own))
        return float((told(self._means(self._tested[tested])) == self.tests.theme[tested]).mean())

    def _pairing(self, labels: Numbers, topics: Numbers) -> float:
        """Which of the two labels of a group: learned from which topics are in one text together."""
        right = []
        for group in range(self.world.groups):  # type: ignore[union-attr]
            texts, tested = labels // 2 == group, self.tests.label // 2 == group
            told = fit(self._products(topics[texts]), labels[texts] % 2, 2)
            right.append(told(self._products(self.topic_of[self._tested[tested]])) == self.tests.label[tested] % 2)
        return float(np.mean(right))

    def _products(self, topics: Numbers) -> Reals:
        counts = (topics[:, :, None] == np.arange(self.pairs.shape[1])).sum(axis=1).astype(np.float64)
        first, second = np.triu_indices(counts.shape[1], 1)
        return np.concatenate([counts, np.minimum(counts[:, first] * counts[:, second], 1)], axis=1)
