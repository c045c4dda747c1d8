"""Membership: a copied corpus is found, random text is not, and each score by hand."""

import math

import numpy as np
import pytest

from tasks.attacks.membership_inference import (
    NO_EVIDENCE,
    UnigramModel,
    embedding_scores,
    likelihood_ratio_scores,
    overlap_scores,
    separation,
)
from tests.unit.tasks.attacks.people import WordEmbedder, random_texts, uniform_score

MEMBERS, OTHERS = random_texts(60, 30, 1), random_texts(120, 30, 2)

SCORES = {
    "embedding": lambda released, asked: embedding_scores(WordEmbedder(), released, asked),
    "likelihood": lambda released, asked: likelihood_ratio_scores(uniform_score, released, asked),
    "overlap": overlap_scores,
}


@pytest.mark.parametrize("attack", SCORES.values(), ids=SCORES)
def test_a_corpus_that_was_copied_is_found(attack):
    found = separation(attack(MEMBERS, MEMBERS), attack(MEMBERS, OTHERS))
    assert found.auc > 0.99
    assert found.rates["tpr_at_1_percent"].value > 0.9


@pytest.mark.parametrize("attack", SCORES.values(), ids=SCORES)
def test_texts_that_have_nothing_to_do_with_the_corpus_tell_nothing(attack):
    released = random_texts(40, 30, 3)
    low, high = separation(attack(released, MEMBERS), attack(released, OTHERS)).interval
    assert low < 0.5 < high


def test_the_nearest_text_counts():
    """Rows of length 1 and 5 in the same direction are equally near; 3-4-5 gives a cosine of 0.6 or 0.8."""

    class Points:
        name = "points"

        def __call__(self, texts):
            return np.array([[float(part) for part in text.split()] for text in texts], np.float32)

    assert embedding_scores(Points(), ["5 0", "0 2"], ["3 4", "1 0", "0 0"]) == pytest.approx([0.8, 1, 0])
    assert embedding_scores(Points(), ["1 0"], []) == []
    with pytest.raises(ValueError, match="released"):
        embedding_scores(Points(), [], ["1 0"])


def test_the_language_of_a_release_by_hand():
    """ "a b", "a": N = 3, V = 3 with the unknown word; P(a) = (2 + 1/3) / 4 = 7/12, P(b) = (1 + 1/3) / 4 = 1/3.

    P(a | start) = (2 + 7/12) / 3 = 31/36, P(b | a) = (1 + 1/3) / 2 = 2/3: `a` is followed once, and ends once.
    """
    language = UnigramModel(["a b", "a"])
    assert language.log_likelihood("a b") == pytest.approx(math.log(31 / 36 * 2 / 3))
    # P(z) = (1/3) / 4 = 1/12, and nothing follows it.
    assert language.log_likelihood("z z") == pytest.approx(math.log(1 / 36 * 1 / 12))
    assert language.log_likelihood("") == 0


def test_probabilities_of_a_language_add_up():
    """Over the known words and one unknown one, after any word."""
    language = UnigramModel(["a b a c", "c c"])
    for before in ("a", "b", "c", "z"):
        alone = language.log_likelihood(before)
        mass = sum(math.exp(language.log_likelihood(f"{before} {word}") - alone) for word in ("a", "b", "c", "zz"))
        assert mass == pytest.approx(1)


def test_a_likelihood_ratio_is_per_word():
    scores = likelihood_ratio_scores(lambda texts: [(-6.0, 2) for _ in texts], ["a b", "a"], ["a b", ""])
    assert scores == [pytest.approx((math.log(31 / 36 * 2 / 3) + 6) / 2), NO_EVIDENCE]


def test_the_public_model_is_not_asked_about_empty_texts():
    asked = []
    likelihood_ratio_scores(lambda texts: asked.extend(texts) or [(-1.0, 1)] * len(texts), ["a"], ["", "  ", "b"])
    assert asked == ["b"]


def test_an_overlap_by_hand():
    """Of the runs abcd, bcde the first is released; three words are one run of three."""
    assert overlap_scores(["x a b c d y", "p q r"], ["A b c d e", "p q r", "", "p q"]) == [0.5, 1, 0, 0]
