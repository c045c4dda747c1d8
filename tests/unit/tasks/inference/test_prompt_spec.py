"""The wording of a release: complete, checked before anything is priced, and stored as it was before templates came."""

from typing import Any

import pytest
from pydantic import ValidationError

from models_db.errors import UsageError
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import Prompt, model_to_json
from tasks.inference.prompt_spec import DEFAULT_WORDING, LONGEST_TEMPLATE, PRESETS, PromptSpec, Template, prompt_json

LABELS = ("a", "b")


def spec(labels: tuple[str, ...] = (), **written: Any) -> PromptSpec:
    return PromptSpec.of(Prompt.model_validate({"description": "Notes.", **written}), labels)


def error_of(labels: tuple[str, ...] = (), **written: Any) -> UsageError:
    with pytest.raises(UsageError) as refused:
        spec(labels, **written)
    assert refused.value.exit_code == 2
    assert refused.value.advice
    return refused.value


# --- the default, and what is stored -------------------------------------------------------------------------


def test_a_description_alone_is_worded_and_stored_as_it_always_was() -> None:
    plain = spec()
    assert plain == PromptSpec("Notes.")
    assert plain.system == "You write realistic texts. Reply with the text alone."
    assert plain.fill("public", None) == "Notes.\n\nWrite one."
    assert plain.fill("again", None) == "Write another."
    assert prompt_json(Prompt(description="Notes.")) == {"description": "Notes."}
    assert encode_canonical(model_to_json(Prompt(description="Notes."))) == b'{"description":"Notes."}'


@pytest.mark.parametrize("labels", [(), LABELS])
@pytest.mark.parametrize(
    "written",
    [
        {"preset": "clinical"},
        {"preset": "court", "again": "And one more."},
        {"system": "Be brief. {label}"},
        {"preset": "chat", "private": "Like this: {reference}\n{label}", "public": "Write {description} {label}"},
    ],
)
def test_what_is_not_the_default_is_stored_in_full_and_means_the_same_again(
    labels: tuple[str, ...], written: dict[str, str]
) -> None:
    if not labels:
        written = {name: text.replace("{label}", "") for name, text in written.items()}
    prompt = Prompt.model_validate({"description": "Notes.", **written})
    stored = prompt_json(prompt, labels)
    again = Prompt.model_validate(stored)
    assert PromptSpec.of(again, labels) == PromptSpec.of(prompt, labels)
    assert prompt_json(again, labels) == stored
    assert {"system", "public"} <= set(stored)
    assert ("private" in stored) != ("again" in stored)


def test_labels_alone_are_worded_and_stored_in_full() -> None:
    labelled = spec(LABELS)
    assert labelled.fill("public", "a") == "Notes.\n\nCategory: a\n\nWrite one of this category."
    assert prompt_json(Prompt(description="Notes."), LABELS) == {"description": "Notes.", **labelled.templates}


# --- presets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_whole_and_differs_from_the_others(name: str) -> None:
    for labels in ((), LABELS):
        made = spec(labels, preset=name)
        assert (made.private is not None) == (name == "summary")
        told = made.fill("system", "a") + made.fill("public", "a")
        assert "Notes." in told
        assert ("a" in made.fill("public", "a").split()) == bool(labels)
        assert made.templates != spec(labels).templates
    assert len({wording.system for wording in (*PRESETS.values(), DEFAULT_WORDING)}) == len(PRESETS) + 1


def test_explicit_fields_override_a_preset() -> None:
    made = spec(preset="review", system="Mine.", again="Mine too.")
    assert (made.system, made.again) == ("Mine.", "Mine too.")
    assert made.public == PRESETS["review"].public


def test_an_unknown_preset_is_refused_by_the_format() -> None:
    with pytest.raises(ValidationError, match="clinical"):
        Prompt.model_validate({"description": "Notes.", "preset": "legal"})


# --- one template --------------------------------------------------------------------------------------------


def test_braces_that_are_doubled_are_braces() -> None:
    made = Template.read("public", '{{"kind": "{description}"}} {{}}')
    assert made.fill({"description": "{x}"}) == '{"kind": "{x}"} {}'


def test_what_is_filled_in_is_never_a_template() -> None:
    made = PromptSpec("{label} {reference} }{", public="{description}|{label}")
    assert made.fill("public", "{description}") == "{label} {reference} }{|{description}"


@pytest.mark.parametrize("field", ["system", "public", "private", "again"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "TemplateEmpty"),
        (" \n\t", "TemplateEmpty"),
        ("x" * (LONGEST_TEMPLATE + 1), "TemplateTooLong"),
        ("a { b", "BracesUnbalanced"),
        ("a } b", "BracesUnbalanced"),
        ("{description", "BracesUnbalanced"),
        ("{}", "PlaceholderUnknown"),
        ("{0}", "PlaceholderUnknown"),
        ("{text}", "PlaceholderUnknown"),
        ("{Description}", "PlaceholderUnknown"),
        ("{ description }", "PlaceholderUnknown"),
        ("{description.__class__}", "PlaceholderUnknown"),
        ("{description!r}", "PlaceholderUnknown"),
        ("{description:>10}", "PlaceholderUnknown"),
        ("{description[0]}", "PlaceholderUnknown"),
    ],
)
def test_unfit_templates_are_named(field: str, text: str, error: str) -> None:
    found = error_of(**{field: text})
    assert found.code == error
    assert f"prompt.{field}" in found.message
    assert found.facts == {"template": field}


@pytest.mark.parametrize("field", ["system", "public", "again"])
def test_a_reference_is_refused_where_the_public_row_reads(field: str) -> None:
    assert error_of(**{field: "See {reference}."}).code == "ReferenceMisplaced"


def test_a_private_template_needs_its_reference_exactly_once() -> None:
    assert error_of(private="Write like the private text.").code == "ReferenceMissing"
    assert error_of(private="{{reference}}").code == "ReferenceMissing"
    assert error_of(private="{reference} {reference}").code == "ReferenceMisplaced"
    assert spec(private="{reference}").private == "{reference}"


def test_a_second_request_beside_a_private_template_would_never_be_shown() -> None:
    assert error_of(private="{reference}", again="Another.").code == "TemplateUnused"
    assert "again" not in spec(preset="chat", private="{reference}").templates


# --- labels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["system", "public", "again"])
def test_a_label_without_labels_is_refused(field: str) -> None:
    assert error_of(**{field: "Of {label}."}).code == "LabelUnexpected"


@pytest.mark.parametrize(
    "written",
    [
        {"public": "{description}"},
        {"public": "{description}", "again": "Another of {label}."},
        {"private": "{reference}"},
        {"public": "{description}", "private": "{reference} {label}"},
    ],
)
def test_every_row_must_know_its_label(written: dict[str, str]) -> None:
    assert error_of(LABELS, **written).code == "LabelMissing"


@pytest.mark.parametrize(
    "written",
    [
        {"system": "About {label}.", "public": "{description}"},
        {"public": "{description} of {label}"},
        {"private": "{reference} {label}"},
        {"private": "{reference}", "system": "About {label}."},
    ],
)
def test_a_label_in_the_system_message_or_in_both_rows_is_enough(written: dict[str, str]) -> None:
    assert spec(LABELS, **written).description == "Notes."
