"""Audits of the histogram that allocates texts to labels (PRIVACY §8), and what wrong counts of it would give away.

A trial is what a release publishes of the labels: all noisy counts, drawn as the run draws them; what is observed is
the likelihood ratio of the counts that the unit moves, but for scale. The histogram is bought with all of an epsilon of
1 at DELTA. The counts are those of the corpus as it is shipped, of a unit whose documents carry all sixteen labels. The
twins are mistakes that are easily made: a unit counted under each label that it has, counted once a document, and a
histogram that an attempt which goes on draws again, so that both are seen.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit_cases import DELTA, EPSILON
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.store import Corpus
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tests.unit.tasks.generation.electing import corpus_of, note
from tests.unit.tasks.generation.workshop import Workshop

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS, FEWER = 10_000, 2500
"""For the honest histogram, and for twins that move the counts four times as far. A histogram drawn eight times is
distinguished as well as one whose noise is smaller by the root of eight."""

RHO = rho_of(EPSILON, DELTA)
LABELS = tuple("klmnopqrstuvwxyz")
HISTOGRAM = calibrate_histogram(RHO, len(LABELS))
DRAWN_AGAIN = 8

Counts = NDArray[np.int64]
Counting = Callable[[Corpus], Counts]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus]:
    """Others, and the others with the unit."""
    folder: Path = tmp_path_factory.mktemp("neighbours")
    others = [note(f"other {number}", "text", LABELS[number % 16]) for number in range(40)]
    unit = [note("unit", text, label) for label in LABELS for text in ("one", "two", "three")]
    return corpus_of(folder / "without", others), corpus_of(folder / "with", [*others, *unit])


def honest(corpus: Corpus) -> Counts:
    """As it is shipped."""
    bench = Workshop(corpus).bench()
    return np.array(bench.corpus.label_counts(bench.scheme, bench.split, LABELS), np.int64)


def under_each_label(corpus: Corpus) -> Counts:
    """TWIN: a unit counts under all of its labels."""
    bench, places = Workshop(corpus).bench(), [(0, label, 0) for label in range(len(LABELS))]
    rows = corpus.batches(bench.scheme, bench.split, 1, places, LABELS, most=len(LABELS))
    return np.array([len(rows[place]) for place in places], np.int64)


def once_a_document(corpus: Corpus) -> Counts:
    """TWIN: documents are counted in the place of units."""
    found = [label for _, label in corpus.labelled()]
    return np.array([found.count(label) for label in LABELS], np.int64)


def audit(counting: Counting, neighbours: tuple[Corpus, Corpus], trials: int = TRIALS, draws: int = 1) -> float:
    """A lower bound on the epsilon of `draws` histograms of the same units."""
    without, with_it = (counting(corpus) for corpus in neighbours)
    moved = with_it - without
    bins = np.flatnonzero(moved)

    def sample(counts: Counts) -> NDArray[np.float64]:
        many = NoisyHistogram(trials * draws * len(bins), HISTOGRAM.noise)
        noisy = many.draw(counts[bins].tolist() * (trials * draws), OS_RANDOM)
        values = np.array(noisy, float).reshape(trials, draws, len(bins)) * moved[bins]
        return np.asarray(values.sum(axis=(1, 2)), np.float64)

    return epsilon_lower_bound(sample(with_it), sample(without), float(DELTA), CONFIDENCE).epsilon


def test_the_honest_histogram_stays_below_its_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    assert 0.99 < epsilon_of(HISTOGRAM.loss().rho, DELTA) <= CLAIM
    without, with_it = (honest(corpus) for corpus in neighbours)
    assert sorted(with_it - without) == [0] * 15 + [1]
    assert 0.15 < audit(honest, neighbours) < CLAIM


@pytest.mark.parametrize("broken", [under_each_label, once_a_document], ids=lambda given: given.__name__)
def test_wrong_counts_exceed_the_claim(broken: Counting, neighbours: tuple[Corpus, Corpus]) -> None:
    without, with_it = (broken(corpus) for corpus in neighbours)
    assert np.linalg.norm(with_it - without) > 3.99
    assert audit(broken, neighbours, FEWER) > CLAIM


def test_a_histogram_that_is_drawn_again_at_every_resume_exceeds_the_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    assert audit(honest, neighbours, draws=DRAWN_AGAIN) > CLAIM
