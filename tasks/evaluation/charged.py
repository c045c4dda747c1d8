"""Charged metrics: figures of private data that a gate may look at, because a mechanism released them (PRIVACY §5).

An estimate is a noisy histogram of the units over public bins. The request pays for it out of its own rho
(`evaluation_share`), so it is part of what the spend gate approves and of the release's claim. It is computed after
the texts: they are outputs of charged mechanisms, so what bins mean may depend on them, and zCDP composes adaptively.

**Sensitivity.** A unit is in at most one bin, and in which is a function of that unit, of released texts and of public
facts alone: each unit is looked at by itself, also by the embedder (a padded batch would let one unit's length move
another's point by rounding, PRIVACY §4.2 point 1). So adding or removing a unit moves one count by 1
(`tasks.mechanisms.counts.noisy_histogram`). A unit that cannot be read is in no bin.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.evaluation.evaluation_input import EvaluationInput, figure
from tasks.evaluation.intervals import CONFIDENCE, Interval
from tasks.text.words import words
from tasks.values.results import MetricResult, MetricValue, rounded

SIMULATIONS = 2000
NOISE_INTERVAL = (
    "95 % interval of what the noise alone may have done, from that many simulations of it on counts that may be the"
    f" true ones: {SIMULATIONS}, fixed ordinary random start"
)

_AN_ORDINARY_START = 0
SHARE: Interval = (0.0, 1.0)
"""Range of a share."""

_ANYTHING: Interval = (-np.inf, np.inf)

Figure: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""A figure of many histograms: float64 [n, bins] -> [n], finite."""


@dataclass(frozen=True)
class UnitText:
    """One unit as an estimate sees it: its documents joined in keyed order, and the label it entered, if any."""

    text: str
    label: int | None = None


