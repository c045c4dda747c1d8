"""Schemas for tests of constrained records: one by hand, and a strategy for any that a grammar can promise."""

import json
import random
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tasks.common.files import parse_object

FILM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "cast": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 30}, "maxItems": 4},
        "genres": {"type": "array", "items": {"enum": ["Drama", "Comedy", "Western"]}, "minItems": 1, "maxItems": 3},
        "title": {"type": "string", "minLength": 1, "maxLength": 60},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2023},
    },
    "required": ["title", "year", "genres", "cast"],
    "additionalProperties": False,
}
SHORTEST_FILM = '{"title":" ","year":1900,"genres":["Drama"],"cast":[]}'


def is_valid(schema: dict[str, Any], text: str) -> bool:
    """Whether `text` parses and is valid under the schema as it was written."""
    value = json.loads(text)
    # An object must also be one by the rule of the bundle, which is stricter than Python's.
    return Draft202012Validator(schema).is_valid(value) and (not isinstance(value, dict) or parse_object(text) == value)


_names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters='"\\'), max_size=5)
_values = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(st.characters(codec="utf-8"), max_size=4))


def _bounds(least: str, most: str, top: int) -> st.SearchStrategy[dict[str, int]]:
    pairs = st.tuples(st.integers(0, top), st.integers(0, top)).map(sorted)
    keys = st.sampled_from([(), (least,), (most,), (least, most)])
    return st.builds(
        lambda pair, kept: {k: v for k, v in zip((least, most), pair, strict=True) if k in kept}, pairs, keys
    )


_leaves = st.one_of(
    st.sampled_from([{"type": name} for name in ("integer", "number", "boolean", "null")]),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-30, 30),
        st.integers(0, 40),
    ),
    _bounds("minLength", "maxLength", 6).map(lambda bounds: {"type": "string", **bounds}),
    st.lists(_values, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    _values.map(lambda value: {"const": value}),
    st.just({"type": ["string", "null"], "maxLength": 3}),
)


def _nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.builds(
        lambda items, bounds: {"type": "array", "items": items, **bounds}, inner, _bounds("minItems", "maxItems", 3)
    )
    return st.one_of(arrays, _objects(inner), st.lists(inner, min_size=1, max_size=3).map(lambda o: {"anyOf": o}))


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    properties = draw(st.dictionaries(_names, inner, min_size=1, max_size=4))
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    return {"type": "object", "properties": properties, "required": required}


schemas = st.recursive(_leaves, _nested, max_leaves=6)


def instance(built: dict[str, Any], choice: random.Random) -> Any:
    """Some value that a `grammar_schema` admits, made without any grammar; optional properties are left out or not."""
    match built:
        case {"enum": values}:
            return choice.choice(values)
        case {"anyOf": options}:
            return instance(choice.choice(options), choice)
        case {"type": "object", "properties": properties, "required": required}:
            kept = [name for name in properties if name in required or choice.random() < 0.5]
            return {name: instance(properties[name], choice) for name in kept}
        case {"type": "array", "items": items}:
            low = built.get("minItems", 0)
            return [instance(items, choice) for _ in range(choice.randint(low, built.get("maxItems", low + 3)))]
        case {"type": "string"}:
            low = built.get("minLength", 0)
            size = choice.randint(low, built.get("maxLength", low + 5))
            return "".join(choice.choices('aZ 0,:{}[]"\\/\n\t\u00e9\u7531\U0001f600', k=size))
        case {"type": "integer"}:
            return choice.randint(-(10**15) + 1, 10**15 - 1)
        case {"type": "number"}:
            return choice.choice([0, -7, 5.25, 1e-9, 123456.789, 2.5e30])
        case {"type": "boolean"}:
            return choice.random() < 0.5
    return None
