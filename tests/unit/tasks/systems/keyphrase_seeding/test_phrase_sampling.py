"""Scores of a vocabulary and draws from it, against what they stand for."""

import itertools
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest

from tasks.mechanisms.core.rng import OS_RANDOM, DeterministicRandom
from tasks.mechanisms.vectors.kde_sketch import FourierFeatures, on_grid
from tasks.systems.keyphrase_seeding.phrases import Drawer, Scorer, Sequences, draw_sequences
from tasks.systems.keyphrase_seeding.stages import Background

WIDTH = 16
KERNEL = FourierFeatures.of(WIDTH, 3000, Decimal("0.4"))


def points(count: int, seed: int = 1) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, WIDTH))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


VOCABULARY = points(30)
SCORER = Scorer(VOCABULARY, KERNEL)


def density(*texts: tuple[int, ...]) -> np.ndarray:
    """Of one unit a line, which has these phrases of the vocabulary: [1, 2D]."""
    found = [KERNEL.of_phrases(on_grid(VOCABULARY[list(own)]), np.array([0]))[0] for own in texts]
    return np.sum(found, axis=0, dtype=np.float64)[None] / len(found)


def test_a_score_is_the_product_of_sketch_and_features():
    sketch = density((3, 4), (5,))
    features = KERNEL.of_phrases(on_grid(VOCABULARY), np.arange(30))
    assert SCORER.scores(sketch)[:, 0] == pytest.approx(features @ sketch[0], abs=2e-3)
    assert set(np.argsort(-SCORER.scores(sketch)[:, 0])[:3]) == {3, 4, 5}


def test_blocks_make_no_difference(monkeypatch):
    sketches = np.concatenate([density((1,)), density((2, 7))])
    whole = SCORER.scores(sketches)
    monkeypatch.setattr("tasks.systems.keyphrase_seeding.phrases.WORDS_AT_ONCE", 7)
    assert SCORER.scores(sketches) == pytest.approx(whole, abs=1e-6)


def test_a_turned_sketch_scores_phrases_as_if_together_with_those_before():
    """Against the features of the sums themselves, which are never made at work."""
    together = 3
    before = VOCABULARY[[8, 9]].astype(np.float64).sum(axis=0)
    units = on_grid(VOCABULARY)
    sketch = KERNEL.of_together((units[8] + units[9] + units[10])[None], together).astype(np.float64)
    sums = KERNEL.of_together(units + units[8] + units[9], together)
    found = SCORER.scores(SCORER.turned(sketch, before[None], together), together)[:, 0]
    assert found == pytest.approx(sums @ sketch[0], abs=3e-3)
    assert int(np.argmax(found)) == 10


def test_phrases_are_drawn_in_proportion_to_their_scores():
    drawer = Drawer(0.0, OS_RANDOM)
    scores = np.array([0.3, 0.1, -0.5, 0.0, 0.6], np.float32)
    drawn = Counter(drawer.draw(scores, ())[0] for _ in range(6000))
    assert set(drawn) == {0, 1, 4}
    assert drawn[4] / 6000 == pytest.approx(0.6, abs=0.05)
    assert drawn[1] / 6000 == pytest.approx(0.1, abs=0.03)


def test_what_is_taken_is_not_drawn_again():
    drawer = Drawer(0.0, OS_RANDOM)
    scores = np.array([0.3, 0.1, 0.0], np.float32)
    assert {drawer.draw(scores, [0])[0] for _ in range(50)} == {1}
    assert {drawer.draw(scores, [0, 1]) for _ in range(50)} == {(2, False)}


@pytest.mark.parametrize("scores", [[0.0] * 4, [-1.0, -0.1, 0.0, -3.0], [0.01] * 4])
def test_without_a_score_that_counts_every_phrase_is_as_likely(scores):
    drawn = Counter(Drawer(0.02, OS_RANDOM).draw(np.array(scores, np.float32), ()) for _ in range(4000))
    assert set(drawn) == {(number, False) for number in range(4)}
    assert max(drawn.values()) < 1200


