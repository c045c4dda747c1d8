"""What a schema may say; everything else is refused by name."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.inference.structured_output import automaton as constraints_automaton
from tasks.inference.structured_output.automaton import Automaton
from tasks.inference.structured_output.json_schema import grammar_schema, record_schema
from tests.refusals import refusal
from tests.unit.tasks.systems.record_schemas import FILM, SHORTEST_FILM, instance, is_valid, schemas

pytestmark = pytest.mark.dear


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        [],
        "object",
        {"type": "film"},
        {"type": "string", "maxLength": -1},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 1},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"enum": ["\ud800"]},
        {"const": float("nan")},
        {"const": {1, 2}},
        {"properties": {"a": 3}},
    ],
)
def test_what_is_no_schema_or_admits_nothing_is_invalid(schema: object) -> None:
    with refusal("SchemaInvalid"):
        grammar_schema(schema)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "pattern": "a+"}, "'pattern' is not supported"),
        ({"type": "string", "format": "date"}, "'format' is not supported"),
        ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "'uniqueItems' is not supported"),
        ({"type": "integer", "minimum": 3}, "both a whole `minimum` and a whole `maximum`"),
        ({"type": "integer", "minimum": 0.5, "maximum": 2}, "both a whole `minimum`"),
        ({"type": "number", "minimum": 3, "maximum": 4}, "'maximum' cannot stand beside"),
        ({"type": "array"}, "says what its `items` are"),
        ({"type": "object"}, "lists its properties"),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, "every required one"),
        (obj(a={"type": "null"}) | {"additionalProperties": {"type": "null"}}, "additionalProperties is true or false"),
        (obj(a={"type": "null"}) | {"patternProperties": {}}, "'patternProperties' is not supported"),
        (obj(**{'"': {"type": "null"}}), "no quote"),
        (obj(**{"a\nb": {"type": "null"}}), "control character"),
        (obj(a=True), "true and false are not types"),
        (obj(a={}), "a type, enum, const, anyOf or $ref is needed"),
        ({"oneOf": [{"type": "null"}]}, "a type, enum, const, anyOf or $ref is needed"),
        ({"not": {"type": "null"}, "type": "string"}, "'not' is not supported"),
        ({"anyOf": [{"type": "null"}], "type": "null"}, "'type' cannot stand beside"),
        ({"enum": [1, 2], "minimum": 2}, "'minimum' cannot stand beside"),
        ({"enum": [1, "a"], "type": "string"}, "not of the declared type"),
        ({"const": True, "type": "integer"}, "not of the declared type"),
        ({"enum": [1.5]}, "enum and const take"),
        ({"enum": []}, "enum and const take"),
        ({"const": {"a": 1}}, "enum and const take"),
        ({"$ref": "https://example.org/film.json"}, "only #/$defs/NAME"),
        ({"$ref": "#/$defs/gone"}, "only #/$defs/NAME"),
        (obj(a={"$ref": "#/$defs/a"}) | {"$defs": {"a": obj(b={"$ref": "#/$defs/a"})}}, "contains itself"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "null"}, "the dialect is"),
    ],
)
def test_what_a_grammar_cannot_promise_is_refused_by_name(schema: dict[str, Any], named: str) -> None:
    with refusal("SchemaNotSupported") as refused:
        grammar_schema(schema)
    assert named in refused.value.message


def test_every_problem_is_named_at_once_with_its_place() -> None:
    schema = obj(
        a={"type": "string", "pattern": "x"}, b={"type": "array", "items": {"format": "date", "type": "string"}}
    )
    with refusal("SchemaNotSupported") as refused:
        grammar_schema(schema)
    assert refused.value.facts["problems"] == [
        "schema.a: 'pattern' is not supported",
        "schema.b.items: 'format' is not supported",
    ]


def _laughs(levels: int) -> dict[str, Any]:
    """Each definition holds the next ten times."""
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": {"type": "null"}}}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 2_001},
        {"type": "array", "items": {"type": "string", "maxLength": 50}, "maxItems": 50},
        {"type": "array", "items": _nested(3) | {"maxItems": 40}, "maxItems": 400},
        {"type": "string", "minLength": 5_000},
        {"type": "integer", "minimum": 0, "maximum": 10**9},
        {"enum": ["x" * 500] * 5},
        {"type": "string", "description": "x" * 20_000},
        _laughs(6),
        _nested(40),
        _nested(5_000),
    ],
)
def test_a_schema_whose_grammar_would_not_stay_small_is_refused(schema: dict[str, Any]) -> None:
    with refusal("SchemaTooLarge", "SchemaInvalid") as refused:
        grammar_schema(schema)
    assert refused.value.code == "SchemaTooLarge" or "not plain JSON" in refused.value.message


def test_the_number_of_states_is_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints_automaton, "MOST_STATES", 100)
    with refusal("SchemaTooLarge", match="states"):
        Automaton.of(grammar_schema(FILM))


def test_remarks_change_nothing() -> None:
    remarked = FILM | {"title": "Film", "description": "one", "$comment": "c", "examples": [1], "default": 2}
    assert grammar_schema(remarked | {"$schema": "https://json-schema.org/draft/2020-12/schema"}) == grammar_schema(
        FILM
    )


def test_references_within_the_schema_are_put_in_place() -> None:
    schema = obj(a={"$ref": "#/$defs/n"}, b={"$ref": "#/$defs/n"}) | {"$defs": {"n": {"type": "boolean"}}}
    assert grammar_schema(schema)["properties"] == {"a": {"type": "boolean"}, "b": {"type": "boolean"}}


def test_a_list_of_types_is_a_choice_with_the_keywords_of_each() -> None:
    built = grammar_schema({"type": ["string", "null"], "maxLength": 4})
    assert built == {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]}


def test_the_shortest_ending_of_an_automaton_is_a_record() -> None:
    automaton = Automaton.of(grammar_schema(FILM))
    assert automaton.shortest_ending(automaton.start).decode() == SHORTEST_FILM
    assert automaton.bytes_to_end[automaton.start] == len(SHORTEST_FILM)
    assert is_valid(FILM, SHORTEST_FILM)


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        (SHORTEST_FILM, True),
        ('{"title": "Zo\u00eb", "year": 1974, "genres": ["Drama", "Western"], "cast": ["A B"]}', True),
        ('{"title": "A", "year": 1899, "genres": ["Drama"], "cast": []}', False),
        ('{"title": "A", "year": 1974, "genres": ["Crime"], "cast": []}', False),
        ('{"title": "A", "year": 1974, "genres": [], "cast": []}', False),
        ('{"title": "", "year": 1974, "genres": ["Drama"], "cast": []}', False),
        ('{"title": "A", "year": 1974, "genres": ["Drama"]}', False),
        ('{"title": "A", "year": 1974, "genres": ["Drama"], "cast": []} ', False),
        ('{"title": "' + "x" * 61 + '", "year": 1974, "genres": ["Drama"], "cast": []}', False),
    ],
)
def test_the_automaton_admits_the_schemas_records_in_one_order(text: str, admitted: bool) -> None:
    ordered = FILM | {"required": ["title", "year", "genres", "cast"]}
    automaton = Automaton.of(grammar_schema(ordered))
    assert bool(automaton.final[automaton.after(automaton.start, text.encode())]) is admitted


@pytest.fixture(scope="module")
def number() -> Automaton:
    """Of all numbers: it takes a third of a second to build."""
    return Automaton.of(grammar_schema({"type": "number"}))


@pytest.mark.parametrize(
    "text", ["0", "7", "-5.2", "12.25", "1e+9", "0.5", "-0", "123456789012345.123456789012345E-99"]
)
def test_numbers_are_written_as_json_writes_them(number: Automaton, text: str) -> None:
    assert number.final[number.after(number.start, text.encode())]


def test_a_text_that_could_end_can_go_on() -> None:
    automaton = Automaton.of(grammar_schema({"anyOf": [{"const": 1}, {"const": 123}, {"const": 124}]}))
    ways = {text for text in (b"1", b"12", b"123", b"124") if automaton.final[automaton.after(automaton.start, text)]}
    assert ways == {b"1", b"123", b"124"}


@pytest.mark.parametrize("text", ["1.", "01", "+1", "1e999", "1" * 16, ".5", "NaN"])
def test_numbers_that_json_or_a_float_does_not_know_are_not_written(number: Automaton, text: str) -> None:
    assert not number.final[number.after(number.start, text.encode())]


@pytest.mark.parametrize("literal", ["[1-9][0-9]{1,14}", "a.b*c", '\\"', "\n\u00e9"])
def test_literals_are_no_patterns(literal: str) -> None:
    automaton = Automaton.of(grammar_schema({"const": literal}))
    assert json.loads(automaton.shortest_ending(automaton.start)) == literal


def test_a_record_is_an_object() -> None:
    assert record_schema(FILM)["type"] == "object"
    with refusal("SchemaNotSupported", match="a record is an object"):
        record_schema({"type": "string"})


def admits_every_value(schema: dict[str, Any], seed: int) -> None:
    built, choice = grammar_schema(schema), random.Random(seed)
    automaton = Automaton.of(built)
    for separators in ((", ", ": "), (",", ":")):
        text = json.dumps(instance(built, choice), ensure_ascii=False, separators=separators)
        assert is_valid(schema, text)
        assert automaton.final[automaton.after(automaton.start, text.encode())]


@settings(max_examples=15)
@given(schema=schemas, seed=st.integers(0, 2**32))
def test_the_automaton_admits_every_value_of_the_schema(schema: dict[str, Any], seed: int) -> None:
    admits_every_value(schema, seed)


@pytest.mark.slow
@settings(max_examples=150)
@given(schema=schemas, seed=st.integers(0, 2**32))
def test_the_automaton_admits_every_value_of_many_schemas(schema: dict[str, Any], seed: int) -> None:
    admits_every_value(schema, seed)
