"""Figures with their 95 % intervals: differences of two samples, and how results pages write both."""

import random
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import TypeVar

Value = TypeVar("Value")


def interval_of_difference(
    values: Sequence[Value],
    usual: Sequence[Value],
    difference: Callable[[Sequence[Value], Sequence[Value]], float],
    seed: int,
    rounds: int = 2000,
) -> list[float]:
    """Return how one sample differs from another, and a 95 % percentile interval over both drawn with replacement."""
    source = random.Random(seed)
    drawn = sorted(
        difference(source.choices(values, k=len(values)), source.choices(usual, k=len(usual))) for _ in range(rounds)
    )
    return [difference(values, usual), drawn[round(0.025 * rounds)], drawn[round(0.975 * rounds) - 1]]


def difference_of_means(values: Sequence[float], usual: Sequence[float], seed: int) -> list[float]:
    """Return how much larger the mean of one sample is, with its interval."""
    return interval_of_difference(values, usual, lambda own, other: fmean(own) - fmean(other), seed)


def interval_of_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a mean and Student's 95 % interval of it; of one value, itself three times."""
    from scipy.stats import t as student  # slow to import

    middle = fmean(values)
    if len(values) < 2:
        return middle, middle, middle
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return middle, middle - half, middle + half


def rounded(values: Sequence[float]) -> list[float]:
    """Return a figure and its interval as lines of data keep them: to four digits behind the point."""
    return [round(float(value), 4) for value in values]


def written(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Return a figure and its interval as tables have them: `2.1 [1.6, 2.9]`; the unit stands behind the figure."""
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle}{unit} [{low}, {high}]"
