"""A public twin: cut at random, the same when it is read back, and canaries on both sides of the cut."""

import json
from collections import Counter

import pytest

from tasks.attacks.canaries import CorpusDocument
from tasks.attacks.public_twin import MOST_NONMEMBERS, TwinSplit, shuffled, split_twin
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tests.refusals import refusal

UNITS = [
    CorpusDocument(f"u{number}", f"text of {number} and more", "x" if number % 2 else None) for number in range(40)
]


def test_nobody_is_on_both_sides_and_nobody_is_lost():
    stage = split_twin(UNITS, OS_RANDOM, members=15, canaries=3, copies=2)
    assert (len(stage.members), len(stage.nonmembers)) == (15, 22)
    known = {document.unit for document in (*stage.members, *stage.nonmembers)}
    lent = [document.text for document in UNITS if document.unit not in known]
    assert len(known) == 37
    assert sorted(canary.prefix for canary in stage.canaries.planted) == sorted(lent)
    assert len(stage.key) == 32
    assert len(stage.canaries.planted) == len(stage.canaries.held_out) == 3


def test_planted_canaries_begin_like_others_of_the_corpus():
    stage = split_twin(UNITS, OS_RANDOM, members=15, canaries=3, copies=2)
    corpus = stage.corpus(["a", "b"])
    assert [document.unit for document in corpus[15:]] == ["canary-00000", "canary-00001", "canary-00002"]
    assert [document.label for document in corpus[15:]] == ["a", "b", "a"]
    for document, canary in zip(corpus[15:], stage.canaries.planted, strict=True):
        assert document.text == f"{canary.prefix} {canary.sentence} {canary.sentence}"


def test_nothing_of_a_nonmember_is_in_the_copy():
    """Not even the beginning that a canary borrows: a copy of the corpus must give away members alone."""
    stage = split_twin(UNITS, OS_RANDOM, members=15, canaries=30)
    copied = "\n".join(document.text for document in stage.corpus())
    assert len(stage.nonmembers) == 19  # a quarter of 25 lend, in turn
    assert all(document.text in copied for document in stage.members)
    assert not any(document.text in copied for document in stage.nonmembers)


def test_never_more_than_half_and_never_more_nonmembers_than_are_needed():
    assert len(split_twin(UNITS, OS_RANDOM, members=1000).members) == 20
    many = [CorpusDocument(f"u{number}", "text") for number in range(1300)]
    assert len(split_twin(many, OS_RANDOM, members=10).nonmembers) == MOST_NONMEMBERS


def test_everybody_comes_first_equally_often():
    """2,000 orders of 4 units: each is among the first two in 1,000, +/- 22; 150 is 6.7 deviations."""
    rng, units = DeterministicRandom("cut"), UNITS[:4]
    counts = Counter(each.unit for _ in range(2000) for each in shuffled(units, rng)[:2])
    assert all(abs(counts[unit.unit] - 1000) < 150 for unit in units)


def test_a_stage_is_read_back_as_it_was():
    stage = split_twin(UNITS, OS_RANDOM, members=5, canaries=2)
    assert TwinSplit.from_json(json.loads(json.dumps(stage.to_json()))) == stage


@pytest.mark.parametrize(("units", "members"), [(0, 5), (3, 5), (40, 1)])
def test_a_corpus_too_small_to_cut_is_refused(units, members):
    with refusal("TwinTooSmall"):
        split_twin(UNITS[:units], OS_RANDOM, members=members)


def test_no_canary_is_refused():
    with refusal("CanariesInvalid"):
        split_twin(UNITS, OS_RANDOM, members=5, canaries=0)
