"""Canonical JSON is RFC 8785 on everything it accepts."""

import json
from enum import IntEnum

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.canonical_json import digest, encode_canonical

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@given(values)
def test_equal_to_the_reference(value: object) -> None:
    assert encode_canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@given(values)
def test_read_back_and_written_again(value: object) -> None:
    once = encode_canonical(value)  # type: ignore[arg-type]
    assert encode_canonical(json.loads(once)) == once


@given(st.dictionaries(texts, scalars, min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    turned = dict(reversed(value.items()))
    assert encode_canonical(turned) == encode_canonical(value)  # type: ignore[arg-type]


def test_keys_are_ordered_by_their_utf16_code_units() -> None:
    """U+FB33 sorts before U+1F600 by code point, but its UTF-16 unit is larger than the emoji's surrogate."""
    assert encode_canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


def test_control_characters_and_quotes() -> None:
    assert (
        encode_canonical('\b\t\n\f\r\x00\x1f"\\/é\u2028') == '"\\b\\t\\n\\f\\r\\u0000\\u001f\\"\\\\/é\u2028"'.encode()
    )


def test_tuples_are_arrays() -> None:
    assert encode_canonical(("a", 1)) == encode_canonical(["a", 1]) == b'["a",1]'


def test_the_digest_is_sha256() -> None:
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [0.5, 1.0, float("nan"), b"bytes", {1: 2}, {"a": {None: 1}}, {"a"}, [object()], 1j])
def test_types_without_one_form_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode_canonical(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [2**53, -(2**53), {"a": [2**60]}])
def test_integers_that_a_double_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="write it as a string"):
        encode_canonical(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {"a": ["\ud83d"]}])
def test_half_a_surrogate_pair_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_canonical(value)  # type: ignore[arg-type]
