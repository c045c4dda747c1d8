"""Confidence intervals of a share: over test items, and over choices of demonstrations."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeAlias

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
