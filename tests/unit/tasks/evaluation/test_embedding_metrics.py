"""Frechet, precision and recall, proximity, BERTScore, topics, self-similarity: golden values and known corpora."""

import math

import numpy as np
import pytest

from tasks.evaluation.distributions import frechet, frechet_distance, number_of_topics, topics
from tasks.evaluation.evaluation_input import MOST, sides
from tasks.evaluation.neighbours import bert_score, bert_scores, precision_recall, proximity, self_similarity
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.embedded_subjects import THEMES, number, subject, themed

METRICS = (frechet, precision_recall, proximity, bert_score, topics, self_similarity)


class Clouds:
    """An embedder of texts that are names of points: `a0` is the first of cloud a."""

    name = "clouds 1"

    def __init__(self, **clouds):
        self.clouds = clouds

    def __call__(self, texts):
        return np.array([self.clouds[text[0]][int(text[1:])] for text in texts], np.float32)


def clouds(rows):
    """Two clouds of unit vectors, as subjects name them."""
    first, second = (
        np.random.default_rng(1).normal(size=(rows, 3)),
        np.random.default_rng(2).normal(size=(rows, 3)) * 0.5 + 0.5,
    )
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
    named = ([f"{cloud}{index}" for index in range(rows)] for cloud in "ab")
    return subject(*named, embed=Clouds(a=first, b=second))


def test_the_frechet_distance_of_gaussians_that_are_known():
    """One dimension: (m1 - m2)^2 + (s1 - s2)^2; and scipy's sqrtm gives 0.8019209324683393 for these clouds."""
    first, second = np.array([[0.0], [2.0]]), np.array([[3.0], [7.0]])  # means 1 and 5, deviations sqrt 2 and sqrt 8
    assert frechet_distance(first, second) == pytest.approx(16 + 2)
    a, b = np.random.default_rng(1).normal(size=(40, 3)), np.random.default_rng(2).normal(size=(40, 3)) * 0.8 + 0.4
    assert frechet_distance(a, b) == pytest.approx(0.8019209324683393)
    assert frechet_distance(a[:3], b[:30]) == pytest.approx(
        1.518419883038648
    )  # as scipy's, with fewer rows than columns need
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-12)


def test_frechet_tells_like_from_unlike():
    documents = themed(160, 1)
    like, half = (frechet(subject(themed(80, 2, some), documents)).values for some in (THEMES, THEMES[:2]))
    assert number(like["frechet_low"]) <= number(like["frechet"]) <= number(like["frechet_high"])
    assert number(like["frechet"]) < 3 * number(like["corpus"])
    assert number(half["frechet_low"]) > number(like["frechet_high"])
    assert frechet(subject(documents, documents)).values["frechet"] == "0.0000"


def test_precision_recall_density_coverage_are_those_of_prdc():
    """prdc 0.2, compute_prdc(b, a, nearest_k) of the unit vectors of `clouds(40)` in float32: k = 3 and k = 5."""
    found = precision_recall(clouds(40)).values
    assert [found[name] for name in ("precision", "recall")] == ["0.9500", "1.0000"]
    assert [found[name] for name in ("density", "coverage")] == ["0.5600", "0.8750"]
    for name in ("precision", "recall", "density", "coverage"):
        assert number(found[f"{name}_low"]) < number(found[name]) <= number(found[f"{name}_high"])


def test_precision_and_recall_see_what_is_missing_and_what_is_strange():
    documents = themed(80, 1)
    half = precision_recall(subject(themed(80, 2, THEMES[:2]), documents)).values
    strange = precision_recall(subject(["zyx qq zz jj"] * 80, documents)).values
    assert number(half["precision"]) > 0.9
    assert number(half["coverage"]) < 0.7
    assert (strange["precision"], strange["recall"]) == ("0.0000", "0.0000")
    copied = precision_recall(subject(documents, documents)).values
    assert {copied[name] for name in ("precision", "recall", "coverage")} == {"1.0000"}
    same = precision_recall(subject(["same"] * 6, ["same"] * 6)).values
    assert same["precision"] == "1.0000"  # balls of no size hold their own centre


def test_proximity_of_texts_worked_out_by_hand():
    # aa is the point a; ab lies between a and b: cosine 1 and 1/sqrt 2. Every row has a 1 for "something else" too.
    found = proximity(subject(["aa", "ab"], ["aa", "cc"])).values
    between = (2 * 1 + 1) / math.sqrt(5 * 3)
    assert found["mean"] == f"{(1 + between) / 2:.4f}"
    assert found["max"] == "1.0000"
    assert (found["texts"], found["documents"]) == (2, 2)


def test_a_copied_corpus_is_at_proximity_one_and_a_random_one_is_not():
    documents = themed(60, 1)
    copied = proximity(subject(documents, documents)).values
    assert {copied[name] for name in ("mean", "mean_low", "mean_high", "median", "max")} == {"1.0000"}
    strange = proximity(subject(["zyx qq zz jj"] * 5, documents)).values
    assert number(strange["max"]) < 0.7


