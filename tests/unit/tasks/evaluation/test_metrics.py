"""Metrics on small texts whose figures can be worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from models_db.values.canonical_json import encode_canonical
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import distinct, length
from tasks.evaluation.model_based import COMPARED, NegativeLogLikelihood, perplexity, perplexity_gap
from tasks.evaluation.overlap import verbatim_overlap
from tasks.evaluation.registry import METRICS, evaluate
from tasks.text.words import words
from tasks.values.results import MetricResult, rounded
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import Capitals, Half, Text, Undecided, nats_per_word, texts

LABELLED = (Text("the cat sat", 3, label="cats"), Text("the dog", 2, label="dogs"))
SUBJECT = EvaluationInput(
    LABELLED,
    nats_per_word(2.0),
    lambda: ["a dog sat"],
    embed=Letters(),
    tag=Capitals(),
    judge=Undecided(),
    learn=Half(),
    labelled=lambda: [(text.text, text.label) for text in LABELLED * 2],
)


def test_words_fold_case_and_keep_signs_apart():
    assert words("It's 5 mg; OK?") == ["it", "'", "s", "5", "mg", ";", "ok", "?"]
    assert words("Caf\u0065\u0301 CAF\u00c9") == ["caf\u00e9", "caf\u00e9"]


def test_length():
    found = length(EvaluationInput((Text("one two three", 3), Text("one", 1, complete=False), Text("", 0))))
    assert found.values == {
        "texts": 3,
        "empty": 1,
        "tokens_mean": "1.33",
        "tokens_mean_low": "0.00",
        "tokens_mean_high": "3.00",
        "tokens_p05": "0.10",
        "tokens_median": "1.00",
        "tokens_p95": "2.80",
        "tokens_max": 3,
        "words_mean": "1.33",
        "words_mean_low": "0.00",
        "words_mean_high": "3.00",
        "words_p05": "0.10",
        "words_median": "1.00",
        "words_p95": "2.80",
        "words_max": 3,
        "cut_share": "0.3333",
    }
    assert found.line == "3 texts, median 1.00 tokens, 1 cut at the limit"


def test_distinct_counts_over_all_texts_and_divides_by_words():
    # words: the cat sat / the cat ran -> 6; unigrams 4, bigrams 3 (the cat, cat sat, cat ran), trigrams 2
    found = distinct(EvaluationInput(texts("the cat sat", "The cat ran")))
    figures = {name: value for name, value in found.values.items() if not name.endswith(("_low", "_high"))}
    assert figures == {"words": 6, "distinct_1": "0.6667", "distinct_2": "0.5000", "distinct_3": "0.3333"}


def test_the_interval_of_distinct_is_that_of_texts_left_out():
    """Halves of 2 words each, all different: 1 without either, so no spread; with one repeated text, spread."""
    same = distinct(EvaluationInput(texts("a b", "c d"))).values
    assert (same["distinct_1"], same["distinct_1_low"], same["distinct_1_high"]) == ("1.0000", "1.0000", "1.0000")
    mixed = distinct(EvaluationInput(texts(*["a b"] * 10, *["c d e", "f g h", "i j k"] * 4))).values
    low, value, high = (float(str(mixed[f"distinct_1{end}"])) for end in ("_low", "", "_high"))
    assert low < value < high


def test_distinct_of_one_text_has_no_interval():
    assert distinct(EvaluationInput(texts("a b a"))).values["distinct_1_low"] is None


def test_distinct_ngrams_do_not_cross_texts():
    assert distinct(EvaluationInput(texts("a b", "c d"))).values["distinct_3"] == "0.0000"


def test_perplexity_weighs_tokens():
    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        return [(-3.0, 1) if text == "short" else (-3.0, 3) for text in given]

    found = perplexity(EvaluationInput(texts("short", "longer"), score))
    assert found.values["perplexity"] == rounded(math.exp(6 / 4), 3)
    assert found.values["nats_per_token"] == "1.50000"


def test_perplexity_of_equal_texts_has_a_point_interval():
    found = perplexity(EvaluationInput(texts("a b", "c d", "e f"), nats_per_word(2.0)))
    assert found.values["interval_low"] == found.values["interval_high"] == rounded(math.exp(2), 3)


def test_bootstrap_interval_matches_the_normal_approximation():
    """Losses 0..199 of one token each: mean 99.5, standard error 57.73/sqrt(200) = 4.08."""
    losses = [float(i) for i in range(200)]
    low, high = NegativeLogLikelihood.of(lambda given: [(-x, 1) for x in losses], ["t"] * 200).interval() or (0.0, 0.0)
    assert low == pytest.approx(99.5 - 1.96 * 4.08, abs=1.0)
    assert high == pytest.approx(99.5 + 1.96 * 4.08, abs=1.0)


def test_texts_without_a_usable_score_are_counted_and_left_out():
    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        assert "" not in given  # an empty text is not handed to a model
        return [(math.nan, 3), (-math.inf, 3), (-2.0, 2), (0.0, 0)]

    found = perplexity(EvaluationInput(texts("nan", "inf", "fine", "no token", ""), score))
    assert (found.values["scored"], found.values["unscored"]) == (1, 4)
    assert found.values["perplexity"] == rounded(math.e, 3)
    assert found.values["interval_low"] is None


def test_perplexity_gap():
    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        return [(-3.0 if "private" in text else -3.5, 1) for text in given]

    found = perplexity_gap(EvaluationInput(texts("out"), score, lambda: ["private"]))
    assert found.values["gap_nats_per_token"] == "0.50000"
    assert found.values["ratio"] == rounded(math.exp(0.5), 4)
    assert found.values["gap_nats_per_token_low"] is None
    assert found.exposure == "internal"


def test_the_gap_has_an_interval_of_both_sides():
    """Two sides of 50 losses 0..49 of one token: the mean of each has variance 208.25/50, so the gap 2.886 squared."""

    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        return [(-float(text.split()[-1]), 1) for text in given]

    sides = [f"loss {number}" for number in range(50)]
    found = perplexity_gap(EvaluationInput(texts(*sides), score, lambda: sides)).values
    assert float(found["gap_nats_per_token_low"]) == pytest.approx(-1.96 * 2.886, abs=0.8)
    assert float(found["gap_nats_per_token_high"]) == pytest.approx(1.96 * 2.886, abs=0.8)


def test_a_large_corpus_is_sampled_before_it_is_scored():
    scored: list[str] = []

    def score(given: Sequence[str]) -> list[tuple[float, int]]:
        scored.extend(given)
        return [(-1.0, 1) for _ in given]

    perplexity_gap(EvaluationInput(texts("a"), score, lambda: (f"d{number}" for number in range(COMPARED + 300))))
    assert len(scored) == 1 + COMPARED


def test_a_hopeless_text_does_not_overflow():
    found = perplexity(EvaluationInput(texts("a", "b"), lambda given: [(-1e9, 1) for _ in given]))
    assert found.values["nats_per_token"] == "1000000000.00000"


def test_verbatim_overlap():
    documents = ["He took 5 mg at noon.", "No allergies known"]
    found = verbatim_overlap(EvaluationInput(texts("She TOOK 5 mg at night", "allergies"), documents=lambda: documents))
    assert found.values["max_words"] == 4  # took 5 mg at
    assert found.values["mean_words"] == "2.50"
    assert float(str(found.values["mean_words_low"])) < 2.5 < float(str(found.values["mean_words_high"]))
    assert found.exposure == "internal"


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
@pytest.mark.parametrize(("given", "documents"), [((), []), (("", ""), ["a b"]), (("a",), [])])
def test_nothing_to_measure_is_no_error(metric, given, documents):
    result = metric.compute(replace(SUBJECT, texts=texts(*given), documents=lambda: documents))
    assert result.line
    encode_canonical(result.to_json())


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_results_are_stable_storable_and_carry_what_the_registry_says(metric):
    (first,) = evaluate([metric], SUBJECT)
    (second,) = evaluate([metric], SUBJECT)
    assert first == second
    assert (first.name, first.exposure) == (metric.name, metric.exposure)
    assert first.source
    assert first.method
    assert MetricResult.from_json(first.to_json()) == first


def test_internal_metrics_are_exactly_those_that_read_documents():
    """Run every metric with documents that cannot be opened."""

    class Opened(Exception):
        pass

    def documents() -> list[str]:
        raise Opened

    opened = set()
    for name, metric in METRICS.items():
        try:
            metric.compute(replace(SUBJECT, documents=documents, labelled=documents))
        except Opened:
            opened.add(name)
    assert opened == {name for name, metric in METRICS.items() if metric.exposure == "internal"}


@pytest.mark.parametrize(
    "name",
    [
        "perplexity",
        "perplexity_gap",
        "verbatim_overlap",
        "rouge",
        "length_gap",
        "proximity",
        "train_on_synthetic",
        "jaccard",
        "entities",
        "judge",
    ],
)
def test_a_missing_ingredient_is_named(name):
    with pytest.raises(ValueError, match="needs"):
        METRICS[name].compute(EvaluationInput(texts("a")))


@pytest.mark.parametrize(
    "name", [n for n, metric in METRICS.items() if "embedder" in metric.needs and not metric.estimate]
)
def test_a_missing_embedder_is_named(name):
    with pytest.raises(ValueError, match="needs a public embedder"):
        METRICS[name].compute(replace(SUBJECT, embed=None))


@pytest.mark.parametrize(("value", "places", "text"), [(None, 2, None), (math.nan, 2, None), (1e-9, 4, "0.0000")])
def test_rounding(value, places, text):
    assert rounded(value, places) == text


@pytest.mark.parametrize(
    "change",
    [
        {"exposure": "secret"},
        {"values": {"x": 0.5}},
        {"values": "none"},
        {"line": 3},
        {"extra": "field"},
    ],
)
def test_a_stored_result_that_is_not_ours_is_refused(change):
    stored = length(EvaluationInput(texts("a"))).to_json()
    with pytest.raises(ValueError, match="metric"):
        MetricResult.from_json({**stored, **change})
