"""ROUGE against the reference package, and the best match against comparing with every document."""

import random
from dataclasses import replace

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from tasks.evaluation import overlap as module
from tasks.evaluation.algorithms import CommonSubsequence
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.overlap import Closest, rouge, rouge_words
from tests.unit.tasks.evaluation.subjects import texts

TEXT = "the patient took five mg of it at noon and no allergies are known Caf\u00e9 x-ray 3.5"
WORDS = TEXT.split()


def some_texts(seed: int, count: int, longest: int = 60) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def test_words_are_the_packages():
    tokenize = RougeScorer(["rouge1"])._tokenizer.tokenize
    for text in [*some_texts(1, 20), "", "  \n", "It's NA\u00cfVE_x \u4e2d\u6587 12", "\u0130stanbul \ufb01ne"]:
        assert rouge_words(text) == tokenize(text)


def test_the_best_match_is_the_packages_over_all_documents():
    """The package scores every pair, its slow table and all; we must find the same maxima without that."""
    released, documents = some_texts(2, 12), some_texts(3, 15)
    scorer, closest = RougeScorer(["rouge1", "rougeL"]), Closest([rouge_words(text) for text in documents])
    for text in released:
        best = scorer.score_multi(documents, text)
        expected = (best["rouge1"].fmeasure, best["rougeL"].fmeasure)
        assert closest.to(rouge_words(text)) == pytest.approx(expected)


def test_subsequences_against_the_table():
    draw = random.Random(4)
    for _ in range(50):
        one, other = (draw.choices("abcd", k=draw.randint(0, 90)) for _ in range(2))
        table = np.zeros((len(one) + 1, len(other) + 1), int)
        for i, a in enumerate(one):
            for j, b in enumerate(other):
                table[i + 1, j + 1] = table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
        assert CommonSubsequence(one).with_(other) == table[-1, -1]


def test_figures_by_hand():
    """`a b c d` with `a c x`: 2 shared of 4 and 3 words, in order: 4/7. `d e` with `e d f`: 4/5, in order 2/5."""
    found = rouge(
        EvaluationInput(texts("a b c d", "d e", "\u4e2d\u6587", ""), documents=lambda: ["a c x", "e d f", ""])
    )
    assert found.values == {
        "scored": 2,
        "unscored": 2,
        "documents": 3,
        "rouge_1": "0.6857",  # (4/7 + 4/5) / 2
        "rouge_1_low": "0.5714",
        "rouge_1_high": "0.8000",
        "rouge_1_max": "0.8000",
        "rouge_l": "0.4857",  # (4/7 + 2/5) / 2
        "rouge_l_low": "0.4000",
        "rouge_l_high": "0.5714",
        "rouge_l_max": "0.5714",
    }


def test_copies_score_one_and_strangers_nothing():
    copied = rouge(EvaluationInput(texts(*some_texts(5, 5)), documents=lambda: some_texts(5, 5)))
    assert copied.values["rouge_1"] == copied.values["rouge_l"] == copied.values["rouge_l_low"] == "1.0000"
    strange = rouge(EvaluationInput(texts("alpha beta", "gamma"), documents=lambda: some_texts(5, 5)))
    assert strange.values["rouge_1"] == strange.values["rouge_l_max"] == "0.0000"


@pytest.mark.parametrize(("given", "documents"), [([], ["a"]), ([""], ["a"]), (["a"], []), (["a"], ["", "\u4e2d"])])
def test_nothing_to_compare_is_null(given, documents):
    found = rouge(EvaluationInput(texts(*given), documents=lambda: documents))
    assert found.values["scored"] == 0
    assert found.values["rouge_1"] is found.values["rouge_l_max"] is None
    assert found.line == "nothing to compare"


def test_without_texts_no_document_is_opened():
    def documents():
        raise AssertionError("opened")

    assert rouge(EvaluationInput((), documents=documents)).values["documents"] == 0


def test_only_so_many_documents_are_compared_with(monkeypatch):
    subject = EvaluationInput(texts("a b"), documents=lambda: ["a b"] * 30)
    monkeypatch.setattr(module, "COMPARED", 7)
    assert rouge(subject).values["documents"] == 7


def test_a_very_long_text():
    long = " ".join(f"w{number % 997}" for number in range(30_000))
    found = rouge(replace(EvaluationInput(texts(long)), documents=lambda: [long, "w1 w2"]))
    assert found.values["rouge_l"] == "1.0000"
