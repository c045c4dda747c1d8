"""Completion prompts: one text that a model goes on with, public before and after the place of a reference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import Prompt, parse_model
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import RenderedPrompt, control_tokens, prompts_for, reference_tokens
from tasks.inference.prompt_spec import PromptSpec, prompt_json, wording_of
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer

DESCRIPTION = "Short notes of a clinic."
TINY = tiny_tokenizer(None)


def prompt(**written: Any) -> Prompt:
    return Prompt.model_validate({"description": DESCRIPTION, "form": "completion", **written})


def spec(labels: tuple[str, ...] = (), **written: Any) -> PromptSpec:
    return PromptSpec.of(prompt(**written), labels)


@pytest.fixture(params=["tiny", "real"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """Neither needs a chat template."""
    if request.param == "tiny":
        return TINY
    model: LanguageModel = request.getfixturevalue("real")
    return model.tokenizer


# --- rendering -------------------------------------------------------------------------------------------------


def test_a_completion_is_one_text_around_the_reference(tokenizer: Any) -> None:
    public, private = prompts_for(tokenizer, spec(examples=["One.", "Two\nlines."]))
    reference = reference_tokens(tokenizer, "Fever since Monday.", 100)
    beginning = f"{DESCRIPTION}\n###\nOne.\n###\nTwo\nlines.\n###\n"
    assert tokenizer.decode(public.tokens) == beginning
    assert tokenizer.decode(private.around(reference)) == f"{beginning}Fever since Monday.\n###\n"
    assert private.around(reference) == (*private.prefix, *reference, *private.suffix)


def test_without_examples_the_description_is_all_that_is_public(tokenizer: Any) -> None:
    public, private = prompts_for(tokenizer, spec(separator="* * *"))
    assert tokenizer.decode(public.tokens) == f"{DESCRIPTION}\n* * *\n"
    assert tokenizer.decode(private.suffix) == "\n* * *\n"


def test_the_public_row_is_the_beginning_of_the_private_rows(tokenizer: Any) -> None:
    public, private = prompts_for(tokenizer, spec(examples=["One."]))
    assert public.tokens == private.prefix
    assert public.suffix == ()
    assert private.suffix


@given(st.text(max_size=200))
def test_a_reference_changes_no_public_token(text: str) -> None:
    """Private text stands in one place, behind everything that the rows of a label share."""
    public, private = prompts_for(TINY, spec(examples=["One."]))
    reference = reference_tokens(TINY, text, 100)
    row = private.around(reference)
    assert row[: len(public.tokens)] == public.tokens
    assert row[len(private.prefix) : len(row) - len(private.suffix)] == reference
    assert control_tokens(TINY).isdisjoint(row)


def test_a_label_is_told_to_every_row(tokenizer: Any) -> None:
    labelled = spec(("fever", "cough"))
    for pieces in prompts_for(tokenizer, labelled, "cough"):
        assert tokenizer.decode(pieces.prefix) == f"{DESCRIPTION}\n\nCategory: cough\n###\n"


def test_a_template_of_its_own(tokenizer: Any) -> None:
    made = spec(public="{description} Each is about {{braces}}.")
    assert tokenizer.decode(prompts_for(tokenizer, made)[0].tokens) == f"{DESCRIPTION} Each is about {{braces}}.\n###\n"


@pytest.mark.parametrize("special", ["<|start|> $A", "<|start|> $A <|end|>", "$A <|end|>", "$A"])
def test_a_prompt_begins_as_the_tokenizer_begins_every_text(special: str) -> None:
    """An end token that it puts behind every text is left out: this text goes on."""
    made = tiny_tokenizer(None)
    ids = [(name, made.convert_tokens_to_ids(name)) for name in ("<|start|>", "<|end|>")]
    made.backend_tokenizer.post_processor = TemplateProcessing(single=special, special_tokens=ids)
    begins = special.startswith("<|start|>")
    for pieces in prompts_for(made, spec()):
        assert (pieces.tokens[0] == made.bos_token_id) == begins
        assert control_tokens(made).isdisjoint(pieces.tokens[1:])
        assert made.decode(pieces.prefix, skip_special_tokens=True) == f"{DESCRIPTION}\n###\n"


# --- what is stored ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [(), ("a", "b")])
@pytest.mark.parametrize("written", [{}, {"examples": ["One."]}, {"separator": "---"}])
def test_a_completion_is_stored_in_full_and_means_the_same_again(
    labels: tuple[str, ...], written: dict[str, Any]
) -> None:
    stored = prompt_json(prompt(**written), labels)
    assert isinstance(stored, dict)
    again = Prompt.model_validate(stored)
    assert PromptSpec.of(again, labels) == spec(labels, **written)
    assert prompt_json(again, labels) == stored
    assert {"description", "form", "public", "separator"} <= set(stored)
    assert ("examples" in stored) == ("examples" in written)
    assert wording_of(stored) == spec(labels, **written).wording


def test_people_read_every_public_word() -> None:
    assert spec(examples=["One.", "Two."]).wording == {
        "form": "completion",
        "public": "{description}",
        "example 1": "One.",
        "example 2": "Two.",
        "separator": "###",
    }


def test_a_conversation_that_is_named_is_the_default() -> None:
    plain: Json = {"description": DESCRIPTION}
    named = Prompt.model_validate({"description": DESCRIPTION, "form": "chat"})
    assert named == Prompt(description=DESCRIPTION)
    assert prompt_json(named) == plain
    assert PromptSpec.of(named).end is None
    assert spec().end == "###"


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ({"preset": "clinical"}, "TemplateUnused"),
        ({"system": "Be brief."}, "TemplateUnused"),
        ({"private": "{reference}"}, "TemplateUnused"),
        ({"again": "Another."}, "TemplateUnused"),
        ({"date": "2026-01-02"}, "TemplateUnused"),
        ({"form": "chat", "separator": "---"}, "TemplateUnused"),
        ({"form": None, "separator": "---"}, "TemplateUnused"),
        ({"public": ""}, "TemplateEmpty"),
        ({"public": "{reference}"}, "ReferenceMisplaced"),
        ({"public": "{description} {label}"}, "LabelUnexpected"),
        ({"examples": ["One.", "Two.\n###\nThree."]}, "SeparatorInExample"),
        ({"examples": ["One.\n---"], "separator": "---"}, "SeparatorInExample"),
    ],
)
def test_what_does_not_fit_the_form_is_refused_by_name(written: dict[str, Any], error: str) -> None:
    with refusal(error) as refused:
        spec(**written)
    assert isinstance(refused.value, UsageError)
    assert "prompt." in refused.value.message


def test_rows_must_know_their_label() -> None:
    with refusal("LabelMissing"):
        spec(("a",), public="{description}")


@pytest.mark.parametrize(
    "written",
    [{"form": "essay"}, {"examples": [""]}, {"examples": ["x"] * 21}, {"separator": "a\nb"}, {"separator": ""}],
)
def test_what_is_no_completion_is_refused_by_the_format(written: dict[str, Any]) -> None:
    with refusal("FileInvalid"):
        parse_model(Prompt, {"description": DESCRIPTION, "form": "completion", **written}, "`prompt`")


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"public": "Stop.<|end|>"}, "public"),
        ({"examples": ["One.", "Two<|end|>"]}, "examples"),
        ({"separator": "<|end|>"}, "separator"),
    ],
)
def test_control_tokens_are_refused(written: dict[str, Any], field: str) -> None:
    with refusal("ControlTokens", match=f"prompt.{field}"):
        prompts_for(TINY, spec(**written))


def test_a_description_with_a_control_token_is_refused() -> None:
    with refusal("BadDescription"):
        prompts_for(TINY, PromptSpec("Notes<|end|>", form="completion"))


# --- the digest --------------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_token_ids() -> None:
    public, private = prompts_for(TINY, spec())
    rendered = RenderedPrompt.of(TINY, spec(), ())
    assert rendered.tokens == len(private.tokens) > len(public.tokens)
    assert rendered == RenderedPrompt.of(tiny_tokenizer(), spec(), ())  # no chat template is read


def test_the_digest_changes_with_every_word_and_label_and_with_the_tokenizer() -> None:
    begun = tiny_tokenizer(None)
    begun.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", 0)]
    )
    labelled = PromptSpec.of(prompt(), ("a", "b"))
    rendered = [
        RenderedPrompt.of(TINY, spec(), ()),
        RenderedPrompt.of(begun, spec(), ()),
        RenderedPrompt.of(TINY, spec(separator="---"), ()),
        RenderedPrompt.of(TINY, spec(examples=["One."]), ()),
        RenderedPrompt.of(TINY, spec(description="Other notes."), ()),
        RenderedPrompt.of(TINY, labelled, ("a", "b")),
        RenderedPrompt.of(TINY, labelled, ("b", "a")),
        RenderedPrompt.of(tiny_tokenizer(), PromptSpec(DESCRIPTION), ()),
    ]
    assert len({each.sha256 for each in rendered}) == len(rendered)
