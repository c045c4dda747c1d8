"""Distances of length distributions by hand and against SciPy."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import LengthGap, length_gap
from tests.unit.tasks.evaluation.subjects import texts


def of_words(*lengths: int) -> list[str]:
    return [" ".join(["w"] * length) for length in lengths]


def test_the_distance_is_scipys_for_the_whole_and_for_resamples():
    generator = np.random.default_rng(5)
    released, corpus = generator.poisson(20, size=40), generator.poisson(28, size=70)
    gap = LengthGap.between(released, corpus)
    some, others = generator.integers(40, size=40), generator.integers(70, size=70)
    assert gap.distance() == pytest.approx(wasserstein_distance(released, corpus))
    assert gap.distance(some, others) == pytest.approx(wasserstein_distance(released[some], corpus[others]))
    assert gap.longer(some, others) == pytest.approx(released[some].mean() - corpus[others].mean())


def test_by_hand():
    """Lengths 1, 3 against 3, 7: each point moves, by 2 and by 4."""
    found = length_gap(EvaluationInput(texts(*of_words(1, 3)), documents=lambda: of_words(7, 3)))
    assert (found.values["wasserstein_words"], found.values["longer_words"]) == ("3.00", "-3.00")
    assert (found.values["longer_words_low"], found.values["longer_words_high"]) == ("-6.00", "0.00")


def test_the_interval_tells_other_lengths_from_like_ones():
    generator = np.random.default_rng(6)
    corpus = of_words(*generator.poisson(30, size=120))
    like = length_gap(
        EvaluationInput(texts(*of_words(*generator.poisson(30, size=80))), documents=lambda: corpus)
    ).values
    short = length_gap(
        EvaluationInput(texts(*of_words(*generator.poisson(20, size=80))), documents=lambda: corpus)
    ).values
    assert float(like["longer_words_low"]) < 0 < float(like["longer_words_high"])
    assert float(short["longer_words_high"]) < -7
    assert float(short["wasserstein_words_low"]) > float(like["wasserstein_words_high"])


@pytest.mark.parametrize(("given", "documents"), [([], ["a"]), (["a"], [])])
def test_nothing_to_compare_is_null(given, documents):
    found = length_gap(EvaluationInput(texts(*given), documents=lambda: documents))
    assert found.values["wasserstein_words"] is None
    assert found.line == "nothing to compare"


def test_one_text_has_no_interval_and_empty_texts_count():
    found = length_gap(EvaluationInput(texts(""), documents=lambda: of_words(4, 4))).values
    assert (found["wasserstein_words"], found["wasserstein_words_low"]) == ("4.00", None)
