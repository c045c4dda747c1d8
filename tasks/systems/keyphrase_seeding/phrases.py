"""Private keyphrases of units, and phrase sequences that are drawn from the noisy sketches of them.

Units are read in chunks of one public size, and no chunk is kept: memory does not grow with their number. A unit's
phrases, their order and its vectors are functions of that unit and of public values alone, bit for bit. A unit without
phrases adds zero.

Sampling of phrase sequences from noisy sketches: scores of a vocabulary and draws. Public post-processing.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.facets.facet_settings import FacetField, FacetSettings
from tasks.corpus.store import UnitDocuments
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.vectors.kde_sketch import Chunk, FourierFeatures, on_grid
from tasks.systems.keyphrase_seeding.stages import MOST_PHRASES, Background, KeyphraseParameters
from tasks.text.public_models import Embedder
from tasks.text.words import LONGEST, normalise_keywords
from tasks.values.results import KEYWORDS, SUMMARY, Facets

if TYPE_CHECKING:
    from tasks.decoding.run_context import RunContext


UNITS_AT_ONCE, NUMBERS_AT_ONCE = 64, 2**22
"""Size of a chunk: units, and numbers of their features, unless one unit alone has more. Both are public; sketches may
be a thousand times as large as by default, and a run that exhausts memory has already paid."""

Unit = tuple[int, UnitDocuments]
"""The number of its label, and its documents."""


def facets_of(parameters: KeyphraseParameters) -> FacetSettings:
    """Return the settings of extraction: key phrases, and the beginning of the text, which ranks them."""
    fields = (
        FacetField(name=KEYWORDS, about="key phrases", most_items=MOST_PHRASES, most_characters=LONGEST),
        FacetField(name=SUMMARY, about="the beginning", kind="text"),
    )
    return FacetSettings(fields=fields, examples=(), phrase_words=parameters.phrase_words)


@dataclass(frozen=True)
class PhraseReader:
    """Reader of the phrases of units, and of their vectors.

    Attributes:
        extract: extracts candidates.
        embed: embeds phrases.
    """

    parameters: KeyphraseParameters
    context: "RunContext"
    extract: Extractor
    embed: Embedder

    def phrases(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield each unit's phrases, the best first, a chunk at a time."""
        for chunk in self._chunks("vocabulary", UNITS_AT_ONCE):
            yield self._phrases_of(chunk)

    def vectors(self, kernel: FourierFeatures) -> Iterator[Chunk]:
        """Yield each unit's contribution, a chunk at a time; units without phrases are left out."""
        numbers = 2 * kernel.features * self.parameters.phrases_per_unit
        for chunk in self._chunks("sketches", max(1, min(UNITS_AT_ONCE, NUMBERS_AT_ONCE // numbers))):
            phrases = self._phrases_of(chunk)
            nonempty = [(unit, own) for unit, own in zip(chunk, phrases, strict=True) if own]
            if nonempty:
                yield np.array([label for (label, _), _ in nonempty]), self._vectors_of(nonempty, kernel)

    def _chunks(self, stage: str, at_once: int) -> Iterator[list[Unit]]:
        return self.context.unit_chunks(self.parameters.labels, at_once, f"units for the {stage}")

    def _phrases_of(self, chunk: Sequence[Unit]) -> list[tuple[str, ...]]:
        facets = self.extract([unit.text for _, unit in chunk])
        phrases = [normalise_keywords(own.keywords, MOST_PHRASES) for own in facets]
        if self.parameters.ranked_by == "embedding":
            phrases = self._ranked(facets, phrases)
        return [own[: self.parameters.phrases_per_unit] for own in phrases]

    def _ranked(self, facets: Sequence[Facets], phrase_lists: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Sort each unit's phrases by closeness to the unit's own point; equally near ones keep their order."""
        texts = [text for own, phrases in zip(facets, phrase_lists, strict=True) for text in (own.summary, *phrases)]
        steps, start, ranked = on_grid(points_of(self.embed, texts)), 0, []
        for phrases in phrase_lists:
            own = steps[start : start + 1 + len(phrases)]
            closeness = (own[1:] * own[0]).sum(axis=1).tolist()  # integers: exact in any order
            ranked.append(tuple(phrases[place] for place in sorted(range(len(phrases)), key=lambda p: -closeness[p])))
            start += len(own)
        return ranked

    def _vectors_of(self, kept: Sequence[tuple[Unit, tuple[str, ...]]], kernel: FourierFeatures) -> NDArray[np.float32]:
        """Return the contributions of units, float32 [units, positions, 2D]."""
        lengths = [len(own) for _, own in kept]
        first = np.cumsum([0, *lengths[:-1]])
        if self.parameters.sequences == "independent":
            texts = [phrase for _, own in kept for phrase in own]
            return kernel.of_phrases(on_grid(points_of(self.embed, texts)), first)[:, None]
        texts = [phrase for (_, unit), own in kept for phrase in self._in_keyed_order(unit.unit, own)]
        steps = on_grid(points_of(self.embed, texts))
        return _together(steps, first, np.array(lengths), kernel, self.parameters.positions)

    def _in_keyed_order(self, unit: str, phrases: Sequence[str]) -> list[str]:
        """Order phrases by a key, so that their order does not depend on their rank."""
        return sorted(phrases, key=lambda phrase: self.context.split.keyed_hash("keyphrases", unit, phrase))


def _together(
    steps: NDArray[np.int64],
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kernel: FourierFeatures,
    positions: int,
) -> NDArray[np.float32]:
    """Return at each position j the features of each unit's first j phrases; zero for a unit with fewer."""
    features = np.zeros((len(first), positions, 2 * kernel.features), np.float32)
    sums = np.zeros((len(first), steps.shape[1]), np.int64)
    for position in range(positions):
        enough = lengths > position
        sums[enough] += steps[first[enough] + position]
        if enough.any():
            features[enough, position] = kernel.of_together(sums[enough], position + 1)
    return features


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
