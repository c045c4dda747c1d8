"""A public twin: cut at random, the same when it is read back, and canaries on both sides of the cut."""

import json
from collections import Counter

import pytest

from tasks.attacks.canaries import CanariesInvalid, CorpusDocument
from tasks.attacks.twin import MOST_NONMEMBERS, Stage, TwinTooSmall, set_stage
from tasks.mechanisms.rng import OS_RANDOM, DeterministicRandom

UNITS = [
    CorpusDocument(f"u{number}", f"text of {number} and more", "x" if number % 2 else None) for number in range(40)
]


def test_nobody_is_on_both_sides_and_nobody_is_lost():
    stage = set_stage(UNITS, OS_RANDOM, members=15, canaries=3, copies=2)
    assert (len(stage.members), len(stage.nonmembers)) == (15, 25)
    assert sorted((*stage.members, *stage.nonmembers), key=lambda d: d.unit) == sorted(UNITS, key=lambda d: d.unit)
    assert len(stage.key) == 32
    assert len(stage.canaries.planted) == len(stage.canaries.held_out) == 3


def test_planted_canaries_begin_like_others_of_the_corpus():
    stage = set_stage(UNITS, OS_RANDOM, members=15, canaries=3, copies=2)
    corpus = stage.corpus(["a", "b"])
    assert [document.unit for document in corpus[15:]] == ["canary-00000", "canary-00001", "canary-00002"]
    assert [document.label for document in corpus[15:]] == ["a", "b", "a"]
    for document, canary, other in zip(corpus[15:], stage.canaries.planted, stage.nonmembers, strict=False):
        assert document.text == f"{other.text} {canary.sentence} {canary.sentence}"


def test_never_more_than_half_and_never_more_nonmembers_than_are_needed():
    assert len(set_stage(UNITS, OS_RANDOM, members=1000).members) == 20
    many = [CorpusDocument(f"u{number}", "text") for number in range(1300)]
    assert len(set_stage(many, OS_RANDOM, members=10).nonmembers) == MOST_NONMEMBERS


def test_everybody_is_a_member_equally_often():
    """2,000 cuts of 4 units: each is in 1,000 times, +/- 22; 150 is 6.7 deviations."""
    rng, units = DeterministicRandom("cut"), UNITS[:4]
    counts = Counter(each.unit for _ in range(2000) for each in set_stage(units, rng, members=2, canaries=1).members)
    assert all(abs(counts[unit.unit] - 1000) < 150 for unit in units)


def test_a_stage_is_read_back_as_it_was():
    stage = set_stage(UNITS, OS_RANDOM, members=5, canaries=2)
    assert Stage.from_json(json.loads(json.dumps(stage.to_json()))) == stage


@pytest.mark.parametrize(("units", "members"), [(0, 5), (3, 5), (40, 1)])
def test_a_corpus_too_small_to_cut_is_refused(units, members):
    with pytest.raises(TwinTooSmall):
        set_stage(UNITS[:units], OS_RANDOM, members=members)


def test_no_canary_is_refused():
    with pytest.raises(CanariesInvalid):
        set_stage(UNITS, OS_RANDOM, members=5, canaries=0)
