"""From noisy sketches to sequences of phrases: scores of a vocabulary, and draws from it. Public post-processing.

    score(v) = <sketch of the label, f(v)> - background

    zero where it is below zero, below so many deviations of noise, or not among the strongest scores of the vocabulary

Every phrase is a little near to all others, and what a few near units add drowns in that: drawn from plain scores, a
label's phrases are hardly more its own than others'. What they have in common is the background: the mean of all
labels' sketches, or the median score of the vocabulary. And hundreds of scores that are little more than noise weigh
more together than the few that are a label's own, which is why only the strongest count.

A text's phrases are different ones, each drawn in proportion to its score; where all scores are zero, each is as likely
as any other. In iterative sequences the j-th phrase is scored by the j-th sketch, together with the phrases before it:
features of a sum are turned features of its parts, so instead of every sum the sketch is turned, once for each text,

    <(c, s), f(a + v)> = <(c cos a + s sin a, s cos a - c sin a), f(v)>     (a the angles of the phrases so far)

and one product of matrices scores the whole vocabulary for many texts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures
from tasks.prompted_generation.keyphrases.parameters import Background

WORDS_AT_ONCE, TEXTS_AT_ONCE = 1024, 256
_FINE = 2**40

Reals = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Scorer:
    """Scores of a vocabulary.

    Attributes:
        points: of the vocabulary, float32 [V, d] of length 1.
        kernel: the sketches' own.
    """

    points: Singles
    kernel: FourierFeatures

    def scores(self, density: Reals, together: int = 1) -> Singles:
        """What every phrase scores in each sketch: float32 [V, T].

        Args:
            density: [T, 2D].
            together: how many phrases the sketch's features are of.
        """
        half = self.kernel.features
        towards = np.ascontiguousarray(density.T / math.sqrt(half), np.float32)
        turns = (self.kernel.scaled(together).T * (2 * math.pi)).astype(np.float32)
        found = np.empty((len(self.points), len(density)), np.float32)
        for start in range(0, len(self.points), WORDS_AT_ONCE):
            some = slice(start, start + WORDS_AT_ONCE)
            angles = self.points[some] @ turns
            found[some] = np.cos(angles) @ towards[:half]
            found[some] += np.sin(angles) @ towards[half:]
        return found

    def turned(self, density: Reals, before: Reals, together: int) -> Reals:
        """Sketches as seen by whoever has chosen phrases: [T, 2D].

        Args:
            density: [T, 2D].
            before: [T, d], the sum of the points of the phrases so far.
            together: how many phrases there are with the next one.
        """
        half = self.kernel.features
        angles = before @ (self.kernel.scaled(together).T * (2 * math.pi))
        cosines, sines = np.cos(angles), np.sin(angles)
        even, odd = density[:, :half], density[:, half:]
        return np.concatenate([even * cosines + odd * sines, odd * cosines - even * sines], axis=1)


@dataclass(frozen=True)
class Drawer:
    """Draws phrases by their scores.

    Attributes:
        least: what a score must be at least, to count.
        rng: whose draws they are.
        strongest: how many scores count at most, the greatest and those equal to them; None for all.
    """

    least: float
    rng: RandomSource
    strongest: int | None = None

    def draw(self, scores: Singles, taken: Sequence[int]) -> tuple[int, bool]:
        """A phrase that is not taken, and whether any score spoke for it; scores float32 [V], more than are taken."""
        weights = self.weights(scores)
        weights[list(taken)] = 0
        spoke = bool(weights.any())
        if not spoke:
            weights[:] = 1
            weights[list(taken)] = 0
        reached = np.cumsum(weights)
        place = np.searchsorted(reached, self.rng.uniform_below(int(reached[-1])), side="right")
        return int(place), spoke

    def weights(self, scores: Singles) -> NDArray[np.int64]:
        """Integers in proportion to the scores that count, the largest of them 2^40."""
        least = max(self.least, self._weakest(scores))
        counting = np.where(scores >= least, np.maximum(scores, 0), 0).astype(np.float64)
        largest = counting.max(initial=0.0)
        return np.floor(counting * (_FINE / largest) if largest > 0 else counting).astype(np.int64)

    def _weakest(self, scores: Singles) -> float:
        if self.strongest is None or self.strongest >= len(scores):
            return -math.inf
        place = len(scores) - self.strongest
        return float(np.partition(scores, place)[place])


@dataclass(frozen=True)
class Sequences:
    """Phrases for every text, by their numbers in the vocabulary.

    Attributes:
        phrases: one tuple a text.
        unscored: how many phrases no score spoke for.
    """

    phrases: tuple[tuple[int, ...], ...]
    unscored: int


def draw_sequences(
    scorer: Scorer,
    drawer: Drawer,
    density: Reals,
    label_of: Sequence[int],
    length: int,
    background: Background = "none",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sequences:
    """Different phrases for every text, as many as `length` or as there are.

    Args:
        density: [positions, labels, 2D]; one position for independent sequences.
        label_of: of each text.
        background: what is taken from scores.
    """
    length = min(length, len(scorer.points))
    if background == "labels":
        density = density - density.mean(axis=1, keepdims=True)  # scores are linear in sketches
    if len(density) == 1:
        shared = _without(scorer.scores(density[0]).T, background)
        return _drawn(
            drawer, lambda texts, *_: shared[[label_of[text] for text in texts]], len(label_of), length, progress
        )
    return _drawn(drawer, _Following(scorer, density, label_of, background), len(label_of), length, progress)


Score = Callable[[Sequence[int], int, Sequence[Sequence[int]]], Singles]
"""(texts, place of the next phrase, phrases so far) -> float32 [texts, V]."""


@dataclass(frozen=True)
class _Following:
    """Scores of the next phrase, given those before it."""

    scorer: Scorer
    density: Reals
    label_of: Sequence[int]
    background: Background

    def __call__(self, texts: Sequence[int], place: int, chosen: Sequence[Sequence[int]]) -> Singles:
        before = np.array([self.scorer.points[list(own)].astype(np.float64).sum(axis=0) for own in chosen])
        own = self.density[place, [self.label_of[text] for text in texts]]
        scores = self.scorer.scores(self.scorer.turned(own, before, place + 1), place + 1)
        return _without(scores.T, self.background)


def _without(scores: Singles, background: Background) -> Singles:
    """Scores without what a typical phrase scores: float32 [T, V]."""
    return scores - np.median(scores, axis=1, keepdims=True) if background == "median" else scores


def _drawn(drawer: Drawer, score: Score, texts: int, length: int, progress: Callable[[int, int], None]) -> Sequences:
    every: list[tuple[int, ...]] = []
    unscored = 0
    for start in range(0, texts, TEXTS_AT_ONCE):
        some = range(start, min(start + TEXTS_AT_ONCE, texts))
        chosen: list[list[int]] = [[] for _ in some]
        for place in range(length):
            for own, scores in zip(chosen, score(some, place, chosen), strict=True):
                phrase, spoke = drawer.draw(scores, own)
                own.append(phrase)
                unscored += not spoke
        every += [tuple(own) for own in chosen]
        progress(len(every), texts)
    return Sequences(tuple(every), unscored)
