"""Canaries: made once each, planted before the partition, and their exposure by hand."""

import math

import pytest

from tasks.attacks.canaries import (
    ALTERNATIVES,
    SECRET_WORDS,
    WORDS,
    Canary,
    CorpusDocument,
    appearing,
    chance_of_guess,
    exposures,
    make_canaries,
    plant,
)
from tasks.attacks.membership_inference import UnigramModel
from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tests.refusals import refusal
from tests.unit.tasks.attacks.people import random_texts


def test_secrets_are_different_and_of_public_words():
    assert len(set(WORDS)) == 64
    made = make_canaries(5, OS_RANDOM, copies=3, held_out=4, alternatives=100, prefixes=["Dear all,", "Hello."])
    assert [len(made.planted), len(made.held_out), len(made.alternatives)] == [5, 4, 100]
    secrets = [canary.secret for canary in (*made.planted, *made.held_out, *made.alternatives)]
    assert len(set(secrets)) == 109
    assert all(len(secret.split()) == SECRET_WORDS and set(secret.split()) <= set(WORDS) for secret in secrets)
    first = made.planted[0]
    assert first.document == f"Dear all, {first.sentence} {first.sentence} {first.sentence}"


def test_planting_adds_units_and_changes_none():
    corpus = [CorpusDocument("u1", "one", "x"), CorpusDocument("u2", "two", "y")]
    made = make_canaries(3, DeterministicRandom("plant"), alternatives=2)
    planted = list(plant(corpus, made, ["x", "y"]))
    assert planted[:2] == corpus
    assert [document.label for document in planted[2:]] == ["x", "y", "x"]
    assert len({document.unit for document in planted}) == 5
    assert [document.text for document in planted[2:]] == [canary.document for canary in made.planted]
    assert [document.label for document in plant([], made)] == [None] * 3


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 1, "copies": 0}, {"count": 1, "alternatives": 0}])
def test_impossible_canaries_are_refused(wrong):
    with refusal("CanariesInvalid"):
        make_canaries(rng=OS_RANDOM, **wrong)


def test_more_secrets_than_there_are_are_refused():
    with refusal("CanariesInvalid", match="different secrets"):
        make_canaries(1, OS_RANDOM, alternatives=64**4)


def scored(**scores):
    return lambda asked: [scores[text.split("phrase ")[1].split(" for")[0]] for text in asked]


def test_an_exposure_by_hand():
    """Seven others, eight ranks, 3 bits: first of all is 3, fourth is 1, last is 0; two equal share a rank."""
    others = [Canary(secret) for secret in "abcdefg"]
    score = dict(zip("abcdefg", range(1, 8), strict=True))
    for own, bits in ((9, 3), (4.5, 1), (0, 0)):
        assert exposures([Canary("me")], others, scored(me=own, **score)) == [pytest.approx(bits)]
    # Equal to the best of the others: rank 1.5.
    assert exposures([Canary("me")], others, scored(me=7, **score)) == [pytest.approx(3 - math.log2(1.5))]
    assert exposures([], others, scored(**score)) == []


def test_the_exposure_by_chance_by_hand():
    """Of one alternative the rank is 1 or 2: 1 bit or none."""
    assert chance_of_guess(1) == 0.5
    assert chance_of_guess(3) == pytest.approx(2 - (0 + 1 + math.log2(3) + 2) / 4)
    assert chance_of_guess(ALTERNATIVES) == pytest.approx(math.log2(math.e), abs=0.01)


def language_score(released):
    language = UnigramModel(released)
    return lambda asked: [language.log_likelihood(text) for text in asked]


def test_a_released_secret_is_exposed_as_far_as_can_be_and_others_are_not():
    made = make_canaries(12, DeterministicRandom("exposed"), alternatives=200)
    noise = random_texts(30, 40, 4)
    released = [*noise, *(canary.document for canary in made.planted)]
    bits = exposures(made.planted, made.alternatives, language_score(released))
    assert min(bits) > math.log2(201) - 1
    mean = sum(exposures(made.held_out, made.alternatives, language_score(released))) / 12
    assert mean < 4
    silent = exposures(made.planted, made.alternatives, language_score(noise))
    assert sum(silent) / 12 < chance_of_guess(200) + 1


def test_an_appearing_secret_is_counted_word_for_word_and_nearly():
    canaries = [Canary("amber badge cedar lemon"), Canary("olive meadow coral daisy"), Canary("lily lily lily lily")]
    released = ["It was: AMBER badge, cedar lemon", "olive meadow coral dragon", "lily lily"]
    # Punctuation is a word of its own: only the first three words of the second stand together.
    assert appearing(canaries, released) == (0, 1)
    assert appearing(canaries, [*released, "say amber badge cedar lemon now"]) == (1, 2)
    assert appearing(canaries, []) == (0, 0)
