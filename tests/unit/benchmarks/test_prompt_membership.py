"""Membership in prompts: what was in one is found; how sure a model is of a label is what transformers says."""

import importlib
import math

import numpy as np
import pytest

from tasks.evaluation.in_context.demonstrations import Example, UnknownLabel
from tasks.evaluation.in_context.prompts import PromptWriter
from tests.unit.tasks.attacks.people import random_texts
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, NOTES, WEATHER, pair

__all__ = ["pair"]

MEMBERSHIP = importlib.import_module("benchmarks.in_context.prompt_membership")
PromptRound, few_shot_membership = MEMBERSHIP.PromptRound, MEMBERSHIP.few_shot_membership
right_answers = MEMBERSHIP.right_answers
MEMBERS, OTHERS = random_texts(60, 30, 1), random_texts(120, 30, 2)


def test_the_right_label_has_the_share_that_transformers_gives_it(pair):
    shown, items = NOTES[:2], NOTES[3:6]
    found = right_answers(pair.model, WEATHER)(shown, items)
    writer = PromptWriter(WEATHER, pair.model.tokenizer, 128)
    prompt = writer.shared(shown, 1000).tokens
    for item, score in zip(items, found, strict=True):
        question = prompt + writer.question(item.text)[0]
        logs = {
            label: pair.log_probability(question, word)
            for label, word in zip(WEATHER.labels, writer.label_words(), strict=True)
        }
        whole = math.log(sum(map(math.exp, logs.values())))
        assert score == pytest.approx(logs[item.label] - whole, abs=1e-4)


def test_an_attack_on_prompts_runs_on_a_model(pair):
    rounds = [PromptRound(NOTES[at : at + 2], NOTES[at : at + 2], NOTES[6 + at : 8 + at]) for at in (0, 2, 4)]
    found = few_shot_membership(right_answers(pair.model, WEATHER), rounds)
    assert (found.members, found.nonmembers) == (6, 6)
    assert 0 <= found.auc <= 1


def test_what_has_no_labels_is_refused(pair):
    with pytest.raises(ValueError, match="no labels"):
        right_answers(pair.model, ANIMALS)
    answer = right_answers(pair.model, WEATHER)
    with pytest.raises(UnknownLabel):
        answer([], [Example("hail", "hail")])
    assert answer(NOTES[:1], []) == []


def reader():
    """A model that is sure of what it has just read, and guesses otherwise."""
    rng = np.random.default_rng(0)
    return lambda shown, items: [float(rng.normal(3.0 * (item in shown), 1)) for item in items]


def test_demonstrations_in_a_prompt_are_found_and_released_ones_are_not():
    items = [Example(text, "label") for text in MEMBERS]
    others = [Example(text, "label") for text in OTHERS[:60]]
    synthetic = [Example(text, "label") for text in random_texts(60, 10, 5)]
    real = [PromptRound(items[at : at + 4], items[at : at + 4], others[at : at + 4]) for at in range(0, 60, 4)]
    private = [PromptRound(synthetic[at : at + 4], items[at : at + 4], others[at : at + 4]) for at in range(0, 60, 4)]
    assert few_shot_membership(reader(), real).auc > 0.9
    low, high = few_shot_membership(reader(), private).interval
    assert low < 0.5 < high


def test_prompts_are_judged_together_with_one_threshold():
    """(2 > 1), (2 > 0), (0.5 < 1), (0.5 > 0): three of four pairs, though each prompt alone orders its own."""
    rounds = [PromptRound([], [Example("m", "1")], [Example("n", "1")])] * 2
    answers = iter([[2.0, 1.0], [0.5, 0.0]])
    assert few_shot_membership(lambda shown, items: next(answers), rounds).auc == 0.75


def test_without_prompts_nothing_is_measured():
    assert few_shot_membership(reader(), []).auc is None
    assert few_shot_membership(reader(), [PromptRound([], [], [])]).auc is None
