"""What a model is told of phrases."""

import pytest

from models_db.values.requests import Prompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.keyphrase_seeding.stages import seeded

PHRASES = ("red wine", "{label}")


def test_phrases_stand_in_the_request_itself():
    plain = PromptSpec.of(Prompt(description=" Letters. "))
    assert seeded(plain, None, PHRASES) == "Write a text about red wine, {label}.\n\nLetters."
    labelled = PromptSpec.of(Prompt(description="Letters."), ["a"])
    assert seeded(labelled, "a", PHRASES) == "Write a text about red wine, {label}. Its category is a.\n\nLetters."


@pytest.mark.parametrize("asked", [{"public": "Write {description}: {label}."}, {"preset": "chat"}])
def test_words_of_a_request_stay_and_phrases_follow_them(asked):
    prompt = PromptSpec.of(Prompt(description="letters", **asked), ["a"])
    own = prompt.fill("public", "a")
    assert seeded(prompt, "a", PHRASES) == f"{own}\n\nMention all of these in it: red wine, {{label}}."


def test_without_phrases_the_model_is_asked_as_a_public_row():
    for labels, label in (([], None), (["a"], "a")):
        prompt = PromptSpec.of(Prompt(description="Letters."), labels)
        assert seeded(prompt, label, ()) == prompt.fill("public", label)