def test_bert_score_of_a_pair_worked_out_by_hand():
    """Candidate x, y and reference x, z: cosines x.x = 1, y.z = 0.6, the others 0. The marks' rows may be matched."""
    x, y, z, mark = ([1, 0, 0, 0], [0, 1, 0, 0], [0, 0.6, 0.8, 0], [0, 0, 0, 1])
    own = np.array([False, True, True, False])
    candidate, reference = np.array([mark, x, y, mark], np.float32), np.array([mark, x, z, mark], np.float32)
    assert bert_scores((candidate, own), (reference, own)) == pytest.approx((0.8, 0.8, 0.8))
    shorter = np.array([mark, x, mark], np.float32), np.array([False, True, False])
    assert bert_scores((candidate, own), shorter) == pytest.approx((0.5, 1.0, 2 / 3))
    assert bert_scores((candidate, own), (reference[[0, 3]], own[[0, 3]])) == (0.0, 0.0, 0.0)


def test_a_mark_may_be_matched_but_weighs_nothing():
    """A piece equal to a mark finds it, as in the package: its cosines are masked for padding alone."""
    mark, x = [1, 0], [0, 1]
    candidate = np.array([mark, mark, mark], np.float32), np.array([False, True, False])
    reference = np.array([mark, x, mark], np.float32), np.array([False, True, False])
    assert bert_scores(candidate, reference) == (1.0, 0.0, 0.0)


def test_bert_score_of_the_nearest_document():
    found = bert_score(subject(["goal match", "basil oven"], ["oven basil", "match goal", "zzz"])).values
    assert found["f1"] == "1.0000"
    lower = bert_score(subject(["goal zzz"], ["goal match"])).values
    assert number(lower["precision"]) < 1
    assert lower["f1_low"] is None  # one text has no interval


def test_topics_that_are_reached():
    documents = [word * 5 for word in "abcd" for _ in range(4)]
    assert number_of_topics(16) == 4
    found = topics(subject(["aaaaa", "aaaaa", "bbbbb"], documents)).values
    assert (found["topics"], found["reached"], found["coverage"]) == (4, 2, "0.5000")
    assert found["overlap"] == "0.5000"  # min(2/3, 1/4) + min(1/3, 1/4)
    assert found["corpus"] == f"{1 - 0.75**3:.4f}"  # three documents, each of four topics equally often
    copied = topics(subject(documents, documents)).values
    assert (copied["coverage"], copied["overlap"], copied["coverage_high"]) == ("1.0000", "1.0000", "1.0000")
    assert number(copied["overlap_low"]) < 1


def test_self_similarity_worked_out_by_hand():
    # rows (2, 1), (2, 1) and (0, 1) of a and everything else: cosines 1, 1/sqrt 5 and 1/sqrt 5
    found = self_similarity(subject(["aa", "aa", "?"], [])).values
    assert found["mean"] == f"{(1 + 2 / math.sqrt(5)) / 3:.4f}"
    assert found["near_duplicate"] == f"{2 / 3:.4f}"
    assert self_similarity(subject(["a"], [])).values["mean"] is None


def test_self_similarity_of_equal_texts_is_one():
    found = self_similarity(subject(["same"] * 4, [])).values
    assert (found["mean"], found["near_duplicate"]) == ("1.0000", "1.0000")


@pytest.mark.parametrize("metric", METRICS)
def test_nothing_is_embedded_where_nothing_is_compared(metric):
    embed = Letters()
    without_texts = metric(subject([], ["a b"], embed)).values
    if metric is not self_similarity:
        without_documents = metric(subject(["a b"], [], embed)).values
        assert set(without_documents) == set(without_texts)
    assert embed.asked == []
    assert not [value for value in without_texts.values() if isinstance(value, str)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("released", [["one"], ["", ""], ["same"] * 3])
def test_odd_releases_have_the_same_figures(metric, released):
    found = metric(subject(released, themed(9, 1)))
    assert set(found.values) == set(metric(subject([], [])).values)


def test_every_text_is_embedded_once():
    embed = Letters()
    known = CachedEmbedder(embed)
    both = subject(["a b", "c"], ["c", "d"], known)
    for metric in METRICS:
        metric(both)
    assert sorted(embed.asked) == ["a b", "c", "d"]
    assert known.name == "letters 1"
    assert known([]).shape == (0, 27)


def test_large_corpora_are_sampled():
    both = sides(subject(["a"] * (MOST + 5), (f"d{number}" for number in range(MOST + 700))))
    assert both is not None
    assert (len(both.texts), len(both.documents)) == (MOST, MOST)
    assert max(int(document[1:]) for document in both.documents) >= MOST


def test_as_many_texts_as_documents_are_matched():
    both = sides(subject(themed(5, 1), themed(12, 2)))
    assert both is not None
    found = both.matched()
    assert [len(side) for side in (found.released, found.private)] == [5, 5]
    assert found.others is not None
    assert len(found.others) == 5
    assert not (found.private[:, None] == found.others).all(2).any()
    few = sides(subject(themed(5, 1), themed(3, 2)))
    assert few is not None
    assert len(few.matched().released) == 3
    assert few.matched().others is None
