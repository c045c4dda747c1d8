"""How sure the model is of a right label: the same as transformers says, normalised over the labels."""

import math

import pytest

from tasks.attacks.few_shot import PromptRound, few_shot_membership
from tasks.evaluation.in_context.demonstrations import Example, UnknownLabel
from tasks.evaluation.in_context.prompts import PromptWriter
from tasks.evaluation.in_context.right_answers import right_answers
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, NOTES, WEATHER


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
