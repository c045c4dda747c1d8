"""Share of the way from the public model to no privacy: right where it is known, none without a clear difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.evaluation.intervals import Picks
from tasks.rehearsal.measures import (
    NOT_DISTINGUISHED,
    REFERENCE_WORSE,
    Accuracy,
    Coverage,
    Mauve,
    PerplexityGap,
    cut_documents,
    embedded_measures,
    measure_share,
)
from tasks.rehearsal.result import MetricName
from tests.tiny_embedder import Letters


@dataclass(frozen=True)
class Means:
    """A metric that is the mean of one number for each text."""

    numbers: Sequence[NDArray[np.float64]]
    name: MetricName = "mauve"
    documents: int = 10

    @property
    def sizes(self) -> Sequence[int]:
        return [len(one) for one in self.numbers]

    def value(self, release: int, texts: Picks, documents: Picks) -> float:
        return float(self.numbers[release][texts].mean())

    def closeness(self, value: float) -> float:
        return value


def drawn(*means: float, spread: float = 0.1, count: int = 40) -> Means:
    generator = np.random.default_rng(1)
    return Means([mean + spread * generator.normal(size=count) for mean in means])


@pytest.mark.parametrize(("request_mean", "share"), [(0.0, 0), (0.5, 50), (1.0, 100), (1.5, 150), (-0.5, -50)])
def test_the_share_is_where_the_request_lies(request_mean: float, share: int) -> None:
    result = measure_share(drawn(0, request_mean, 1))
    assert result.share is not None
    assert result.low is not None
    assert result.high is not None
    assert abs(result.share - share) <= 6
    assert result.low <= result.share <= result.high
    assert result.low - 3 <= share <= result.high + 3
    assert result.high - result.low < 25


def test_references_that_are_not_told_apart_give_no_share() -> None:
    for measure in (drawn(0, 0.5, 0.05, spread=2), drawn(0.5, 0.5, 0.5, spread=0)):
        result = measure_share(measure)
        assert (result.share, result.low, result.high, result.reason) == (None, None, None, NOT_DISTINGUISHED)


def test_a_reference_that_is_worse_gives_no_share() -> None:
    result = measure_share(drawn(1, 0.5, 0))
    assert (result.share, result.reason) == (None, REFERENCE_WORSE)


def test_intervals_hold_the_true_share() -> None:
    """Of 60 samples with a true share of 40 %, about 95 % of the intervals hold it."""
    held = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        result = measure_share(Means([mean + 0.3 * generator.normal(size=24) for mean in (0.0, 0.4, 1.0)]))
        held += result.low is not None and result.high is not None and result.low <= 40 <= result.high
    assert held >= 52


def test_the_gap_is_closest_at_zero() -> None:
    """Texts may be too dull or too surprising; both are further from the documents."""
    per_token = {"dull": 1.0, "corpus": 3.0, "near": 2.5, "wild": 5.0}

    def score(texts: Sequence[str]) -> list[tuple[float, int]]:
        return [(-10 * (per_token[text.split()[0]] + 0.01 * len(text)), 10) for text in texts]

    def texts(word: str) -> list[str]:
        return [f"{word} {'x' * (number % 5)}" for number in range(12)]

    gap = PerplexityGap.of([texts("dull"), texts("wild"), texts("near")], texts("corpus"), score)
    assert gap is not None
    result = measure_share(gap)
    assert result.share is not None
    assert abs(float(result.request) - 2) < 0.05
    assert abs(result.share) <= 5
    assert PerplexityGap.of([[], texts("wild"), texts("near")], texts("corpus"), score) is None


def test_metrics_in_embedding_space_find_the_nearer_release() -> None:
    """Releases of letters that the documents have, of some of them, and of none."""
    held_out = ["abc", "aab", "bca", "cab", "abb", "acc", "bbc", "cca", "aabbcc", "abcabc", "ccab", "bacc"] * 2
    releases = [["xyz", "zzy", "yxx"] * 4, ["abz", "acy", "bcx"] * 4, ["abc", "acb", "aabc"] * 4]
    mauve, coverage = embedded_measures(releases, held_out, [None] * 12, [None] * 24, Letters())
    for measure in (mauve, coverage):
        values = [measure.value(number, np.arange(12), np.arange(24)) for number in range(3)]
        assert values[0] < values[2]
        assert list(measure.sizes) == [12, 12, 12]
    assert isinstance(mauve, Mauve)
    assert isinstance(coverage, Coverage)
    assert coverage.value(0, np.arange(12), np.arange(24)) == 0


def test_a_classifier_is_trained_where_texts_have_labels() -> None:
    held_out, true = ["aaa", "aab", "bbb", "bba"] * 3, ["first", "first", "second", "second"] * 3
    labels = ["first", "second"] * 6
    right, wrong = ["aaa", "bbb"] * 6, ["bbb", "aaa"] * 6
    *_, accuracy = embedded_measures([wrong, right, right], held_out, labels, true, Letters())
    assert isinstance(accuracy, Accuracy)
    values = [accuracy.value(number, np.arange(12), np.arange(12)) for number in range(3)]
    assert values == [0, 1, 1]
    assert len(embedded_measures([wrong, right, right[:3]], held_out, labels, true, Letters())) == 2


def test_documents_are_no_longer_than_the_longest_text() -> None:
    """All metrics compare like with like; a document is cut between words where it has any."""
    releases = [["one two"], ["one two three"], []]
    documents = ["one two three", "one two three four", "one two thre e", "unbrokenunbroken", "", "short"]
    assert cut_documents(documents, releases) == [
        "one two three", "one two three", "one two thre", "unbrokenunbro", "", "short",
    ]  # fmt: skip
    assert cut_documents(["word"], [[], [], []]) == [""]
