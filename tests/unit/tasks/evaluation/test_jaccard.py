"""Jaccard by hand, its reference within the corpus, and an interval that holds what it estimates."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tasks.evaluation import overlap as module
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.intervals import share_interval
from tasks.evaluation.overlap import FIGURES, heaviest, jaccard, jaccard_similarity, present
from tasks.text import features
from tests.unit.tasks.evaluation.subjects import Capitals, texts

SUBJECT = EvaluationInput(texts("red fox runs", "Red dog"), documents=lambda: ["red dog", "a dog runs"], tag=Capitals())


def of_numbers(generator: np.random.Generator, count: int) -> list[dict[str, float]]:
    """Texts of 15 words each, word w of weight 1/(w + 5) among 400."""
    weights = 1 / np.arange(5, 405)
    draws = generator.choice(400, size=(count, 15), p=weights / weights.sum())
    return [dict.fromkeys(map(str, row), 1.0) for row in draws.tolist()]


def test_tokens_and_pairs_by_hand():
    """Words: red, fox, runs, dog and red, dog, a, runs, 3 of 5. Pairs: red fox, fox runs, red dog and red dog, a dog,
    dog runs, 1 of 5.
    """
    values = jaccard(SUBJECT).values
    assert (values["texts"], values["documents"]) == (2, 2)
    assert (values["tokens"], values["bigrams"]) == ("0.6000", "0.2000")
    assert values["tf_idf"] == "0.7500"  # as tokens, without "a"
    assert values["tokens_of_corpus"] is None  # no two further documents


def test_noun_chunks_are_the_taggers():
    """Words of four letters: {runs} on both sides."""
    assert jaccard(SUBJECT).values["noun_chunks"] == "1.0000"


def test_chunks_lose_what_stands_in_front_of_them():
    found = features.chunks([["The old  Doctor", "it", "all of those", "Doctor X"]])
    assert found == [{"old doctor": 1.0, "doctor x": 1.0}]


def test_term_weights_by_hand():
    """Three texts, dog in two of them, cat in one: rarity ln(4/3) + 1 and ln(4/2) + 1; then each text of length 1."""
    dog, cat = 2 * (math.log(4 / 3) + 1), math.log(4 / 2) + 1
    length = math.hypot(dog, cat)
    expected = [{"dog": dog / length, "cat": cat / length}, {"dog": 1.0}, {}]
    assert features.weighted_terms(["Dog the dog CAT", "dog", "of"]) == [pytest.approx(each) for each in expected]


def test_only_the_heaviest_terms_are_compared():
    weights = np.array([3.0, 1e-17, 2.0, 2.0, 5.0])
    assert heaviest(weights).tolist() == [True, False, True, True, True]


def test_the_heaviest_of_equals_are_the_first(monkeypatch):
    monkeypatch.setattr(module, "TERMS", 2)
    assert heaviest(np.array([3.0, 2.0, 2.0])).tolist() == [True, True, False]


def test_a_copy_is_all_in_common_and_strangers_nothing():
    documents = [f"alpha{n} beta{n % 3} gamma{n % 5} delta" for n in range(30)]
    same = jaccard(EvaluationInput(texts(*documents), documents=lambda: documents, tag=Capitals())).values
    assert {same[name] for name in FIGURES} == {"1.0000"}
    other = jaccard(
        EvaluationInput(texts("one two three", "four five six"), documents=lambda: documents, tag=Capitals())
    ).values
    assert {other[name] for name in FIGURES} == {"0.0000"}


def test_a_corpus_stands_beside_itself():
    """Released texts drawn like the corpus have what two parts of the corpus have in common."""
    generator = np.random.default_rng(2)
    every = [" ".join(text) for text in of_numbers(generator, 300)]
    values = jaccard(EvaluationInput(texts(*every[:100]), documents=lambda: every[100:], tag=Capitals())).values
    assert float(values["tokens_low"]) < float(values["tokens_of_corpus"]) < float(values["tokens_high"])


def test_intervals_hold_the_mean_of_many_releases():
    """The jackknife is known to err on the wide side: 200 pairs, at least 92 % held, and not 1.7 times too wide."""
    generator = np.random.default_rng(9)
    found = [jaccard_similarity(of_numbers(generator, 60), of_numbers(generator, 60), present) for _ in range(200)]
    values = np.array([each[0] for each in found if each])
    ends = np.array([each[1] for each in found if each])
    held = (ends[:, 0] <= values.mean()) & (values.mean() <= ends[:, 1])
    assert held.mean() >= 0.92
    assert (ends[:, 1] - ends[:, 0]).mean() < 1.7 * 2 * 2.09 * values.std()


def test_the_heaviest_terms_have_such_an_interval_too(monkeypatch):
    monkeypatch.setattr(module, "TERMS", 30)
    generator = np.random.default_rng(10)
    found = [jaccard_similarity(of_numbers(generator, 60), of_numbers(generator, 60), heaviest) for _ in range(100)]
    values = np.array([each[0] for each in found if each])
    ends = np.array([each[1] for each in found if each])
    assert ((ends[:, 0] <= values.mean()) & (values.mean() <= ends[:, 1])).mean() >= 0.9


def test_jackknife_of_a_mean_is_the_classic_standard_error():
    """Leaving out single items of a mean: variance s^2 / n."""
    values = np.array([0.2, 0.4, 0.3, 0.6, 0.5])
    without = [float(np.delete(values, each).mean()) for each in range(5)]
    low, high = share_interval(float(values.mean()), without) or (0.0, 0.0)
    assert (high - low) / 2 == pytest.approx(2.7764451 * values.std(ddof=1) / math.sqrt(5))


@pytest.mark.parametrize(("given", "documents"), [([], ["a"]), (["", " "], ["a"]), (["a"], []), (["a"], [""])])
def test_nothing_to_compare_is_null(given, documents):
    found = jaccard(replace(SUBJECT, texts=texts(*given), documents=lambda: documents, tag=None))
    assert found.values["tokens"] is found.values["tf_idf_high"] is None
    assert found.line == "nothing to compare"


def test_one_text_has_no_interval():
    values = jaccard(replace(SUBJECT, texts=texts("red dog"))).values
    assert values["tokens"] is not None
    assert values["tokens_low"] is None


def test_texts_without_features_have_no_figure():
    values = jaccard(replace(SUBJECT, texts=texts("?!", "..."), documents=lambda: ["!", "--"])).values
    assert {values[name] for name in FIGURES} == {None}


def test_a_tagger_is_missed_where_there_is_something_to_read():
    with pytest.raises(ValueError, match="tagger"):
        jaccard(replace(SUBJECT, tag=None))


def test_only_so_many_texts_are_read(monkeypatch):
    monkeypatch.setattr(module, "COMPARED", 5)
    many = EvaluationInput(texts(*["red dog"] * 9), documents=lambda: ["red dog"] * 40, tag=Capitals())
    values = jaccard(many).values
    assert (values["texts"], values["documents"], values["tokens_of_corpus"]) == (5, 5, "1.0000")
