"""Noise of mechanisms whose only randomness is discrete Gaussian noise on integers, from their stored events.

A mechanism is here if its proof says by which integers one unit moves what gets the noise:

* `noisy_count`, `noisy_histogram`: one number by 1.
* `set_histogram` with Gaussian noise: at most k numbers by 1 each.
* `gaussian_selection`: likewise, outside an event of probability delta, which its loss states. Given that none of the
  unit's new candidates is released the rest is post-processing of at most k noisy numbers, and the event can be made
  equally likely for both inputs by a coin of its own, so the deltas add up (docs/proofs/gaussian-composition.md).
* `weighted_selection`: likewise, a vector of integers of L2 norm at most G.
* `noisy_mean`: a vector of integers of L2 norm at most S, in each draw; `kde`: the same, at each position.
* `kmeans`: one number by 1 in each round of counts, a vector of norm at most S in each round of sums.

What later queries ask may depend on earlier outputs; the scales of all noise are fixed with the plan.
"""

from collections.abc import Callable, Mapping, Sequence

from models_db.values.events import PrivacyEvent
from tasks.accounting.gaussian_profile import GaussianNoise
from tasks.mechanisms.core import uncharged
from tasks.mechanisms.counts import gaussian_selection, noisy_count, noisy_histogram, set_histogram, weighted_selection
from tasks.mechanisms.vectors import kde_sketch, kmeans_rounds, noisy_mean


def gaussian_noises(events: Sequence[PrivacyEvent]) -> tuple[GaussianNoise, ...] | None:
    """Return the noise of all events together; None where one of them is another mechanism, or has other noise.

    Raises:
        KeyError, ValueError, UsageError: the parameters of an event are not its mechanism's.
    """
    found: list[GaussianNoise] = []
    for event in events:
        if event.mechanism == uncharged.PUBLIC_ONLY:
            continue
        if event.mechanism not in _NOISES or event.relation != "add_or_remove_one":
            return None
        noises = _NOISES[event.mechanism](event)
        if not noises:
            return None
        found += noises
    return tuple(found)


def _count(event: PrivacyEvent) -> list[GaussianNoise]:
    return [GaussianNoise(noisy_count.NoisyCount.from_event(event).sigma, ones=event.count)]


def _histogram(event: PrivacyEvent) -> list[GaussianNoise]:
    return [GaussianNoise(noisy_histogram.NoisyHistogram.from_event(event).noise.sigma, ones=event.count)]


def _sets(event: PrivacyEvent) -> list[GaussianNoise]:
    histogram = set_histogram.SetHistogram.from_event(event)
    if histogram.noise != "gaussian":
        return []
    return [GaussianNoise(histogram.scale, ones=histogram.contributions * event.count)]


def _selection(event: PrivacyEvent) -> list[GaussianNoise]:
    selection = gaussian_selection.GaussianSelection.from_event(event)
    return [GaussianNoise(selection.sigma, ones=selection.contributions * event.count)]


def _weights(event: PrivacyEvent) -> list[GaussianNoise]:
    selection = weighted_selection.WeightedSelection.from_event(event)
    return [GaussianNoise(selection.sigma, square=weighted_selection.STEPS**2 * event.count)]


def _mean(event: PrivacyEvent) -> list[GaussianNoise]:
    return [_vectors(noisy_mean.NoisyMean.from_event(event), event.count)]


def _sketches(event: PrivacyEvent) -> list[GaussianNoise]:
    sketches = kde_sketch.KdeSketches.from_event(event)
    return [_vectors(sketches.vectors, sketches.positions * event.count)]


def _rounds(event: PrivacyEvent) -> list[GaussianNoise]:
    rounds = kmeans_rounds.KMeansRounds.from_event(event)
    counts = GaussianNoise(rounds.count_sigma, ones=rounds.count_rounds * event.count)
    return [counts, _vectors(rounds.vectors, rounds.sum_rounds * event.count)]


def _vectors(mean: noisy_mean.NoisyMean, draws: int) -> GaussianNoise:
    return GaussianNoise(mean.sigma_steps, square=mean.clip_steps**2 * draws)


_NOISES: Mapping[str, Callable[[PrivacyEvent], list[GaussianNoise]]] = {
    noisy_count.MECHANISM: _count,
    noisy_histogram.MECHANISM: _histogram,
    set_histogram.MECHANISM: _sets,
    gaussian_selection.MECHANISM: _selection,
    weighted_selection.MECHANISM: _weights,
    noisy_mean.MECHANISM: _mean,
    kde_sketch.MECHANISM: _sketches,
    kmeans_rounds.MECHANISM: _rounds,
}
