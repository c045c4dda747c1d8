"""Comparison of two releases of insights: topics matched by their words, sizes compared with the noise of both sides.

Post-processing (PRIVACY §5): released rows and public facts of the plans go in, nothing is read from a corpus, and
nothing is charged.

Matching. The words of a topic are those of its name and its keywords, case folded, without stop words, vague words and
English plural endings; a topic without keywords has none, because its name was written from nothing. The likeness of
two topics is the Jaccard similarity of their words (Jaccard, "The distribution of the flora in the alpine zone", 1912).
Pairs of one level are chosen one to one so that the sum of their likenesses is largest, of pairs at or above a
threshold alone (linear sum assignment: Crouse, "On implementing 2D rectangular assignment algorithms", 2016).

Verdicts need two tests, each at `ALPHA` over all pairs of a comparison, corrected by Holm, "A simple sequentially
rejective multiple test procedure", 1979, which holds under any dependence of the pairs.

1. Noise. The size of a cluster bears discrete Gaussian noise of a stated standard deviation s; that of a group of n
   clusters sqrt(n) s, and the difference of two releases, whose noise is independent, the root of the sum of both
   squares. The hypothesis is that the counts behind both sizes are equal. The p-value is two-sided and normal, with the
   difference of integers taken half a unit smaller (continuity correction). Of comparisons with equal counts at most
   one in twenty has any difference beyond noise.
2. Redrawn clusters. Each release draws its clusters anew, so the same units lie in clusters with other limits, and
   sizes differ by far more than noise: docs/insights-compare.md has figures. The pairs themselves show by how much (an
   empirical null: Efron, "Large-scale simultaneous hypothesis testing", 2004): the spread of the log ratios of sizes
   about their median, beyond noise, by the median absolute deviation. The log ratio of a pair is compared with noise
   and spread together in Student's t distribution with 3 degrees of freedom, because the tails of redrawn clusters are
   that long (for t as a robust model: Lange, Little, Taylor, "Robust statistical modeling using the t distribution",
   1989). With fewer than `LEAST_PAIRS` pairs nothing is estimated, and no topic passes.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tasks.text.words import VAGUE_WORDS, roots
from tasks.values.results import MIXED, UNNAMED, Insight

ALPHA: Final = 0.05
"""The largest probability that a test rejects any true hypothesis of a comparison (family-wise error rate)."""
LEAST_LIKENESS: Final = 0.2
"""The smallest likeness of a matched pair."""
LEAST_PAIRS: Final = 8
"""The fewest pairs from which the spread of redrawn clusters is estimated."""
_CONTINUITY: Final = 0.5
_NORMAL_QUARTILE: Final = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
_WIDEST_SPREAD: Final = 100.0


class Verdict(StrEnum):
    """Result of the test of a matched pair."""

    GREW = "grew"
    SHRANK = "shrank"
    UNCHANGED = "no change beyond noise"
    REDRAWN = "may be redrawn clusters"

    @property
    def is_change(self) -> bool:
        """Return whether the topic grew or shrank."""
        return self in (Verdict.GREW, Verdict.SHRANK)


@dataclass(frozen=True)
class ReleasedTopics:
    """One side of a comparison.

    Attributes:
        insights: the rows of the release, numbered from 1, parents before their children.
        deviation: standard deviation of the noise in the size of a cluster, in units; 0 if sizes are exact, None
            where the release does not state it.
        population: the declared, public number of units that the release read; None if there is none.
    """

    insights: tuple[Insight, ...]
    deviation: float | None
    population: int | None = None


@dataclass(frozen=True)
class SizedTopic:
    """A topic with the standard deviation of its size, in units; None if size or noise is not known."""

    insight: Insight
    deviation: float | None


@dataclass(frozen=True)
class Shares:
    """Sizes of a matched pair divided by the declared numbers of units, with the standard deviation of each."""

    old: float
    new: float
    old_deviation: float | None
    new_deviation: float | None


@dataclass(frozen=True)
class TopicChange:
    """A matched pair.

    Attributes:
        likeness: Jaccard similarity of the words of both, in (0, 1].
        difference: new size less old size, in units; None if one of them was not measured.
        deviation: standard deviation of the noise in `difference`; None if a side does not state its noise.
        z: `difference` in units of `deviation`; None without a deviation above 0.
        p_value: probability of so large a difference, or a larger one, from the noise alone, corrected by Holm.
        redrawn_p_value: probability of so large a ratio, or a larger one, from noise and redrawn clusters, corrected by
            Holm; None if the spread of redrawn clusters is not estimated.
        verdict: None if there is no deviation to compare with.
        shares: None unless both releases declare how many units they read, and these numbers differ.
    """

    old: SizedTopic
    new: SizedTopic
    likeness: float
    difference: int | None
    deviation: float | None
    z: float | None
    p_value: float | None
    redrawn_p_value: float | None
    verdict: Verdict | None
    shares: Shares | None


@dataclass(frozen=True)
class InsightsComparison:
    """Differences of two releases of insights.

    Attributes:
        levels: the levels that were compared, clusters (0) first.
        uncompared: levels that one release has and the other has not.
        changes: matched pairs in the order of the old release.
        new, gone: topics of the compared levels that the other release has no match for.
        spread: standard deviation of the log ratio of sizes by which matched topics differ beyond noise, about the
            median of all pairs; None if it was not estimated.
    """

    levels: tuple[int, ...]
    uncompared: tuple[int, ...]
    changes: tuple[TopicChange, ...]
    new: tuple[SizedTopic, ...]
    gone: tuple[SizedTopic, ...]
    spread: float | None


def common_levels(old: Sequence[Insight], new: Sequence[Insight]) -> tuple[int, ...]:
    """Return the levels that both releases have, ascending; that of clusters always."""
    return tuple(sorted({0} | ({node.level for node in old} & {node.level for node in new})))


def compare(old: ReleasedTopics, new: ReleasedTopics) -> InsightsComparison:
    """Compare two releases, level by level; the correction for many pairs is over all levels that both have."""
    levels = common_levels(old.insights, new.insights)
    pairs: list[tuple[SizedTopic, SizedTopic, float]] = []
    only_new: list[SizedTopic] = []
    only_old: list[SizedTopic] = []
    for level in levels:
        before, after = (_topics_of_level(side, level) for side in (old, new))
        matches = match_topics([topic.insight for topic in before], [topic.insight for topic in after])
        pairs += [(before[row], after[column], likeness) for row, column, likeness in matches]
        only_old += _unmatched_topics(before, {row for row, _, _ in matches})
        only_new += _unmatched_topics(after, {column for _, column, _ in matches})
    noises = [_noise(before, after) for before, after, _ in pairs]
    spread = spread_of([noise for noise in noises if noise is not None])
    tests = _difference_tests(noises, spread)
    shares = _shares_of(old.population, new.population)
    return InsightsComparison(
        levels=levels,
        uncompared=tuple(sorted({node.level for side in (old, new) for node in side.insights} - set(levels))),
        changes=tuple(_topic_change(pair, test, shares(*pair[:2])) for pair, test in zip(pairs, tests, strict=True)),
        new=tuple(only_new),
        gone=tuple(only_old),
        spread=spread,
    )


def match_topics(old: Sequence[Insight], new: Sequence[Insight]) -> list[tuple[int, int, float]]:
    """Match topics one to one by their words; the sum of likenesses is the largest that there is.

    Returns:
        (place in `old`, place in `new`, likeness) of each pair with at least `LEAST_LIKENESS`, in the order of `old`.
    """
    likeness = likenesses([topic_words(topic) for topic in old], [topic_words(topic) for topic in new])
    likeness[likeness < LEAST_LIKENESS] = 0
    rows, columns = np.flatnonzero(likeness.any(1)), np.flatnonzero(likeness.any(0))
    if not len(rows):
        return []
    from scipy.optimize import linear_sum_assignment  # slow to import

    chosen = zip(*linear_sum_assignment(likeness[np.ix_(rows, columns)], maximize=True), strict=True)
    pairs = [(int(rows[row]), int(columns[column])) for row, column in chosen]
    return [(row, column, float(likeness[row, column])) for row, column in pairs if likeness[row, column] > 0]


def topic_words(insight: Insight) -> frozenset[str]:
    """Return the words of a topic's name and keywords; none for a topic without keywords.

    >>> from tasks.values.results import Topic
    >>> tax = Insight(1, None, 0, Topic("Questions about Tax offices", ""), ("tax office", "refunds"), 40)
    >>> sorted(topic_words(tax))
    ['office', 'refund', 'tax']
    """
    if not insight.keywords:
        return frozenset()
    name = () if insight.topic.name in (MIXED, UNNAMED) else (insight.topic.name,)
    words = roots("\n".join((*name, *insight.keywords)))
    return frozenset(word for word in words if word not in VAGUE_WORDS)


def likenesses(old: Sequence[Collection[str]], new: Sequence[Collection[str]]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of each two sets of words, float64 [len(old), len(new)]; 0 for two empty ones."""
    from scipy.sparse import csr_array  # slow to import

    vocabulary = {word: place for place, word in enumerate(sorted({word for words in (*old, *new) for word in words}))}

    def indicators(sets: Sequence[Collection[str]]) -> csr_array:
        ends = np.cumsum([0, *map(len, sets)])
        places = [vocabulary[word] for words in sets for word in words]
        return csr_array((np.ones(len(places)), places, ends), shape=(len(sets), max(1, len(vocabulary))))

    shared: NDArray[np.float64] = (indicators(old) @ indicators(new).T).toarray()
    union = np.add.outer([len(words) for words in old], [len(words) for words in new]) - shared
    similarity: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return similarity


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979): those at most ALPHA are rejected together.

    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


