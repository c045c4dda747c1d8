"""Facet settings of a request: the extractor and the fields. All of them are public."""

import json
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.canonical_json import digest
from models_db.values.requests import ExactDecimal, RequestModel, TextLine, model_to_json
from tasks.inference.structured_output.json_schema import MOST_CHARACTERS, Schema
from tasks.values.results import KEYWORDS, SUMMARY

MOST_FIELDS = 12
MOST_TOLD = 5000
"""Characters of descriptions and examples: a prompt has 8,000 (`tasks.inference.prompt_spec`)."""


class FacetField(RequestModel):
    """One field of the facets.

    Attributes:
        name: its name in the model's answer.
        about: its meaning, in a line that the model reads.
        kind: one text, or a list of short ones.
        most_items: limit of a list.
        most_characters: limit of a text, or of each item of a list.
    """

    name: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,39}$")]
    about: TextLine
    kind: Literal["text", "list"] = "list"
    most_items: Annotated[int, Field(ge=1, le=20)] = 5
    most_characters: Annotated[int, Field(ge=1, le=400)] = 40

    @property
    def schema_part(self) -> Schema:
        """The JSON schema of the field."""
        if self.kind == "text":
            return {"type": "string", "maxLength": self.most_characters}
        item = {"type": "string", "minLength": 1, "maxLength": self.most_characters}
        return {"type": "array", "items": item, "maxItems": self.most_items}

    @property
    def characters(self) -> int:
        """Its part of the size of the grammar, as `json_schema` counts."""
        return len(json.dumps(self.name)) + self.most_characters * (self.most_items if self.kind == "list" else 1)


PAPER_FIELDS = (
    FacetField(name="topics", about="what it is about, from the broadest on", most_items=3),
    FacetField(name="subtopics", about="the particular points under these topics", most_items=3, most_characters=60),
    FacetField(name="intent", about="what the writer wants, such as to learn, to complain or to plan", kind="text"),
    FacetField(name="entities", about="people, organisations, places and products that are named"),
    FacetField(name=KEYWORDS, about="the words that best tell it from other texts", most_characters=30),
    FacetField(name=SUMMARY, about="one sentence of at most 20 words", kind="text", most_characters=160),
)
"""The six fields of URANIA's appendix G.1, in its order and in our words."""


class FacetExample(RequestModel):
    """An invented text with its facets, shown to the model.

    Attributes:
        facets: by the name of the field. Missing and unknown fields are not shown.
    """

    text: Annotated[str, Field(min_length=1, max_length=600)]
    facets: dict[str, tuple[TextLine, ...]]


EXAMPLES = (
    FacetExample(
        text="My landlord keeps my deposit although I left the flat clean. Can I go to a small claims court in Leeds?",
        facets={
            "topics": ("housing", "tenancy law"),
            "subtopics": ("return of a deposit", "small claims"),
            "intent": ("get legal advice",),
            "entities": ("Leeds",),
            KEYWORDS: ("landlord", "deposit", "small claims court"),
            SUMMARY: ("A tenant asks how to get a deposit back from a landlord.",),
        },
    ),
    FacetExample(
        text="write a function that sorts a list of dictionaries by two keys, in python please",
        facets={
            "topics": ("programming",),
            "subtopics": ("sorting dictionaries",),
            "intent": ("get code written",),
            "entities": ("Python",),
            KEYWORDS: ("python", "sorting", "dictionaries"),
            SUMMARY: ("The user wants a Python function that sorts dictionaries.",),
        },
    ),
)
"""Two examples: without any, a small model repeats the instructions, and with one it repeats the example."""


class FacetSettings(RequestModel):
    """Settings of the extraction of facets; all of them are public.

    Attributes:
        extractor: `rake` takes phrases from the text without a model; `model` prompts the release's model.
        fields: of every unit's facets, in this order. `summary`, a text, and `keywords`, a list, are among them.
        examples: shown to the model before each text; may be empty.
        phrase_words: the longest phrase of `rake`, in words.
        contrast: weight of words that the text makes likelier than no text would. At 0 a small model repeats the
            examples; more than 0 doubles the work.
        max_text_tokens: tokens of a unit that the model reads.
        max_new_tokens: tokens of an answer, the end included.
    """

    extractor: Literal["rake", "model"] = "rake"
    fields: Annotated[tuple[FacetField, ...], Field(max_length=MOST_FIELDS)] = PAPER_FIELDS
    examples: Annotated[tuple[FacetExample, ...], Field(max_length=5)] = EXAMPLES
    phrase_words: Annotated[int, Field(ge=1, le=4)] = 2
    contrast: Annotated[ExactDecimal, Field(ge=0, le=4)] = Decimal(1)
    max_text_tokens: Annotated[int, Field(ge=16, le=100_000)] = 192
    max_new_tokens: Annotated[int, Field(ge=16, le=4_000)] = 192

    @model_validator(mode="after")
    def _possible(self) -> "FacetSettings":
        kinds = {field.name: field.kind for field in self.fields}
        if len(kinds) < len(self.fields):
            raise _facet_fields_invalid("two fields have one name")
        for name, kind in ((SUMMARY, "text"), (KEYWORDS, "list")):
            if kinds.get(name) != kind:
                raise _facet_fields_invalid(f"a field `{name}` of kind {kind} is needed")
        if (size := sum(field.characters for field in self.fields)) > MOST_CHARACTERS:
            raise _facet_fields_invalid(f"all fields together have up to {size} characters (at most {MOST_CHARACTERS})")
        if (size := self._prompt_characters) > MOST_TOLD:
            raise _facet_fields_invalid(f"their descriptions and examples have {size} characters (at most {MOST_TOLD})")
        return self

    @property
    def json_schema(self) -> Schema:
        """The schema of the model's answers: an object with all fields, in order."""
        return {
            "type": "object",
            "properties": {field.name: field.schema_part for field in self.fields},
            "required": [field.name for field in self.fields],
        }

    @property
    def _prompt_characters(self) -> int:
        """Number of characters of descriptions and examples in the prompt."""
        shown = [phrase for example in self.examples for phrases in example.facets.values() for phrase in phrases]
        return sum(map(len, [*(field.about for field in self.fields), *(each.text for each in self.examples), *shown]))

    @property
    def field(self) -> dict[str, FacetField]:
        """The fields by name, in order."""
        return {field.name: field for field in self.fields}

    @property
    def digest(self) -> str:
        """SHA-256 of all settings."""
        return digest(model_to_json(self))


def _facet_fields_invalid(reason: str) -> UsageError:
    return UsageError(
        f"These facet fields are not possible: {reason}.",
        "Correct `facets.fields`, or leave it out; docs/facets.md has an example.",
        {"reason": reason},
        code="FacetFieldsInvalid",
    )
