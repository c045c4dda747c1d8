"""Goodness of fit with power: the stated distribution is accepted, a nearby wrong one is rejected.

After tumult-core's noise tests: a test with a level alone would pass for any sampler if the sample were small
enough. So every distribution is tested twice, against what is stated and against something slightly wrong, with
these constants:
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from scipy.special import chdtrc, chdtri, chndtr

# Fewer false alarms than one in 10^9 runs of a test; what is wrong must be far beyond any doubt, too.
P_THRESHOLD = 1e-9
# Noise scales are rejected at 30 % too much or too little, temperatures at 5 %.
SCALE_ERROR = 0.3
TEMPERATURE_ERROR = 0.05
# Chi-square's approximation wants at least this many expected in a cell; smaller cells are pooled.
SMALLEST_CELL = 10


def p_value(sample: Iterable[int], probabilities: Mapping[int, float]) -> float:
    """Pearson's chi-square p-value of `sample` under `probabilities`; outcomes outside of them prove it wrong."""
    counts = Counter(sample)
    if set(counts) - set(probabilities):
        return 0.0
    total = sum(counts.values())
    statistic, cells, pooled_seen, pooled_expected = 0.0, 0, 0, 0.0
    for outcome, probability in sorted(probabilities.items(), key=lambda item: item[1]):
        pooled_seen, pooled_expected = pooled_seen + counts[outcome], pooled_expected + total * probability
        if pooled_expected >= SMALLEST_CELL:
            statistic += (pooled_seen - pooled_expected) ** 2 / pooled_expected
            cells, pooled_seen, pooled_expected = cells + 1, 0, 0.0
    if cells < 2:
        raise ValueError("fewer than two cells: the sample is too small to reject anything")
    # What is left over is below one cell: too little to test, and it is not hidden either.
    statistic += (pooled_seen - pooled_expected) ** 2 / SMALLEST_CELL
    return float(chdtrc(cells, statistic))


def two_sample_p_value(one: Iterable[int], other: Iterable[int]) -> float:
    """Pearson's chi-square p-value of two samples having one distribution, whatever it is.

    Outcomes that are too rare to be expected SMALLEST_CELL times in either sample are pooled.
    """
    ours, theirs = Counter(one), Counter(other)
    sizes = ours.total(), theirs.total()
    share = min(sizes) / sum(sizes)
    frequent = [x for x in ours.keys() | theirs.keys() if (ours[x] + theirs[x]) * share >= SMALLEST_CELL]
    cells = [(ours[x], theirs[x]) for x in frequent]
    rest = sizes[0] - sum(cell[0] for cell in cells), sizes[1] - sum(cell[1] for cell in cells)
    # A rest below one cell joins the smallest cell: too little to test, and it is not hidden either.
    if sum(rest) * share >= SMALLEST_CELL or not cells:
        cells.append(rest)
    else:
        cells.sort(key=sum)
        cells[0] = (cells[0][0] + rest[0], cells[0][1] + rest[1])
    if len(cells) < 2:
        raise ValueError("fewer than two cells: the samples are too small to tell anything apart")
    balance = math.sqrt(sizes[1] / sizes[0])
    statistic = sum((a * balance - b / balance) ** 2 / (a + b) for a, b in cells)
    return float(chdtrc(len(cells) - 1, statistic))


def miss_probability(truth: Mapping[int, float], tested: Mapping[int, float], trials: int) -> float:
    """How often `p_value` under `tested` stays above the threshold for samples of `truth`: one minus the power.

    Pearson's statistic is then noncentral chi-square; every cell must be large enough not to be pooled.
    """
    if min(tested.values()) * trials < SMALLEST_CELL:
        raise ValueError("the power of pooled cells is not computed")
    noncentrality = trials * math.fsum((truth[x] - tested[x]) ** 2 / tested[x] for x in tested)
    return float(chndtr(chdtri(len(tested), P_THRESHOLD), len(tested), noncentrality))


def softmax(scores: list[int], scale: float) -> dict[int, float]:
    """P(v) ~ exp(score / scale)."""
    top = max(scores)
    weights = [math.exp((score - top) / scale) for score in scores]
    mass = math.fsum(weights)
    return {index: weight / mass for index, weight in enumerate(weights)}


def discrete_gaussian(centre: int, sigma: float) -> dict[int, float]:
    """P(x) ~ exp(-(x - centre)^2 / (2 sigma^2)) on the integers within 12 sigma."""
    reach = math.ceil(12 * sigma)
    weights = {centre + x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-reach, reach + 1)}
    mass = math.fsum(weights.values())
    return {x: weight / mass for x, weight in weights.items()}


def discrete_laplace(centre: int, scale: float) -> dict[int, float]:
    """P(x) ~ exp(-|x - centre| / scale) on the integers within 40 scales."""
    reach, fall = math.ceil(40 * scale), math.exp(-1 / scale)
    return {centre + x: (1 - fall) / (1 + fall) * fall ** abs(x) for x in range(-reach, reach + 1)}