@dataclass(frozen=True)
class DifferenceNoise:
    """Sizes of a matched pair, and the standard deviations of their noise, in units."""

    sizes: tuple[int, int]
    deviations: tuple[float, float]

    @property
    def difference(self) -> int:
        """New size less old size."""
        return self.sizes[1] - self.sizes[0]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in the difference."""
        return math.hypot(*self.deviations)

    @property
    def p_value(self) -> float:
        """Two-sided probability that noise alone makes an integer difference of that size or a larger one."""
        if self.deviation == 0:
            return 0.0 if self.difference else 1.0
        return math.erfc(max(abs(self.difference) - _CONTINUITY, 0.0) / (self.deviation * math.sqrt(2)))

    @property
    def log_ratio(self) -> float:
        """Logarithm of new size by old size; sizes below one unit count as one."""
        return math.log(max(self.sizes[1], 1) / max(self.sizes[0], 1))

    @property
    def log_variance(self) -> float:
        """Variance of the noise in the log ratio, to first order."""
        return math.fsum((noise / max(size, 1)) ** 2 for size, noise in zip(self.sizes, self.deviations, strict=True))

    def redrawn_p_value(self, spread: float) -> float:
        """Two-sided probability of so large a log ratio from noise and redrawn clusters of that spread."""
        scale = math.sqrt(self.log_variance + spread**2)
        if scale == 0:
            return 1.0 if self.log_ratio == 0 else 0.0
        return student_p_value(self.log_ratio / scale)


def student_p_value(t: float) -> float:
    """Return the two-sided tail probability of Student's t distribution with 3 degrees of freedom.

    >>> round(student_p_value(3.182446), 6)
    0.05
    """
    if t == 0:
        return 1.0
    x = abs(t) / math.sqrt(3)
    return min(1.0, max(0.0, (math.atan(1 / x) - x / (1 + x * x)) * 2 / math.pi))


def spread_of(noises: Sequence[DifferenceNoise]) -> float | None:
    """Return the spread of log ratios about their median beyond noise; None for fewer than `LEAST_PAIRS` pairs.

    It is the value at which the median of the deviations, each divided by the root of its noise's variance and the
    square of the spread, is that of a standard normal variable; 0 if noise alone explains the deviations.
    """
    if len(noises) < LEAST_PAIRS:
        return None
    ratios = np.array([noise.log_ratio for noise in noises])
    deviations, variances = np.abs(ratios - np.median(ratios)), np.array([noise.log_variance for noise in noises])

    def is_too_narrow(spread: float) -> bool:
        return bool(np.median(deviations - _NORMAL_QUARTILE * np.sqrt(variances + spread**2)) > 0)

    low, high = 0.0, _WIDEST_SPREAD  # log ratios of sizes below 2^60 are smaller
    if not is_too_narrow(low):
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if is_too_narrow(middle) else (low, middle)
    return high


def _topics_of_level(side: ReleasedTopics, level: int) -> list[SizedTopic]:
    """Return the topics of a level, each with the standard deviation of its size."""
    return [
        SizedTopic(
            node, None if side.deviation is None or node.size is None else side.deviation * math.sqrt(node.clusters)
        )
        for node in side.insights
        if node.level == level
    ]


def _unmatched_topics(topics: Sequence[SizedTopic], matched: Collection[int]) -> list[SizedTopic]:
    return [topic for place, topic in enumerate(topics) if place not in matched]


@dataclass(frozen=True)
class _Test:
    """Noise of a pair with both p-values, corrected; None if it is not known or not tested."""

    noise: DifferenceNoise | None
    p_value: float | None = None
    redrawn_p_value: float | None = None


def _difference_tests(noises: Sequence[DifferenceNoise | None], spread: float | None) -> list[_Test]:
    """Return the tests of all pairs of a comparison, corrected for their number."""
    tested = [noise for noise in noises if noise is not None]
    first: list[float | None] = [*holm([noise.p_value for noise in tested])]
    second: list[float | None] = [None] * len(tested)
    if spread is not None:
        second = [*holm([noise.redrawn_p_value(spread) for noise in tested])]
    results = zip(first, second, strict=True)
    return [_Test(None) if noise is None else _Test(noise, *next(results)) for noise in noises]


def _noise(old: SizedTopic, new: SizedTopic) -> DifferenceNoise | None:
    """Return the noise of a pair; None if a size or its noise is not known."""
    before, after = old.insight.size, new.insight.size
    if before is None or after is None or old.deviation is None or new.deviation is None:
        return None
    return DifferenceNoise((before, after), (old.deviation, new.deviation))


def _topic_change(pair: tuple[SizedTopic, SizedTopic, float], test: _Test, shares: Shares | None) -> TopicChange:
    old, new, likeness = pair
    before, after = old.insight.size, new.insight.size
    difference = None if before is None or after is None else after - before
    deviation = None if test.noise is None else test.noise.deviation
    return TopicChange(
        old=old,
        new=new,
        likeness=likeness,
        difference=difference,
        deviation=deviation,
        z=difference / deviation if difference is not None and deviation else None,
        p_value=test.p_value,
        redrawn_p_value=test.redrawn_p_value,
        verdict=_verdict(test),
        shares=shares,
    )


def _verdict(test: _Test) -> Verdict | None:
    if test.noise is None or test.p_value is None:
        return None
    if test.p_value > ALPHA:
        return Verdict.UNCHANGED
    if test.redrawn_p_value is None or test.redrawn_p_value > ALPHA:
        return Verdict.REDRAWN
    return Verdict.GREW if test.noise.difference > 0 else Verdict.SHRANK


def _shares_of(old: int | None, new: int | None) -> Callable[[SizedTopic, SizedTopic], Shares | None]:
    """Return a function that divides the sizes of a pair by two declared numbers of units that differ."""

    def shares(before: SizedTopic, after: SizedTopic) -> Shares | None:
        sizes = before.insight.size, after.insight.size
        if old is None or new is None or old == new or sizes[0] is None or sizes[1] is None:
            return None
        deviations = before.deviation, after.deviation
        return Shares(
            sizes[0] / old,
            sizes[1] / new,
            None if deviations[0] is None else deviations[0] / old,
            None if deviations[1] is None else deviations[1] / new,
        )

    return shares