@dataclass(frozen=True)
class EstimateRequest:
    """The public facts that fix how many bins an estimate has.

    Attributes:
        samples: how many texts the request asks for.
        labels: the public label set; empty without labels.
    """

    samples: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class NoisyHistogramEstimate:
    """Noisy histogram that the mechanism released.

    Attributes:
        counts: int64 [bins], with noise; some may be negative.
        sigma: the noise's scale.
    """

    counts: NDArray[np.int64]
    sigma: float

    def figure(
        self, of: Figure, within: Interval = _ANYTHING, alike: NDArray[np.float64] | None = None
    ) -> tuple[float, Interval]:
        """Return a figure of the counts, and its interval under the noise.

        Noise does not only spread a figure, it moves it: it puts units into bins that have none, and sets apart what is
        equal. So it is simulated on counts that may be the true ones, and what it does to their figure is taken off
        this one: the basic bootstrap (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section
        5.2). No counts are surely the true ones, so the interval holds what comes of several.

        Args:
            of: the figure.
            within: where it can be at all.
            alike: of a distance, the shares [bins] at which it finds no difference. Close to them a distance can only
                grow, so its value there belongs to the interval unless noise hardly ever makes so much of it.
        """
        noise = np.random.default_rng(_AN_ORDINARY_START).normal(0.0, self.sigma, (SIMULATIONS, len(self.counts)))
        value = float(of(self._noisy_counts)[0])
        ends = [value]
        for truth in self._plausible_counts():
            moved = np.quantile(of(truth + noise) - of(truth), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            ends += [value - float(moved[1]), value - float(moved[0])]
        if alike is not None:
            equal = self._total * alike[None]
            best = of(equal)
            if abs(value - best[0]) <= np.quantile(np.abs(of(equal + noise) - best), CONFIDENCE):
                ends.append(float(best[0]))
        return value, (max(min(ends), within[0]), min(max(ends), within[1]))

    def total_variation(self, released: NDArray[np.int64]) -> tuple[float, Interval]:
        """Return half the sum of absolute differences of the shares of these counts and of released ones, as `figure`.

        Args:
            released: int64 [bins], of released texts.
        """
        others = shares(released.astype(np.float64)[None])
        return self.figure(lambda counts: np.abs(shares(counts) - others).sum(1) / 2, SHARE, others[0])

    @property
    def _noisy_counts(self) -> NDArray[np.float64]:
        return self.counts.astype(np.float64)[None]

    @property
    def _total(self) -> float:
        return max(0.0, float(self.counts.sum()))

    def _plausible_counts(self) -> Iterator[NDArray[np.float64]]:
        """Counts [1, bins] that may be the true ones: the nearest to these that are counts, and the sparsest."""
        yield self._total * shares(self._noisy_counts)
        sparse = np.where(self._noisy_counts > 2 * self.sigma, self._noisy_counts, 0.0)
        if sparse.any():
            yield self._total * shares(sparse)


class Estimate(Protocol):
    """One charged metric."""

    by_label: bool
    """True if only units under one of the request's labels are counted."""

    def bins(self, request: EstimateRequest) -> int:
        """Return how many bins the histogram has: a public number.

        Raises:
            UsageError: the request lacks what this estimate is about.
        """

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return a function from a unit to its bin; None for a unit in no bin."""

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Return the figures; null without `noisy`, which is so where nothing was released."""


def counted(units: Iterable[UnitText], place: Callable[[UnitText], int | None], bins: int) -> list[int]:
    """Return how many units are in each bin. PRIVATE: for the mechanism alone.

    A unit that makes `place` fail is in no bin: what one unit does must not turn a release into none (PRIVACY §3).
    """
    counts = [0] * bins
    for unit in units:
        number = _place_or_none(place, unit)
        if number is not None and 0 <= number < bins:
            counts[number] += 1
    return counts


def _place_or_none(place: Callable[[UnitText], int | None], unit: UnitText) -> int | None:
    try:
        return place(unit)
    except Exception:  # noqa: BLE001 - a failure confined to one unit makes that unit null
        return None


def shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noisy counts as shares: float [n, bins] -> [n, bins]; equal where the counts do not add up to anything.

    Those of the nearest counts that are not negative and have the same sum, which are also the likeliest: one level is
    taken off all, and what falls below 0 is none (Duchi et al., "Efficient Projections onto the l1-Ball", ICML 2008,
    section 3). To set negative ones to 0 alone would leave the noise of the other empty bins as units.
    """
    totals = counts.sum(1, keepdims=True)
    falling = -np.sort(-counts, axis=1)
    levels = (falling.cumsum(1) - totals) / np.arange(1, counts.shape[1] + 1)
    last = np.maximum((falling > levels).sum(1, keepdims=True), 1) - 1
    kept = np.maximum(counts - np.take_along_axis(levels, last, 1), 0.0)
    equal = np.full_like(kept, 1 / kept.shape[1])
    return np.asarray(np.divide(kept, kept.sum(1, keepdims=True), out=equal, where=totals > 0), np.float64)


def histogram_of(places: Sequence[int | None], bins: int) -> NDArray[np.int64]:
    """Return int64 [bins] of released texts."""
    return np.bincount([place for place in places if place is not None], minlength=bins).astype(np.int64)


def texts_of(subject: EvaluationInput) -> Iterator[str]:
    """Return the released texts that are not empty."""
    return (text.text for text in subject.texts if text.text.strip())


LABELS = "dp_labels"


class LabelEstimate:
    """One bin for each declared label. A unit with several of them enters one, by key (PRIVACY §3)."""

    by_label = True

    def bins(self, request: EstimateRequest) -> int:
        """Return the number of labels.

        Raises:
            NoLabels: the request declares none.
        """
        if not request.labels:
            raise UsageError(
                f"`{LABELS}` counts units by label, and the request declares no labels.",
                f"Declare `parameters.labels: [...]`, or leave `{LABELS}` out of `evaluation`.",
                code="NoLabels",
            )
        return len(request.labels)

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return the number of the unit's label."""
        return lambda unit: unit.label

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Return the noisy share of each label, and the total variation distance from the released texts' labels."""
        counts = np.array([sum(text.label == label for text in subject.texts) for label in request.labels], np.int64)
        values: dict[str, MetricValue] = figure("total_variation", None, None)
        note = "not measured"
        if noisy is not None:
            distance = noisy.total_variation(counts)
            values = figure("total_variation", *distance)
            proportions = shares(noisy.counts.astype(np.float64)[None])[0]
            largest = int(proportions.argmax())
            note = (
                f"{proportions[largest]:.0%} of the units enter {request.labels[largest]!r}; distance {distance[0]:.2f}"
            )
            for number, share in enumerate(proportions, 1):
                values[f"share_{number}"] = f"{share:.4f}"
        return MetricResult(
            name=LABELS,
            exposure="charged",
            values=values,
            source="noisy histogram: Canonne, Kamath, Steinke, arXiv 2004.00010; total variation distance",
            method="units in each declared label, in their order, by a charged noisy histogram; half the sum of"
            f" absolute differences between their shares and those of the released texts; {NOISE_INTERVAL}",
            line=note,
        )


LENGTH = "dp_length"

EDGES: Sequence[int] = (0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
"""Words at which the bins begin, the same for every release; the last one is open and stands for 2048 to 4096."""

_MIDDLES = np.array([*((low + high - 1) / 2 for low, high in pairwise(EDGES)), 3072.0])


class LengthEstimate:
    """Public bins of words, one for a unit: that of its documents together."""

    by_label = False

    def bins(self, request: EstimateRequest) -> int:
        """Return the same for every request."""
        return len(EDGES)

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return the bin of the number of words."""
        return lambda unit: _length_bin(unit.text)

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Return the mean words of a private unit and of a released text, and the distance between both histograms."""
        lengths = [len(words(text.text)) for text in subject.texts]
        mean: dict[str, MetricValue] = figure("mean_words", None, None, 1)
        distance: dict[str, MetricValue] = figure("total_variation", None, None)
        note = "not measured"
        if noisy is not None:
            about = noisy.figure(lambda counts: shares(counts) @ _MIDDLES, (float(_MIDDLES[0]), float(_MIDDLES[-1])))
            mean = figure("mean_words", *about, 1)
            note = f"about {about[0]:.0f} words a unit"
            if lengths:
                released = histogram_of([_bin_of(count) for count in lengths], len(EDGES))
                distance = figure("total_variation", *noisy.total_variation(released))
                note += f", {np.mean(lengths):.0f} a released text"
        return MetricResult(
            name=LENGTH,
            exposure="charged",
            values={
                **mean,
                "released_mean_words": rounded(float(np.mean(lengths)), 1) if lengths else None,
                **distance,
            },
            source="noisy histogram: Canonne, Kamath, Steinke, arXiv 2004.00010; total variation distance",
            method="words of a unit's documents together, by a charged noisy histogram of public bins (a bin counts"
            f" as its middle, the last one as 3072); {NOISE_INTERVAL}",
            line=note,
        )


def _length_bin(text: str) -> int:
    return _bin_of(len(words(text)))


def _bin_of(count: int) -> int:
    return int(np.searchsorted(EDGES, count, side="right")) - 1
