"""Confidence intervals of figures, 95 %: Wilson's of shares, jackknife of distinct occurrences, bootstrap of the rest.

Jackknife intervals (95 %) of figures that count distinct occurrences. A bootstrap resample repeats texts and so lacks
what the others had; leaving a few texts out at a time does less harm. The delete-a-group jackknife: Shao and Tu, "The
Jackknife and Bootstrap", 1995, section 2.3; Kott, "The Delete-a-Group Jackknife", Journal of Official Statistics 17,
2001.

Percentile bootstrap intervals of figures over texts, 95 %. Efron and Tibshirani, "An Introduction to the Bootstrap",
1993, section 13.3. The generator is an ordinary one with a fixed start: these intervals touch released texts or
internal figures only, and a figure should come out the same twice.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95

Interval: TypeAlias = tuple[float, float]
"""Low end and high end."""


def wilson(right: float, tested: int) -> Interval:
    """Wilson's score interval of a proportion, 95 %: the test items are a sample (Wilson, JASA 22, 1927).

    Args:
        right: how many were right; a mean over runs on the same items need not be whole.
        tested: how many there were, at least 1.
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, weight = right / tested, z * z / tested
    middle = (share + weight / 2) / (1 + weight)
    half = math.sqrt(weight * share * (1 - share) + weight * weight / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


def over_seeds(accuracies: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean over seeds, 95 %, inside [0, 1]: the demonstrations are a sample.

    None for fewer than two seeds. With three the factor is 4.3: it is wide because three are few.
    """
    from scipy.stats import t  # slow to import, and only few metrics have seeds

    count = len(accuracies)
    if count < 2:
        return None
    mean = sum(accuracies) / count
    variance = sum((accuracy - mean) ** 2 for accuracy in accuracies) / (count - 1)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * math.sqrt(variance / count)
    return max(0.0, mean - half), min(1.0, mean + half)


GROUPS = 20
JACKKNIFE = f"95 % jackknife over {GROUPS} groups of texts on each side, Student's t"


def share_interval(figure: float, *without: Sequence[float]) -> Interval | None:
    """Return the interval of a figure between 0 and 1; None if a sample has fewer than two groups.

    Args:
        figure: of everything.
        without: for each independent sample, the figure without each of its groups.
    """
    from scipy.stats import t  # slow to import

    fewest = min(map(len, without))
    if fewest < 2:
        return None
    variance = sum((len(figures) - 1) * float(np.var(figures)) for figures in without)
    half = float(t.ppf((1 + CONFIDENCE) / 2, fewest - 1)) * math.sqrt(variance)
    return max(0.0, figure - half), min(1.0, figure + half)


RESAMPLES = 1000
BOOTSTRAP = f"95 % percentile bootstrap over texts, {RESAMPLES} resamples, fixed ordinary random start"

Picks = NDArray[np.int64]
"""int64 [n]: which items a resample consists of, each below n."""

_AT_ONCE = 2_000_000  # indices that exist at one time


def of_mean(values: ArrayLike) -> Interval | None:
    """Return the interval of the mean of `values`, real [n]; None below two."""
    array = np.asarray(values, np.float64)
    return _ends([array[picks].mean(1) for picks in _resamples(len(array))])


def of_ratio(above: ArrayLike, below: ArrayLike) -> Interval | None:
    """Return the interval of sum(above) / sum(below), real [n] each and below >= 0; None below two items.

    Resamples in which `below` sums to zero have no ratio and are left out.
    """
    numerator, denominator = np.asarray(above, np.float64), np.asarray(below, np.float64)
    if numerator.shape != denominator.shape:
        raise ValueError(f"{numerator.shape} numerators for {denominator.shape} denominators")
    ratios = []
    for picks in _resamples(len(numerator)):
        sums = denominator[picks].sum(1)
        ratios.append(numerator[picks].sum(1)[sums > 0] / sums[sums > 0])
    return _ends(ratios)


def of_statistic(count: int, statistic: Callable[[Picks], float], resamples: int = RESAMPLES) -> Interval | None:
    """Return the interval of any figure of a resample of `count` items; None below two items.

    Args:
        statistic: of int64 [count], which items the resample has; values that are not finite are left out.
        resamples: how many; fewer than the usual only where a statistic is slow, and then the method must say so.
    """
    return _ends([np.array([statistic(pick) for pick in picks]) for picks in _resamples(count, resamples)])


def of_two(
    first: int, second: int, statistic: Callable[[Picks, Picks], float], resamples: int = RESAMPLES
) -> Interval | None:
    """Return the interval of a figure of two independent samples, both resampled; None below two items in either.

    Args:
        statistic: of int64 [first] and int64 [second], which items of each the resample has.
        resamples: as in `of_statistic`.
    """
    return _ends([_of_pairs(first, second, statistic, resamples)])


def around(
    figure: float, first: int, second: int, statistic: Callable[[Picks, Picks], float], resamples: int = RESAMPLES
) -> Interval | None:
    """Return the interval of `of_two`, moved so that the resamples' mean lies on `figure`; never negative.

    A resample repeats items and leaves a third of them out. Figures that compare spreads, clusters or what is rare
    find it worse than the sample, by about as much as they find the sample worse than what it was drawn from, so only
    the spread of the resamples tells something (Efron and Tibshirani, section 10.2, on the bootstrap's bias).
    """
    figures = _of_pairs(first, second, statistic, resamples)
    ends = _ends([figures])
    if ends is None:
        return None
    moved = figure - float(figures[np.isfinite(figures)].mean())
    return max(0.0, min(ends[0] + moved, figure)), max(ends[1] + moved, figure)


def _of_pairs(
    first: int, second: int, statistic: Callable[[Picks, Picks], float], resamples: int
) -> NDArray[np.float64]:
    """Return the figure of every resample of both samples; none if either has fewer than two items."""
    if min(first, second) < 2:
        return np.empty(0)
    generator = np.random.default_rng(0)
    drawn = ((generator.integers(first, size=first), generator.integers(second, size=second)) for _ in range(resamples))
    return np.array([statistic(*picks) for picks in drawn])


def _resamples(count: int, resamples: int = RESAMPLES) -> Iterator[NDArray[np.int64]]:
    """Yield all resamples, some rows at a time: int64 [some, count]; none at all below two items."""
    if count < 2:
        return
    generator = np.random.default_rng(0)
    rows = max(1, _AT_ONCE // count)
    for start in range(0, resamples, rows):
        yield generator.integers(count, size=(min(rows, resamples - start), count))


def _ends(figures: list[NDArray[np.float64]]) -> Interval | None:
    joined = np.concatenate(figures) if figures else np.empty(0)
    finite = joined[np.isfinite(joined)]
    if not len(finite):
        return None
    low, high = np.quantile(finite, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