def test_scores_below_the_noise_do_not_count():
    weights = Drawer(0.1, OS_RANDOM).weights(np.array([0.3, 0.15, 0.09, -1], np.float32))
    assert weights[0] == 2**40
    assert weights[1] == pytest.approx(2**39, rel=1e-6)
    assert weights[2:].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("strongest", "counting"), [(1, {1}), (2, {1, 3}), (3, {0, 1, 3, 4}), (5, {0, 1, 3, 4}), (None, {0, 1, 3, 4})]
)
def test_only_the_strongest_scores_count_and_those_equal_to_them(strongest, counting):
    weights = Drawer(0.0, OS_RANDOM, strongest).weights(np.array([0.1, 0.6, -0.2, 0.3, 0.1], np.float32))
    assert set(np.flatnonzero(weights)) == counting
    assert weights[1] == 2**40


def sequences(
    sketches: np.ndarray,
    labels: list[int],
    length: int = 3,
    vocabulary: int = 30,
    least: float = 0.01,
    background: Background = "none",
) -> Sequences:
    scorer, drawer = Scorer(VOCABULARY[:vocabulary], KERNEL), Drawer(least, DeterministicRandom("sequences"))
    return draw_sequences(scorer, drawer, sketches, labels, length, background)


def test_every_text_has_different_phrases_of_its_label():
    sketches = np.stack([np.concatenate([density((1, 2, 3)), density((20, 21, 22))])])
    found = sequences(sketches, [0, 1] * 200)
    assert all(len(set(own)) == 3 for own in found.phrases)
    first = Counter(own[0] for own in found.phrases[::2])
    assert sum(first[number] for number in (1, 2, 3)) > 0.5 * first.total()
    assert sequences(sketches, [0, 1]) == sequences(sketches, [0, 1])  # and not by numpy's generator


@pytest.mark.parametrize(("background", "least_pure"), [("none", 0.0), ("labels", 0.9), ("median", 0.3)])
def test_what_all_labels_have_in_common_is_the_background(background, least_pure):
    """Two labels that share most phrases, and have one each of their own."""
    shared = tuple(range(10, 30))
    sketches = np.stack([np.concatenate([density(shared, (1,)), density(shared, (2,))])])
    found = sequences(sketches, [0] * 300, length=1, background=background, least=0.1)
    own = sum(phrase == 1 for (phrase,) in found.phrases) / 300
    assert own >= least_pure
    assert sum(phrase == 2 for (phrase,) in found.phrases) < 30


def test_iterative_sequences_follow_what_goes_together():
    """Two topics of phrases that never mix: a text that begins in one goes on in it, unlike independent ones."""
    steps, topics = on_grid(VOCABULARY), [(0, 1, 2), (10, 11, 12)]
    orders = [order for topic in topics for order in itertools.permutations(topic)]
    places = [
        np.mean([KERNEL.of_together(steps[list(own[:j])].sum(axis=0)[None], j)[0] for own in orders], axis=0)
        for j in (1, 2, 3)
    ]
    iterative = sequences(np.array(places, np.float64)[:, None], [0] * 200, least=0.1)
    independent = sequences(density(*topics)[None], [0] * 200, least=0.1)

    def pure(phrases: tuple[tuple[int, ...], ...]) -> float:
        return sum(set(own) in map(set, topics) for own in phrases) / len(phrases)

    assert pure(iterative.phrases) > 0.35
    assert pure(iterative.phrases) > 2 * pure(independent.phrases)


def test_a_vocabulary_smaller_than_a_text_is_used_up():
    found = sequences(density((0, 1))[None], [0, 0], length=5, vocabulary=2)
    assert [sorted(own) for own in found.phrases] == [[0, 1], [0, 1]]


def test_no_score_at_all_is_counted():
    found = sequences(np.zeros((1, 1, 2 * KERNEL.features)), [0, 0, 0], length=2)
    assert found.unscored == 6
    assert sequences(density((4,))[None], [0], length=1).unscored == 0
