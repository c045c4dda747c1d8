"""Sampling of phrase sequences from noisy sketches: scores of a vocabulary and draws. Public post-processing.

    score(v) = <sketch of the label, f(v)> - background

    zero where it is below zero, below so many deviations of noise, or not among the strongest scores of the vocabulary

Every phrase is slightly near to all others, which hides the contribution of a few near units: drawn from plain scores,
a label's phrases are hardly specific to it. The common part is the background: the mean of all labels' sketches, or the
median score of the vocabulary. And hundreds of scores slightly above the noise outweigh the few that are specific to a
label, so only the strongest count.

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
from tasks.systems.keyphrase_seeding.parameters import Background

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
        """Return the score of every phrase in each sketch: float32 [V, T].

        Args:
            density: [T, 2D].
            together: number of phrases of the sketch's features.
        """
        half = self.kernel.features
        weights = np.ascontiguousarray(density.T / math.sqrt(half), np.float32)
        turns = (self.kernel.scaled(together).T * (2 * math.pi)).astype(np.float32)
        scores = np.empty((len(self.points), len(density)), np.float32)
        for start in range(0, len(self.points), WORDS_AT_ONCE):
            rows = slice(start, start + WORDS_AT_ONCE)
            angles = self.points[rows] @ turns
            scores[rows] = np.cos(angles) @ weights[:half]
            scores[rows] += np.sin(angles) @ weights[half:]
        return scores

    def turned(self, density: Reals, before: Reals, together: int) -> Reals:
        """Return the sketches conditioned on the chosen phrases: [T, 2D].

        Args:
            density: [T, 2D].
            before: [T, d], the sum of the points of the phrases so far.
            together: number of phrases including the next one.
        """
        half = self.kernel.features
        angles = before @ (self.kernel.scaled(together).T * (2 * math.pi))
        cosines, sines = np.cos(angles), np.sin(angles)
        even, odd = density[:, :half], density[:, half:]
        return np.concatenate([even * cosines + odd * sines, odd * cosines - even * sines], axis=1)


@dataclass(frozen=True)
class Drawer:
    """Random draws of phrases by their scores.

    Attributes:
        least: least score that counts.
        rng: source of the draws.
        strongest: most scores that count, the greatest and those equal to them; None for all.
    """

    least: float
    rng: RandomSource
    strongest: int | None = None

    def draw(self, scores: Singles, taken: Sequence[int]) -> tuple[int, bool]:
        """Draw a phrase that is not taken, and whether any score counted; scores float32 [V], more than are taken."""
        weights = self.weights(scores)
        weights[list(taken)] = 0
        has_score = bool(weights.any())
        if not has_score:
            weights[:] = 1
            weights[list(taken)] = 0
        cumulative = np.cumsum(weights)
        place = np.searchsorted(cumulative, self.rng.uniform_below(int(cumulative[-1])), side="right")
        return int(place), has_score

    def weights(self, scores: Singles) -> NDArray[np.int64]:
        """Return integers in proportion to the scores that count, the largest of them 2^40."""
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
        unscored: number of phrases drawn without a score.
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
    """Draw different phrases for every text, `length` of them or all.

    Args:
        density: [positions, labels, 2D]; one position for independent sequences.
        label_of: the label of each text.
        background: subtracted from scores.
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
    """Return scores minus that of a typical phrase: float32 [T, V]."""
    return scores - np.median(scores, axis=1, keepdims=True) if background == "median" else scores


def _drawn(drawer: Drawer, score: Score, texts: int, length: int, progress: Callable[[int, int], None]) -> Sequences:
    sequences: list[tuple[int, ...]] = []
    unscored = 0
    for start in range(0, texts, TEXTS_AT_ONCE):
        batch = range(start, min(start + TEXTS_AT_ONCE, texts))
        chosen: list[list[int]] = [[] for _ in batch]
        for place in range(length):
            for own, scores in zip(chosen, score(batch, place, chosen), strict=True):
                phrase, has_score = drawer.draw(scores, own)
                own.append(phrase)
                unscored += not has_score
        sequences += [tuple(own) for own in chosen]
        progress(len(sequences), texts)
    return Sequences(tuple(sequences), unscored)
