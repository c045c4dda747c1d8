"""Jackknife intervals (95 %) of figures that count distinct occurrences.

A bootstrap resample repeats texts and so lacks what the others had; leaving a few texts out at a time does less harm.
The delete-a-group jackknife: Shao and Tu, "The Jackknife and Bootstrap", 1995, section 2.3; Kott, "The Delete-a-Group
Jackknife", Journal of Official Statistics 17, 2001.
"""

import math
from collections.abc import Sequence

import numpy as np

from tasks.evaluation.core.intervals import CONFIDENCE, Interval

GROUPS = 20
METHOD = f"95 % jackknife over {GROUPS} groups of texts on each side, Student's t"


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
