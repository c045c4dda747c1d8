"""Charged metrics: figures of private data that a gate may look at, because a mechanism released them (PRIVACY §7).

An estimate is a noisy histogram of the units over public bins. The request pays for it out of its own rho
(`evaluation_share`), so it is part of what the spend gate approves and of the release's claim. It is computed after
the texts: they are outputs of charged mechanisms, so what bins mean may depend on them, and zCDP composes adaptively.

**Sensitivity.** A unit is in at most one bin, and in which is a function of that unit, of released texts and of public
facts alone: each unit is looked at by itself, also by the embedder (a padded batch would let one unit's length move
another's point by rounding, PRIVACY §4.2 point 1). So adding or removing a unit moves one count by 1
(`tasks.mechanisms.histogram`). A unit that cannot be read is in no bin.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.intervals import CONFIDENCE, Interval
from tasks.evaluation.results import MetricResult
from tasks.evaluation.subject import Subject

SIMULATIONS = 2000
NOISE_INTERVAL = (
    "95 % interval of what the noise alone may have done, from that many simulations of it around the noisy counts:"
    f" {SIMULATIONS}, fixed ordinary random start"
)

_AN_ORDINARY_START = 0


@dataclass(frozen=True)
class UnitText:
    """One unit as an estimate sees it: its documents joined in keyed order, and the label it entered, if any."""

    text: str
    label: int | None = None


@dataclass(frozen=True)
class Asked:
    """The public facts that fix how many bins an estimate has.

    Attributes:
        samples: how many texts the request asks for.
        labels: the public label set; empty without labels.
    """

    samples: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Noisy:
    """What the mechanism released.

    Attributes:
        counts: int64 [bins], with noise; some may be negative.
        sigma: the noise's scale.
    """

    counts: NDArray[np.int64]
    sigma: float

    def figure(self, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> tuple[float, Interval]:
        """A figure of the counts, and its interval under the noise.

        Args:
            of: float64 [n, bins] -> [n], finite.
        """
        generator = np.random.default_rng(_AN_ORDINARY_START)
        counts = self.counts.astype(np.float64)
        simulated = of(counts + generator.normal(0.0, self.sigma, (SIMULATIONS, len(counts))))
        low, high = np.quantile(simulated, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        value = float(of(counts[None])[0])
        return value, (min(float(low), value), max(float(high), value))

    def total_variation(self, released: NDArray[np.int64]) -> tuple[float, Interval]:
        """Half the sum of absolute differences between the shares of these counts and of released ones, as `figure`.

        Args:
            released: int64 [bins], of released texts.
        """
        others = shares(released.astype(np.float64)[None])
        return self.figure(lambda counts: np.abs(shares(counts) - others).sum(1) / 2)


class Estimate(Protocol):
    """One charged metric."""

    by_label: bool
    """Whether only units that enter one of the request's labels are looked at."""

    def bins(self, asked: Asked) -> int:
        """How many bins the histogram has: a public number.

        Raises:
            UsageError: the request lacks what this estimate is about.
        """

    def places(self, subject: Subject, asked: Asked) -> Callable[[UnitText], int | None]:
        """In which bin a unit is, by itself; None for one that is in none."""

    def result(self, subject: Subject, asked: Asked, noisy: Noisy | None) -> MetricResult:
        """The figures; null without `noisy`, which is so where nothing was released."""


def counted(units: Iterable[UnitText], place: Callable[[UnitText], int | None], bins: int) -> list[int]:
    """How many units are in each bin. PRIVATE: for the mechanism alone.

    A unit that makes `place` fail is in no bin: what one unit does must not turn a release into none (PRIVACY §3).
    """
    counts = [0] * bins
    for unit in units:
        number = _safely(place, unit)
        if number is not None and 0 <= number < bins:
            counts[number] += 1
    return counts


def _safely(place: Callable[[UnitText], int | None], unit: UnitText) -> int | None:
    try:
        return place(unit)
    except Exception:  # noqa: BLE001 - a failure confined to one unit makes that unit null
        return None


def shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noisy counts as shares: float [n, bins] -> [n, bins]; negative ones count as none, equal where all are."""
    kept = np.maximum(counts, 0.0)
    totals = kept.sum(1, keepdims=True)
    equal = np.full_like(kept, 1 / kept.shape[1])
    return np.where(totals > 0, np.divide(kept, totals, out=equal.copy(), where=totals > 0), equal)


def histogram_of(places: Sequence[int | None], bins: int) -> NDArray[np.int64]:
    """int64 [bins] of released texts."""
    return np.bincount([place for place in places if place is not None], minlength=bins).astype(np.int64)


def texts_of(subject: Subject) -> Iterator[str]:
    """The released texts that are not empty."""
    return (text.text for text in subject.texts if text.text.strip())
