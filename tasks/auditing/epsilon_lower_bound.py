"""Lower bound on a mechanism's epsilon from runs on two neighbouring inputs (PRIVACY §8).

If a mechanism is (epsilon, delta)-DP, every event E has P(E) <= e^epsilon P'(E) + delta. So an event seen often on one
input and rarely on the other proves that epsilon is at least ln((P(E) - delta) / P'(E)); Clopper-Pearson intervals
turn counts into a bound that is wrong with a stated probability only (Jagielski, Ullman, Oprea, arXiv 2006.07709,
§4). The event is chosen on one half of the trials and judged on the other: chosen and judged on the same trials,
the best of many events would look better than it is.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Relation: TypeAlias = Literal["at_least", "at_most", "equal"]
Sample: TypeAlias = "Sequence[int] | Sequence[float] | NDArray[np.float64] | NDArray[np.int64]"

THRESHOLDS = 200


@dataclass(frozen=True)
class DistinguishingEvent:
    """The event that a statistic is at least, at most or equal to a threshold.

    Attributes:
        swapped: whether the event is the likelier one on the second input.
    """

    relation: Relation
    threshold: float
    swapped: bool

    def hits(self, sample: NDArray[np.float64]) -> int:
        """Return the number of trials in which the event happened."""
        match self.relation:
            case "at_least":
                return int(np.count_nonzero(sample >= self.threshold))
            case "at_most":
                return int(np.count_nonzero(sample <= self.threshold))
            case "equal":
                return int(np.count_nonzero(sample == self.threshold))


@dataclass(frozen=True)
class EpsilonLowerBound:
    """Lower bound on epsilon that trials prove.

    Attributes:
        epsilon: the mechanism's epsilon at `delta` is at least this, with probability at least `confidence`;
            0 if the trials prove nothing.
        event: the event, chosen on trials that the bound does not use.
        trials: tested trials on each input.
        hits: how often the event happened on the input where it is likelier, and on the other.
    """

    epsilon: float
    delta: float
    confidence: float
    event: DistinguishingEvent
    trials: tuple[int, int]
    hits: tuple[int, int]


def epsilon_lower_bound(first: Sample, second: Sample, delta: float, confidence: float) -> EpsilonLowerBound:
    """Return the largest epsilon that independent trials rule out.

    Args:
        first, second: one real statistic per trial, on two neighbouring inputs; at least four trials each. Even
            trials choose the event, odd ones judge it.
        confidence: one minus the probability, over the trials, that the bound is above the true epsilon.

    Raises:
        ValueError: too few trials, or delta or confidence outside [0, 1) and (0, 1).

    >>> with_unit, without_unit = [1] * 900 + [0] * 100, [1] * 400 + [0] * 600
    >>> round(epsilon_lower_bound(with_unit, without_unit, delta=1e-3, confidence=0.95).epsilon, 2)
    1.45
    """
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ValueError(f"delta {delta} must be in [0, 1) and confidence {confidence} in (0, 1)")
    one, two = (np.asarray(sample, dtype=np.float64) for sample in (first, second))
    if min(len(one), len(two)) < 4:
        raise ValueError("an audit needs at least four trials on each input")
    chosen = max(_events(one[::2], two[::2]), key=lambda event: _bound(event, one[::2], two[::2], delta, confidence))
    likelier, other = _ordered(chosen, one[1::2], two[1::2])
    return EpsilonLowerBound(
        epsilon=max(0.0, _bound(chosen, one[1::2], two[1::2], delta, confidence)),
        delta=delta,
        confidence=confidence,
        event=chosen,
        trials=(len(likelier), len(other)),
        hits=(chosen.hits(likelier), chosen.hits(other)),
    )


def clopper_pearson_lower(hits: int, trials: int, failure: float) -> float:
    """Return the exact lower confidence bound of a proportion, wrong with probability at most `failure`.

    Clopper and Pearson, Biometrika 26 (1934): the `failure` quantile of Beta(hits, trials - hits + 1).
    """
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, failure))


def clopper_pearson_upper(hits: int, trials: int, failure: float) -> float:
    """Return the exact upper confidence bound of a proportion, wrong with probability at most `failure`."""
    return 1 - clopper_pearson_lower(trials - hits, trials, failure)


def _bound(
    event: DistinguishingEvent,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    delta: float,
    confidence: float,
) -> float:
    """ln((P - delta) / P') from a lower bound on P and an upper one on P', half of the failure for each."""
    likelier, other = _ordered(event, first, second)
    failure = (1 - confidence) / 2
    often = clopper_pearson_lower(event.hits(likelier), len(likelier), failure) - delta
    seldom = clopper_pearson_upper(event.hits(other), len(other), failure)
    return math.log(often / seldom) if often > 0 else -math.inf


def _ordered(
    event: DistinguishingEvent, first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (second, first) if event.swapped else (first, second)


def _events(first: NDArray[np.float64], second: NDArray[np.float64]) -> Iterator[DistinguishingEvent]:
    """Yield both tails and the atoms, at every value seen, or at quantiles where there are many."""
    ordered = np.sort(np.concatenate([first, second]))
    values = np.unique(ordered)
    if len(values) > THRESHOLDS:
        # With repetitions, so that a value of some mass is among them.
        values = np.unique(ordered[np.linspace(0, len(ordered) - 1, THRESHOLDS).astype(int)])
    relations: tuple[Relation, ...] = ("at_least", "at_most", "equal")
    for threshold in values:
        for relation in relations:
            for swapped in (False, True):
                yield DistinguishingEvent(relation, float(threshold), swapped)
