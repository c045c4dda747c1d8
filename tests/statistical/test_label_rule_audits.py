"""Audits of a histogram of labels that a public rule gives (PRIVACY §8), and what a rule that reads others gives away.

As `test_label_allocation_audits`: a trial is all noisy counts of a release, drawn as the run draws them, bought with
all of an epsilon of 1 at DELTA. The unit has three documents or more under each of sixteen answers, and no field holds
a label. The twin is a rule that is no function of one document: it weighs keywords by how rare they are in the corpus,
so that a unit moves the labels of others.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit_cases import DELTA, EPSILON
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.store import Corpus, Labelling
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.keyword_rule import DocumentLabeller, LabelRule
from tests.unit.tasks.generation.electing import corpus_of, note
from tests.unit.tasks.generation.workshop import Workshop

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms", "tasks/planning", "tasks/corpus")

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS, FEWER = 10_000, 2500
WORDS = tuple(f"w{letter}" for letter in "klmnopqrstuvwxyz")
RULE = LabelRule.model_validate({"answers": [{"name": word.upper(), "keywords": [word]} for word in WORDS]})
HISTOGRAM = calibrate_histogram(rho_of(EPSILON, DELTA), len(WORDS))

Counts = NDArray[np.int64]
Rule = Callable[[Corpus], Labelling]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Corpus]:
    """Others, whose texts have two keywords each, and the others with the unit."""
    folder: Path = tmp_path_factory.mktemp("neighbours")
    others = [note(f"other {number}", f"{WORDS[0]} {WORDS[1]} of {number}") for number in range(40)]
    unit = [note("unit", f"{word} {text}") for word in WORDS for text in ("one", "two", "three")]
    unit += [note("unit", f"{WORDS[1]} again")]
    return corpus_of(folder / "without", others), corpus_of(folder / "with", [*others, *unit])


def honest(corpus: Corpus) -> Labelling:
    """As it is shipped."""
    return DocumentLabeller.of(RULE)


def by_rarity(corpus: Corpus) -> Labelling:
    """TWIN: the keyword that is rarest in the corpus decides, as in tf-idf."""
    found = Counter(word for text in corpus.texts() for word in set(text.split()))
    return lambda text: min(
        (word for word in text.split() if word in WORDS), key=lambda word: (found[word], -WORDS.index(word))
    ).upper()


def counts(rule: Rule, corpus: Corpus) -> Counts:
    bench = Workshop(corpus).bench()
    labelled = corpus.labelled_by(rule(corpus))
    return np.array(labelled.label_counts(bench.scheme, bench.split, RULE.labels), np.int64)


def audit(rule: Rule, neighbours: tuple[Corpus, Corpus], trials: int) -> float:
    """A lower bound on the epsilon of a histogram."""
    without, with_it = (counts(rule, corpus) for corpus in neighbours)
    moved = with_it - without
    bins = np.flatnonzero(moved)

    def sample(exact: Counts) -> NDArray[np.float64]:
        many = NoisyHistogram(trials * len(bins), HISTOGRAM.noise)
        noisy = many.draw(exact[bins].tolist() * trials, OS_RANDOM)
        return np.asarray((np.array(noisy, float).reshape(trials, len(bins)) * moved[bins]).sum(axis=1), np.float64)

    return epsilon_lower_bound(sample(with_it), sample(without), float(DELTA), CONFIDENCE).epsilon


def test_labels_by_a_rule_stay_below_the_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    assert 0.99 < epsilon_of(HISTOGRAM.loss().rho, DELTA) <= CLAIM
    without, with_it = (counts(honest, corpus) for corpus in neighbours)
    assert sorted(with_it - without) == [0] * 15 + [1]
    assert 0.15 < audit(honest, neighbours, TRIALS) < CLAIM


def test_a_rule_that_reads_the_corpus_exceeds_the_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    without, with_it = (counts(by_rarity, corpus) for corpus in neighbours)
    assert np.abs(with_it - without).max() >= 39
    assert audit(by_rarity, neighbours, FEWER) > CLAIM
