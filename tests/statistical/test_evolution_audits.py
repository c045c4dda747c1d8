"""Audits of private evolution (PRIVACY §8): a whole schedule of votes, and what a wrong election would give away.

A trial is a schedule of rounds; what is observed of it is the likelihood ratio of the noisy counts that the unit moves,
but for scale. The claim is epsilon 1 at DELTA for all rounds together, as a request makes it. Bounds are above the true
epsilon with probability at most 1 - CONFIDENCE. The honest election and its counts are those that are shipped; the
twins are mistakes that are easily made: a vote under each label, votes scaled to norm 1 under each label by itself,
votes of documents, and a schedule that goes on for longer than it was paid for.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import epsilon_of, rho_of
from tasks.auditing.audit import DELTA, EPSILON
from tasks.auditing.epsilon_lower_bound import epsilon_lower_bound
from tasks.corpus.store import Corpus
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.mechanisms.vectors.fixed_point import GridPoints
from tasks.systems.private_evolution.run import BlockVotes, VoteHistogram
from tasks.systems.private_evolution.schedule import Schedule
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.electing import corpus_of, note, settings
from tests.unit.tasks.systems.workshop import Workshop

pytestmark = [pytest.mark.statistical, pytest.mark.slow]
CONCERNS = ("tasks/accounting", "tasks/auditing", "tasks/mechanisms")

CONFIDENCE = 0.9999
CLAIM = 1.0
TRIALS, FEWER, FEWEST = 10_000, 2500, 1000
"""For the honest schedule, for what is broken by a factor of 4, and by more. With these each bound lies seven of its
own standard deviations from what it is compared with; a factor of 2 would need eight times as many."""

RHO = rho_of(EPSILON, DELTA)
LABELS = tuple("klmnopqrstuvwxyz")
ROUNDS, TOO_MANY = 2, 16
WANTED = settings(samples=16, candidates=3, rounds=ROUNDS, labels=LABELS)
PUBLIC = ("aaaa", "oooo", "uuuu")
SAID = ("aaab", "ooob", "aaac")
"""What the unit wrote under each label: one candidate is nearest to two of its documents, another to the third."""

Votes = NDArray[np.float64]
Election = Callable[[Corpus], Votes]


@pytest.fixture
def neighbours(tmp_path: Path) -> tuple[Corpus, Corpus]:
    """Others, and the others with the unit."""
    others = [note(f"other {number}", "ouuu", LABELS[number % 16]) for number in range(9)]
    unit = [note("unit", text, label) for label in LABELS for text in SAID]
    return corpus_of(tmp_path / "without", others), corpus_of(tmp_path / "with", [*others, *unit])


def candidates() -> list[Any]:
    return [points_of(Letters(), PUBLIC)] * len(LABELS)


def honest(corpus: Corpus) -> Votes:
    """As it is shipped."""
    found = VoteHistogram(Workshop(corpus).context(), [0], LABELS, Letters()).voters.counts(candidates())
    return np.array(found, float)


def ballots(corpus: Corpus) -> list[tuple[int, str, list[str]]]:
    """Every unit under every label that it has: the number of the label, its whole text, its documents."""
    context = Workshop(corpus).context()
    places = [(0, label, 0) for label in range(len(LABELS))]
    found = corpus.batches(context.scheme, context.split, 1, places, LABELS, most=len(LABELS))
    return [(place[1], row.text, row.text.split("\n\n")) for place in places for row in found[place]]


def counted(votes: Sequence[tuple[int, str]]) -> Votes:
    points = GridPoints.of(points_of(Letters(), [text for _, text in votes]))
    labels = np.array([label for label, _ in votes], np.int64)
    return np.array(BlockVotes(labels, points).counts(candidates()), float)


def a_vote_for_each_label(corpus: Corpus) -> Votes:
    """TWIN: whoever wrote under m labels votes m times."""
    return counted([(label, text) for label, text, _ in ballots(corpus)])


def a_vote_for_each_document(corpus: Corpus) -> Votes:
    """TWIN: whoever wrote 48 documents votes 48 times."""
    return counted([(label, text) for label, _, own in ballots(corpus) for text in own])


def norm_one_under_each_label(corpus: Corpus) -> Votes:
    """TWIN: a unit's votes are scaled to L2 norm 1, but under each label by itself: the norm of all is sqrt(m)."""
    each = [counted([(label, text) for text in own]) for label, _, own in ballots(corpus)]
    return np.sum([own / np.linalg.norm(own) for own in each], axis=0)


