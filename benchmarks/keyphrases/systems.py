"""Ways to draw phrases for texts, from sketches of the same units at the same price.

    independent        the built one: a sketch of the mean over a unit's phrases
    iterative          the built one: at place j a sketch of sums of j phrases, rho shared out over places
    iterative_median   the same, `background: median`
    product            not built, tried here: at place j a sketch of the pair (sum of j - 1 phrases, next phrase), whose
                       kernel is the product of both kernels; its background is what a phrase scores on average over
                       all texts that are being drawn

The last works in floating point and has no vector that is a unit's bit for bit: it is a trial, and protects nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.core.rng import OperatingSystemRandom, RandomSource
from tasks.mechanisms.vectors.kde_sketch import KdeSketches, Sums, calibrate_kde
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid
from tasks.prompted_generation.keyphrases.phrase_sampling import Drawer, Scorer, draw_sequences

INDEPENDENT, ITERATIVE, MEDIAN, PRODUCT = "independent", "iterative", "iterative_median", "product"
SYSTEMS = (INDEPENDENT, ITERATIVE, MEDIAN, PRODUCT)
INDEPENDENT_MEDIAN = "independent_median"
FEATURES, BANDWIDTH, DELTA = 1000, Decimal("0.5"), Decimal("1e-5")
LEAST_DEVIATIONS = 1
AT_ONCE = 128
_PLENTY = 10**12

Reals = NDArray[np.float64]
Singles = NDArray[np.float32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Phrases:
    """Phrases that units have, and which of them texts may be seeded with.

    Attributes:
        points: float32 [phrases, d] of length 1.
        vocabulary: int64 [V], numbers of phrases.
    """

    points: Singles
    vocabulary: Numbers

    @property
    def width(self) -> int:
        return self.points.shape[1]


def kernel_of(phrases: Phrases, system: str) -> FourierFeatures:
    """The public frequencies: of points, or of two points one behind the other."""
    return FourierFeatures.of(phrases.width * (2 if system == PRODUCT else 1), FEATURES, BANDWIDTH)


def sums_of(phrases: Phrases, system: str, label: Numbers, own: Numbers, labels: int, positions: int) -> Sums:
    """Exact sums of what units add: int64 [positions, labels, 2D].

    Args:
        label: of every unit, int64 [n].
        own: its phrases in no order, int64 [n, L].
    """
    kernel, steps = kernel_of(phrases, system), on_grid(phrases.points)
    sketches = calibrate_kde(_PLENTY, FEATURES, labels, 1 if system == INDEPENDENT else positions)
    add = _paired if system == PRODUCT else _mean if system == INDEPENDENT else _together
    starts = range(0, len(own), AT_ONCE)
    parts = (slice(start, start + AT_ONCE) for start in starts)
    return sketches.sums((label[part], add(kernel, steps[own[part]], positions)) for part in parts)


def _mean(kernel: FourierFeatures, steps: Numbers, positions: int) -> Singles:
    units, many, width = steps.shape
    return kernel.of_phrases(steps.reshape(-1, width), np.arange(0, units * many, many))[:, None]


def _together(kernel: FourierFeatures, steps: Numbers, positions: int) -> Singles:
    summed = steps.cumsum(axis=1)
    return np.stack([kernel.of_together(summed[:, place], place + 1) for place in range(positions)], axis=1)


def _paired(kernel: FourierFeatures, steps: Numbers, positions: int) -> Singles:
    points, found = np.ldexp(steps.astype(np.float64), -20), []
    for place in range(positions):
        before = points[:, :place].sum(axis=1) / np.sqrt(max(1, place))
        found.append(_waves(np.concatenate([before, points[:, place]], axis=1) @ kernel.turns.T))
    return np.stack(found, axis=1).astype(np.float32)


def _waves(turns: Reals) -> Reals:
    angles = turns * (2 * np.pi)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(turns.shape[1])


@dataclass(frozen=True)
class Drawing:
    """One release and the texts that follow from it.

    Attributes:
        epsilon: empty for no noise.
        references: n.
        label_of: of every text.
        length: phrases of a text.
    """

    epsilon: str
    references: int
    label_of: Sequence[int]
    length: int
    rng: RandomSource = OperatingSystemRandom()  # noqa: RUF009 - it has no state

    def drawn(self, phrases: Phrases, system: str, sums: Sums) -> Numbers:
        """Numbers of the phrases of every text: int64 [texts, length]."""
        kernel = kernel_of(phrases, system)
        scorer = Scorer(phrases.points[phrases.vocabulary], kernel)
        sketches = self.sketches(sums)
        density = sketches.density(sketches.draw(sums, self.rng) if self.epsilon else sums, self.references)
        drawer = Drawer(self.noise(sketches) * LEAST_DEVIATIONS, self.rng)
        if system == PRODUCT:
            found: Any = self._following(scorer, drawer, density)
        else:
            background = "median" if system in (MEDIAN, INDEPENDENT_MEDIAN) else "labels"
            found = draw_sequences(scorer, drawer, density, self.label_of, self.length, background).phrases  # type: ignore[arg-type]
        return phrases.vocabulary[np.array(found)]

    def sketches(self, sums: Sums) -> KdeSketches:
        """The built calibration: all of rho, evenly over positions."""
        positions, labels, _ = sums.shape
        rho = release_amount(Decimal(self.epsilon), DELTA).rho if self.epsilon else _PLENTY
        return calibrate_kde(rho, FEATURES, labels, positions)

    def noise(self, sketches: KdeSketches) -> float:
        """The standard deviation of a score."""
        return float(sketches.sigma / Fraction(self.references)) if self.epsilon else 0.0

    def _following(self, scorer: Scorer, drawer: Drawer, density: Reals) -> list[list[int]]:
        width, labels = scorer.points.shape[1], np.array(self.label_of)
        halves = scorer.kernel.turns[:, :width], scorer.kernel.turns[:, width:]
        next_ones = _waves(scorer.points.astype(np.float64) @ halves[1].T)
        chosen: list[list[int]] = [[] for _ in labels]
        for place in range(self.length):
            before = np.array([scorer.points[own].astype(np.float64).sum(axis=0) for own in chosen])
            turned = _turned(density[place, labels], before @ halves[0].T / np.sqrt(max(1, place)))
            scores = turned @ next_ones.T
            for own, row in zip(chosen, scores - scores.mean(axis=0), strict=True):
                own.append(drawer.draw(row.astype(np.float32), own)[0])
        return chosen


def _turned(density: Reals, turns: Reals) -> Reals:
    cosines, sines = np.cos(turns * (2 * np.pi)), np.sin(turns * (2 * np.pi))
    even, odd = np.split(density, 2, axis=1)
    return np.concatenate([even * cosines + odd * sines, odd * cosines - even * sines], axis=1)
