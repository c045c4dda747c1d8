"""Comparisons of two releases of insights: what is matched, and what is called a change."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tasks.systems.insights.compare import (
    ALPHA,
    LEAST_LIKENESS,
    LEAST_PAIRS,
    DifferenceNoise,
    InsightsComparison,
    ReleasedTopics,
    TopicChange,
    Verdict,
    common_levels,
    compare,
    holm,
    likenesses,
    match_topics,
    spread_of,
    student_p_value,
    topic_words,
)
from tasks.values.results import Insight, Topic
from tests.insights_rows import clusters_below, hostile, many, plausible, unmeasured

DEVIATION = 3.872983
SEED = 20261123


def topic(number: int, name: str, keywords: Sequence[str], size: int | None = 100) -> Insight:
    return Insight(number, None, 0, Topic(name, ""), tuple(keywords), size)


def released(
    nodes: Sequence[Insight], deviation: float | None = DEVIATION, population: int | None = None
) -> ReleasedTopics:
    return ReleasedTopics(tuple(nodes), deviation, population)


def sized(nodes: Sequence[Insight], sizes: Sequence[int]) -> tuple[Insight, ...]:
    """Clusters with other sizes, in their order, and groups with the sums of them."""
    given_sizes = iter(sizes)
    changed = [replace(node, size=0 if node.level else int(next(given_sizes))) for node in nodes]
    for node in reversed(changed):
        if node.parent is not None:
            above = changed[node.parent - 1]
            changed[node.parent - 1] = replace(above, size=(above.size or 0) + (changed[node.number - 1].size or 0))
    return tuple(changed)


def verdicts(result: InsightsComparison) -> Counter[str]:
    return Counter(str(change.verdict) for change in result.changes)


# --- matching ----------------------------------------------------------------------------------------------


def test_words_are_compared_without_case_plural_and_words_that_say_nothing() -> None:
    first = topic(1, "Questions about Tax OFFICES", ("tax office", "Refund"))
    assert topic_words(first) == {"tax", "office", "refund"}
    assert topic_words(topic(2, "Without keywords", ())) == frozenset()


def test_likeness_is_the_jaccard_similarity() -> None:
    sets = [{"a", "b"}, {"b", "c", "d"}, set(), {"a", "b"}]
    table = likenesses(sets, sets)
    expected = [[len(x & y) / len(x | y) if x | y else 0.0 for y in sets] for x in sets]
    assert table == pytest.approx(np.array(expected))
    assert likenesses([], sets).shape == (0, 4)
    assert likenesses(sets, []).shape == (4, 0)


def test_every_topic_of_a_release_is_matched_with_itself() -> None:
    matches = match_topics(plausible(), plausible())
    assert [(old, new) for old, new, _ in matches] == [(number, number) for number in range(len(plausible()))]
    assert {likeness for *_, likeness in matches} == {1.0}


def test_the_sum_of_likenesses_decides_and_not_the_first_best_pair() -> None:
    """The most alike pair alone would leave the other two with hardly a word in common."""
    old = [topic(1, "", ("kettle", "tomato", "violin")), topic(2, "", ("kettle", "tomato", "boat", "rain"))]
    new = [topic(1, "", ("kettle", "tomato", "violin", "boat")), topic(2, "", ("kettle", "violin", "snow"))]
    first = likenesses([topic_words(one) for one in old], [topic_words(one) for one in new])
    assert first[0, 0] == first.max()
    assert [pair[:2] for pair in match_topics(old, new)] == [(0, 1), (1, 0)]


def test_a_pair_below_the_threshold_is_none_and_one_at_it_is() -> None:
    old = [topic(1, "", ("kettle", "tomato", "boat"))]
    assert match_topics(old, [topic(1, "", ("kettle", "violin", "rain"))]) == [(0, 0, LEAST_LIKENESS)]
    assert match_topics(old, [topic(1, "", ("kettle", "violin", "rain", "snow"))]) == []


def test_topics_of_different_levels_are_never_matched() -> None:
    nodes = plausible()
    group = nodes[0]
    lone = replace(group, level=0, number=1)
    result = compare(released(nodes), released([lone]))
    assert result.levels == (0,)
    assert result.uncompared == (1,)
    assert all(change.old.insight.level == 0 for change in result.changes)


def test_releases_without_topics_have_nothing_to_compare() -> None:
    assert common_levels((), ()) == (0,)
    empty = released(())
    assert compare(empty, empty).changes == ()
    result = compare(empty, released(plausible()))
    assert len(result.new) == 14
    assert compare(released(plausible()), empty).gone == result.new


WORDS = st.sampled_from(["kettle", "tomato", "violin", "tax", "boat", "rain", "\u202e", "", "שאלות"])
NODES = st.lists(
    st.builds(topic, st.just(1), WORDS, st.lists(WORDS, max_size=4), st.none() | st.integers(-50, 500)), max_size=6
)


@given(NODES, NODES)
def test_matches_are_one_to_one_and_nothing_is_lost(old: list[Insight], new: list[Insight]) -> None:
    numbered = [[replace(node, number=place) for place, node in enumerate(side, 1)] for side in (old, new)]
    result = compare(released(numbered[0]), released(numbered[1]))
    before = [change.old.insight.number for change in result.changes] + [one.insight.number for one in result.gone]
    after = [change.new.insight.number for change in result.changes] + [one.insight.number for one in result.new]
    assert sorted(before) == list(range(1, len(old) + 1))
    assert sorted(after) == list(range(1, len(new) + 1))
    for change in result.changes:
        assert 0.2 <= change.likeness <= 1
        assert (change.verdict is None) == (change.deviation is None)


@pytest.mark.parametrize("nodes", [hostile(), unmeasured(), many(60, 8)])
def test_rows_of_every_shape_can_be_compared(nodes: tuple[Insight, ...]) -> None:
    result = compare(released(nodes), released(nodes))
    assert result.new == result.gone
    assert {change.old for change in result.changes} == {change.new for change in result.changes}
    assert not {Verdict.GREW, Verdict.SHRANK} & {change.verdict for change in result.changes}


# --- noise -------------------------------------------------------------------------------------------------


def test_a_group_has_the_noise_of_all_clusters_below_it() -> None:
    nodes = hostile()
    assert clusters_below(nodes) == [3, 1, 2, 1, 1, 1]
    result = compare(released(plausible()), released(plausible(), 2.0))
    group = result.changes[-1]
    assert group.old.insight.level == 1
    for change in result.changes:
        clusters = clusters_below(plausible())[change.old.insight.number - 1]
        assert change.deviation == pytest.approx(math.sqrt(clusters * (DEVIATION**2 + 4)))


def test_the_difference_is_in_units_of_the_noise_of_both_sides() -> None:
    nodes = many(10, 0)
    result = compare(released(nodes, 3.0), released(sized(nodes, [(node.size or 0) + 10 for node in nodes]), 4.0))
    assert {(change.difference, change.deviation, change.z) for change in result.changes} == {(10, 5.0, 2.0)}


def test_holm_is_step_down() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("t", [0.0, 1e-9, 0.5, -2.0, 3.182446, 40.0, 2e4])
def test_students_tail_is_scipys(t: float) -> None:
    assert student_p_value(t) == pytest.approx(2 * stats.t.sf(abs(t), 3), rel=1e-3, abs=1e-15)


def test_the_noise_of_integers_is_tested_with_their_steps() -> None:
    """The p-value of a difference covers the whole step of that integer, so it is no smaller than the exact one."""
    deviation = math.sqrt(2) * 2.5
    support = np.arange(-200, 201)
    mass = np.exp(-(support**2) / (2 * 2.5**2))
    both = np.convolve(mass / mass.sum(), mass / mass.sum())
    for difference in (1, 5, 7, 11, 15):
        exact = both[np.abs(np.arange(-400, 401)) >= difference].sum()
        stated = DifferenceNoise((100, 100 + difference), (2.5, 2.5)).p_value
        assert exact <= stated <= 1.15 * exact
    assert DifferenceNoise((5, 5), (2.5, 2.5)).p_value == 1.0
    assert DifferenceNoise((0, 7), (2.5, 2.5)).deviation == pytest.approx(deviation)


def test_exact_sizes_have_no_noise_and_any_difference_is_one() -> None:
    noise = DifferenceNoise((100, 101), (0.0, 0.0))
    assert (noise.p_value, DifferenceNoise((7, 7), (0.0, 0.0)).p_value) == (0.0, 1.0)
    nodes = many(12, 0)
    grown = sized(nodes, [(node.size or 0) + (node.number == 4) * 300 for node in nodes])
    result = compare(released(nodes, 0.0), released(grown, 0.0))
    assert verdicts(result) == {"grew": 1, "no change beyond noise": 11}
    assert {change.z for change in result.changes} == {None}


@pytest.mark.parametrize(("old", "new"), [(None, 3.0), (3.0, None), (None, None)])
def test_without_stated_noise_there_is_no_verdict(old: float | None, new: float | None) -> None:
    doubled = [2 * (node.size or 0) for node in plausible() if node.level == 0]
    result = compare(released(plausible(), old), released(sized(plausible(), doubled), new))
    assert verdicts(result) == {"None": 18}
    assert all(change.difference and change.z is None and change.p_value is None for change in result.changes)


def test_without_a_size_there_is_no_difference() -> None:
    result = compare(released(unmeasured()), released(unmeasured()))
    assert {(change.difference, change.verdict) for change in result.changes} == {(None, None)}


def test_shares_need_two_declared_numbers_that_differ() -> None:
    nodes = many(10, 0)
    for populations in ((None, 4000), (4000, None), (4000, 4000)):
        sides = [released(nodes, 4.0, population) for population in populations]
        assert {change.shares for change in compare(*sides).changes} == {None}
    change = compare(released(nodes, 4.0, 1000), released(nodes, 4.0, 2000)).changes[0]
    size = change.old.insight.size
    assert size is not None
    assert change.shares is not None
    assert (change.shares.old, change.shares.new) == (size / 1000, size / 2000)
    assert (change.shares.old_deviation, change.shares.new_deviation) == (0.004, 0.002)


# --- Monte Carlo -------------------------------------------------------------------------------------------


def discrete_gaussian(generator: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> np.ndarray:
    """Discrete Gaussian noise by its own distribution; for statistics of tests alone."""
    support = np.arange(-math.ceil(12 * deviation), math.ceil(12 * deviation) + 1)
    mass = np.exp(-(support**2) / (2 * deviation**2))
    return generator.choice(support, shape, p=mass / mass.sum())


COUNTS = np.array([410, 385, 350, 300, 260, 240, 200, 170, 150, 120, 100, 80, 60, 40])
RUNS = 400


def drawn(generator: np.random.Generator, counts: Sequence[int], runs: int) -> list[tuple[Insight, ...]]:
    noise = discrete_gaussian(generator, DEVIATION, (runs, len(counts)))
    return [sized(plausible(), np.asarray(counts) + row) for row in noise]


def is_beyond_noise(change: TopicChange) -> bool:
    return change.p_value is not None and change.p_value <= ALPHA


@pytest.mark.statistical
def test_equal_counts_have_a_verdict_in_one_run_of_twenty_at_most() -> None:
    generator = np.random.default_rng(SEED)
    pairs = zip(drawn(generator, COUNTS, RUNS), drawn(generator, COUNTS, RUNS), strict=True)
    results = [compare(released(old), released(new)) for old, new in pairs]
    beyond_noise = sum(any(is_beyond_noise(change) for change in result.changes) for result in results)
    assert beyond_noise <= stats.binom.ppf(0.999, RUNS, ALPHA)
    wrong = sum(any(change.verdict and change.verdict.is_change for change in result.changes) for result in results)
    assert wrong <= 0.01 * RUNS  # the second test leaves fewer


@pytest.mark.statistical
def test_without_the_correction_equal_counts_would_have_verdicts() -> None:
    """The correction is not idle: single tests at the same level reject in half of the runs."""
    generator = np.random.default_rng(SEED)
    pairs = zip(drawn(generator, COUNTS, 100), drawn(generator, COUNTS, 100), strict=True)
    single = 0
    for old, new in pairs:
        tests = [
            DifferenceNoise((a.size or 0, b.size or 0), (DEVIATION, DEVIATION))
            for a, b in zip(old, new, strict=True)
            if a.level == 0
        ]
        single += any(test.p_value <= ALPHA for test in tests)
    assert single > 25


@pytest.mark.statistical
@pytest.mark.parametrize(("place", "factor", "verdict"), [(3, 2.0, "grew"), (0, 0.5, "shrank"), (8, 2.0, "grew")])
def test_a_doubled_or_halved_topic_is_found(place: int, factor: float, verdict: str) -> None:
    generator = np.random.default_rng(SEED)
    changed = COUNTS.copy()
    changed[place] = round(changed[place] * factor)
    pairs = zip(drawn(generator, COUNTS, 50), drawn(generator, changed, 50), strict=True)
    hits = 0
    for old, new in pairs:
        result = compare(released(old), released(new))
        number = next(node.number for node in old if node.level == 0) + place
        (change,) = [one for one in result.changes if one.old.insight.number == number]
        hits += str(change.verdict) == verdict
    assert hits >= 49


# --- redrawn clusters --------------------------------------------------------------------------------------


def redrawn(generator: np.random.Generator, counts: np.ndarray, spread: float) -> np.ndarray:
    """Sizes of clusters with other limits: log ratios with the tails that releases of one corpus have."""
    return np.rint(counts * np.exp(spread * generator.standard_t(3, len(counts)) / 1.134)).astype(int)


@pytest.mark.statistical
def test_redrawn_clusters_are_no_change_though_noise_alone_would_call_them_one() -> None:
    generator = np.random.default_rng(SEED)
    nodes, counts = many(40, 0), generator.integers(60, 600, 40)
    told = {"noise": 0, "both": 0}
    for _ in range(100):
        noise = discrete_gaussian(generator, DEVIATION, (2, 40))
        old, new = sized(nodes, counts + noise[0]), sized(nodes, redrawn(generator, counts, 0.3) + noise[1])
        result = compare(released(old), released(new))
        told["noise"] += any(is_beyond_noise(change) for change in result.changes)
        told["both"] += any(change.verdict and change.verdict.is_change for change in result.changes)
    assert told["noise"] == 100
    assert told["both"] <= stats.binom.ppf(0.999, 100, ALPHA)


def test_the_spread_is_that_of_the_ratios_beyond_noise() -> None:
    generator = np.random.default_rng(SEED)
    ratios = generator.normal(0.7, 0.3, 4000)
    noises = [DifferenceNoise((10_000, round(10_000 * math.exp(ratio))), (100.0, 100.0)) for ratio in ratios]
    assert spread_of(noises) == pytest.approx(0.3, rel=0.05)  # and a common growth is no spread
    assert spread_of([DifferenceNoise((500, 503), (4.0, 4.0))] * 20) == 0.0
    assert spread_of(noises[: LEAST_PAIRS - 1]) is None


def test_too_few_pairs_have_no_spread_and_no_topic_passes() -> None:
    nodes = many(LEAST_PAIRS - 1, 0)
    doubled = sized(nodes, [2 * (node.size or 0) for node in nodes])
    result = compare(released(nodes), released(doubled))
    assert result.spread is None
    assert not verdicts(result)["grew"]
    assert verdicts(result)["may be redrawn clusters"]
    assert all(is_beyond_noise(change) for change in result.changes)


def test_a_corpus_that_doubled_grew_in_every_topic() -> None:
    doubled = sized(plausible(), [2 * (node.size or 0) for node in plausible() if node.level == 0])
    assert verdicts(compare(released(plausible()), released(doubled)))["grew"] == 18


def test_sizes_below_one_and_of_every_range_are_no_error() -> None:
    nodes = many(12, 0)
    extremes = [-(2**53) + 1, 2**53 - 1, 0, -1, 1, 2, 3, 4, 5, 6, 7, 8]
    for deviations in ((0.0, 0.0), (1e-9, 2.0**52), (3.0, 3.0)):
        sides = released(nodes, deviations[0]), released(sized(nodes, extremes), deviations[1])
        for change in compare(*sides).changes:
            assert change.p_value is not None
            assert 0 <= change.p_value <= 1
            assert change.redrawn_p_value is not None
            assert 0 <= change.redrawn_p_value <= 1