def audit(
    election: Election,
    neighbours: tuple[Corpus, Corpus],
    schedule: Schedule,
    made: int = ROUNDS,
    trials: int = TRIALS,
) -> float:
    """A lower bound on the epsilon of `made` rounds with the noise of a schedule."""
    without, with_it = (election(corpus) for corpus in neighbours)
    moved = with_it - without
    bins = np.flatnonzero(moved)
    drawn = [_likelihoods(counts[bins], moved[bins], schedule, made, trials) for counts in (with_it, without)]
    return epsilon_lower_bound(*drawn, float(DELTA), CONFIDENCE).epsilon


def _likelihoods(counts: Votes, moved: Votes, schedule: Schedule, made: int, trials: int) -> NDArray[np.float64]:
    """For each trial the sum over rounds and bins of noisy counts, weighted by what the unit moves; drawn in full.

    Noise is added to whole numbers: what a vote has behind the point is added to the result, as nothing else could be.
    """
    whole, rest = np.floor(counts).astype(int), counts - np.floor(counts)
    noisy = np.empty((trials, made, len(counts)))
    for number in range(made):
        histogram = NoisyHistogram(trials * len(counts), schedule.histogram.noise)
        found = histogram.draw(whole.tolist() * trials, OS_RANDOM)
        noisy[:, number] = np.array(found, float).reshape(trials, -1) + rest
    return (noisy * moved).sum(axis=(1, 2))


PAID = Schedule.of(WANTED, Amount(RHO))


def test_the_honest_schedule_stays_below_its_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    loss = sum((event.loss for event in PAID.events), Amount())
    assert 0.99 < epsilon_of(loss.rho, DELTA) <= CLAIM
    without, with_it = (honest(corpus) for corpus in neighbours)
    assert sorted(with_it - without) == [0] * 47 + [1]
    assert 0.15 < audit(honest, neighbours, PAID) < CLAIM


@pytest.mark.parametrize(
    ("broken", "trials"),
    [(a_vote_for_each_label, FEWER), (a_vote_for_each_document, FEWEST), (norm_one_under_each_label, FEWER)],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_wrong_election_exceeds_the_claim(broken: Election, trials: int, neighbours: tuple[Corpus, Corpus]) -> None:
    without, with_it = (broken(corpus) for corpus in neighbours)
    assert np.linalg.norm(with_it - without) > 3.99
    assert audit(broken, neighbours, PAID, trials=trials) > CLAIM


def test_noise_for_fewer_rounds_than_are_made_exceeds_the_claim(neighbours: tuple[Corpus, Corpus]) -> None:
    """A schedule that was paid for, and then made sixteen times as long without another charge."""
    once = Schedule.of(settings(samples=16, candidates=3, rounds=1, labels=LABELS), Amount(RHO))
    assert audit(honest, neighbours, once, made=1) < CLAIM
    assert audit(honest, neighbours, once, made=TOO_MANY, trials=FEWER) > CLAIM
    assert audit(honest, neighbours, PAID, made=TOO_MANY * ROUNDS, trials=FEWER) > CLAIM


def test_the_noise_is_the_same_for_one_label_and_for_sixteen() -> None:
    """And the vote is one over all of them together, as the honest audit sees."""
    alone = Schedule.of(settings(samples=3, candidates=3, rounds=ROUNDS), Amount(RHO))
    assert alone.histogram.noise == PAID.histogram.noise
