"""JSON within bounds: what passes is what the standard library reads, and what is refused is quoted nowhere."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.canonical_json import MOST_DEPTH, MOST_DIGITS, InvalidJson, parse_json

SECRET = "Quartermaine"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_plain_json_is_read(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value).encode()):
        assert parse_json(text, most_bytes=10**6) == value


@given(st.text() | st.binary())
def test_anything_else_is_refused_by_name(given_text: str | bytes) -> None:
    with contextlib.suppress(InvalidJson):
        parse_json(given_text, most_bytes=100)


BAD = {
    "no JSON": (SECRET, "line 1"),
    "third line": (f'{{\n"a": 1,\n{SECRET}}}', "line 3"),
    "key twice": (f'{{"{SECRET}": 1, "{SECRET}": 2}}', "twice"),
    "key twice below": (f'[{{"a": {{"{SECRET}": 1, "{SECRET}": 2}}}}]', "twice"),
    "NaN": ("[NaN]", "NaN"),
    "infinity": ("[-Infinity]", "Infinity"),
    "overflow": ("[1e999]", "too large"),
    "digits": ("9" * (MOST_DIGITS + 1), "digits"),
    "digits of a float": ("0." + "9" * (MOST_DIGITS + 1), "digits"),
    "depth": ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "deeper"),
    "open depth": ("[" * 200_000, "deeper"),
    "half a pair": (f'"{SECRET} \\ud800"', "pair"),
    "bytes": (f'"{SECRET}'.encode() + b'\xff"', "UTF-8"),
    "length": (f'"{SECRET}{"x" * 2_000_000}"', "longer"),
}


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=list(BAD))
def test_what_is_beyond_a_bound_is_refused_without_a_word_of_it(text: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidJson) as refused:
        parse_json(text, most_bytes=1_000_000)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = "[{" * 500 + '\\" "'
    assert parse_json(json.dumps([text, {"a": text}]), most_bytes=10**6) == [text, {"a": text}]
    with pytest.raises(InvalidJson, match="deeper"):
        parse_json(json.dumps([text]) + "[" * 100, most_bytes=10**6)


def test_half_a_pair_is_left_to_a_caller_who_looks_for_it() -> None:
    assert parse_json('"\\ud800"', most_bytes=100, halves=True) == "\ud800"
