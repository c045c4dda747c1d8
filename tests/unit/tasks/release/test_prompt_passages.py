"""Passages that a text may have been copied from: all that the request wrote for the model, and almoner's wordings."""

import pytest

from tasks.inference.prompt_spec import PRESETS
from tasks.release.prompt_passages import prompt_passages
from tasks.text.doubts import find_doubts

COPIED = "the words of this very field are copied here"
REQUESTS = {
    "description": {"prompt": {"description": COPIED}},
    "example": {"prompt": {"description": "a", "examples": ["other", COPIED]}},
    "system": {"prompt": {"description": "a", "system": COPIED}},
    "template": {"prompt": {"description": "a", "again": COPIED + " {label}"}},
    "label": {"prompt": {"description": "a"}, "parameters": {"labels": ["b", COPIED]}},
    "title of a group": {"parameters": {"groups": [{"id": "b7", "title": COPIED}]}},
    "subject of a group": {"parameters": {"groups": [{"id": "b7", "about": ["x", COPIED]}]}},
    "wording of an adapter": {"parameters": {"adapter": {"meta": {"wording": {"private": COPIED}}}}},
}


@pytest.mark.parametrize("place", REQUESTS)
def test_what_a_request_shows_the_model_is_a_passage(place: str) -> None:
    assert find_doubts(f"Yes: {COPIED}.", prompt_passages(REQUESTS[place])) == ("copies the prompt",)
    assert find_doubts(f"Yes: {COPIED}.", prompt_passages({})) == ()


@pytest.mark.parametrize(
    "text",
    [
        "Cough. Write one complete record of this kind.",
        "Reply with the text alone.",
        "You write realistic texts. Cough.",
        "Parties, places and dates are invented.",
        "You write texts. You answer with the text that is asked for, and with nothing beside it.",
        "These texts are about growing tomatoes from seeds.",
    ],
)
def test_almoners_own_instructions_are_passages_of_every_request(text: str) -> None:
    assert find_doubts(text, prompt_passages({"prompt": {"description": "a"}})) == ("copies the prompt",)


def test_every_preset_is_among_them() -> None:
    said = " ".join(prompt_passages({}))
    assert [name for name, wording in PRESETS.items() if wording.system.split(". ")[0] not in said] == []


def test_a_short_label_and_the_words_of_a_form_are_none() -> None:
    form = "The product is a {type}. Customers praise its {strength} and nothing else."
    request = {"prompt": {"description": "a"}, "parameters": {"labels": ["court news of today"], "form": form}}
    assert find_doubts("Court news of today. " + form.replace("{", "").replace("}", ""), prompt_passages(request)) == ()


@pytest.mark.parametrize("request_body", [{}, {"prompt": None}, {"prompt": "text", "parameters": ["labels"]}])
def test_a_request_of_another_format_has_no_passage_of_its_own(request_body: dict[str, object]) -> None:
    assert prompt_passages(request_body) == prompt_passages({})
