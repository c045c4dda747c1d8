"""What a request may say about facets, and what it may not."""

import pytest
from pydantic import ValidationError

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json
from tasks.analysis.facets.facet_settings import PAPER_FIELDS, FacetExample, FacetField, FacetSettings
from tasks.inference.structured_output.automaton import Automaton
from tasks.inference.structured_output.json_schema import MOST_CHARACTERS, grammar_schema
from tests.refusals import refusal

SUMMARY = FacetField(name="summary", about="a line", kind="text")
KEYWORDS = FacetField(name="keywords", about="words")


def test_the_default_is_the_papers_six():
    names = [field.name for field in FacetSettings().fields]
    assert names == ["topics", "subtopics", "intent", "entities", "keywords", "summary"]
    assert FacetSettings().extractor == "rake"


def test_settings_are_stored_and_read_again():
    asked = FacetSettings(extractor="model", fields=(KEYWORDS, SUMMARY), max_text_tokens=100)
    assert model_to_json(asked)["contrast"] == "1"
    assert encode_canonical(model_to_json(asked))
    stored = model_to_json(asked)
    assert FacetSettings.model_validate(stored) == asked
    assert FacetSettings.model_validate(stored).digest == asked.digest
    assert asked.digest != FacetSettings(extractor="model", fields=(SUMMARY, KEYWORDS), max_text_tokens=100).digest


def test_the_schema_has_the_fields_in_their_order():
    schema = FacetSettings(fields=(SUMMARY, KEYWORDS)).json_schema
    assert schema["required"] == ["summary", "keywords"]
    assert schema["properties"]["summary"] == {"type": "string", "maxLength": 40}
    assert schema["properties"]["keywords"]["maxItems"] == 5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((SUMMARY,), "`keywords` of kind list"),
        ((KEYWORDS,), "`summary` of kind text"),
        ((), "`summary`"),
        ((KEYWORDS, FacetField(name="summary", about="lines")), "`summary` of kind text"),
        ((SUMMARY, KEYWORDS, KEYWORDS), "two fields have one name"),
        ((SUMMARY, KEYWORDS.model_copy(update={"most_items": 20, "most_characters": 400})), "8059 characters"),
    ],
)
def test_an_impossible_schema_is_refused_by_name(fields, reason):
    with refusal("FacetFieldsInvalid") as refused:
        FacetSettings(fields=fields)
    assert reason in refused.value.message


def test_what_the_model_is_told_has_an_end():
    long = FacetExample(text="x" * 600, facets={"summary": ("y" * 300, "z" * 300)})
    FacetSettings(examples=(long,) * 3)
    with refusal("FacetFieldsInvalid", match="descriptions and examples"):
        FacetSettings(examples=(long,) * 5)


@pytest.mark.parametrize("name", ["", "Topics", "a-b", 'a"b', "1st"])
def test_a_field_has_a_plain_name(name):
    with pytest.raises(ValidationError):
        FacetField(name=name, about="something")


def test_what_is_admitted_is_a_grammar_that_can_be_built():
    """The size that is checked here is the one that the grammar's room checks."""
    spent = sum(field.characters for field in PAPER_FIELDS)
    rest = FacetField(name="more", about="more", most_items=1, most_characters=1)
    room = (MOST_CHARACTERS - spent - len('"more"')) // 400
    full = rest.model_copy(update={"most_items": room, "most_characters": 400})
    settings = FacetSettings(fields=(*PAPER_FIELDS, full))
    assert len(Automaton.of(grammar_schema(settings.json_schema)).final) > 10_000
    with refusal("FacetFieldsInvalid"):
        FacetSettings(fields=(*PAPER_FIELDS, full.model_copy(update={"most_items": room + 1})))
