"""Cutting a released set: whatever a model says, the result is a part of it, and as large as it was asked for."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from models_db.values.requests import parse_model
from tasks.analysis.keywords.keyword_set import (
    BATCH,
    KEEP_SCHEMA,
    by_counts,
    by_coverage,
    by_model,
    keep_prompt,
    refiner_for,
    representatives,
)
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.inference.structured_output.json_schema import record_schema
from tests.refusals import refusal

KEYWORDS = [f"keyword {number:03}" for number in range(100)]


def test_counts_decide_and_the_alphabet_among_equals():
    assert by_counts(["a", "b", "c", "d"], [1, 5, -3, 5])(["d", "c", "b", "a"], 3) == ["b", "d", "a"]


def obeying(prompts, schema):
    """A model that keeps the last half of what it is shown."""
    counts = [prompt.count("keyword ") for prompt in prompts]
    return [{"keep": list(range(count, count // 2, -1))} for count in counts]


def test_a_model_s_choice_is_taken_round_by_round():
    asked = []

    def write(prompts, schema):
        asked.append(len(prompts))
        return obeying(prompts, schema)

    found = by_model(write)(KEYWORDS, 30)
    assert len(set(found)) == 30
    assert set(found) <= set(KEYWORDS)
    assert asked == [5, 3], "100 of 20 each leave 50, and 50 leave fewer than 30"


def test_a_set_that_is_small_enough_is_not_asked_about():
    def write(prompts, schema):
        raise AssertionError("asked")

    assert by_model(write)(KEYWORDS[:7], 7) == KEYWORDS[:7]


@given(
    st.integers(1, 100),
    st.integers(1, 100),
    st.one_of(
        st.none(), st.integers(), st.text(max_size=3), st.lists(st.one_of(st.integers(-3, 30), st.text(max_size=2)))
    ),
)
def test_whatever_a_model_answers_the_result_is_a_part_of_the_set(count, most, answer):
    """It says nothing, numbers of no keyword, the same ones twice, or something that is no list."""
    found = by_model(lambda prompts, schema: [{"keep": answer} if answer else {} for _ in prompts])(
        KEYWORDS[:count], most
    )
    assert len(set(found)) == len(found) == min(count, most)
    assert set(found) <= set(KEYWORDS[:count])


def test_the_answer_has_a_grammar_that_we_can_hold_a_model_to():
    assert record_schema(KEEP_SCHEMA)["required"] == ["keep"]


def test_the_prompt_numbers_what_the_answer_names():
    prompt = keep_prompt(["law", "tax", "court"])
    assert "1. law\n2. tax\n3. court" in prompt
    assert "at most 1 " in prompt
    assert len(KEYWORDS[:BATCH]) == BATCH


def points_of(*angles):
    return np.array([[np.cos(a), np.sin(a)] for a in angles], np.float32)


def test_coverage_takes_one_of_each_crowd_and_the_larger_first():
    points = points_of(0.0, 0.05, 0.1, 1.5, 1.55, 3.1)
    assert [index // 3 for index in representatives(points, 2)] == [0, 1]
    assert representatives(points, 3)[2] == 5
    assert sorted(representatives(points, 9)) == list(range(6))
    assert representatives(points[:0], 3) == []


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32))
@example(9, 4, 9)
def test_postponed_updates_find_what_the_plain_greedy_way_finds(count, most, seed):
    points = np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    close, best = np.maximum(points @ points.T, 0), np.zeros(count, np.float32)
    taken = representatives(points, most)
    assert len(set(taken)) == min(most, count)
    for index in taken:  # two gains may differ in their last bits alone, and then either choice is greedy
        gains = np.maximum(close - best, 0).sum(1)
        assert gains[index] >= gains.max() - 1e-5
        best = np.maximum(best, close[index])


def test_coverage_is_of_keywords():
    def embed(texts):
        return points_of(*(0.0 if text.startswith("l") else 1.5 for text in texts))

    assert sorted(word[:3] for word in by_coverage(embed)(["law", "tax", "lawyer", "taxes"], 2)) == ["law", "tax"]
    assert by_coverage(embed)([], 2) == []


def test_the_settings_say_how():
    def asked(ranking):
        return parse_model(KeywordSettings, {"ranking": ranking}, "`keywords`")

    assert refiner_for(asked("counts")) is None
    assert refiner_for(asked("model"), write=obeying)(KEYWORDS[:4], 3) is not None
    for ranking in ("model", "coverage"):
        with refusal("FileInvalid", match="not available here"):
            refiner_for(asked(ranking))
