"""What is taken from an answer, and what is none."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.backends.request import MalformedResponse, largest_answer, read_reply
from tasks.inference.backends.text_backend import Completion, Sampling
from tests.support_backend import completion

HOW = Sampling(8, Decimal(1))


def read(answer: Any) -> Completion | MalformedResponse:
    return read_reply(json.dumps(answer).encode(), HOW)


def without(*path: str | int) -> Any:
    made: Any = completion("a text")
    place = made
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return made


def test_a_text_its_tokens_and_whether_it_ended() -> None:
    assert read(completion("a text", 2)) == Completion("a text", 2, True)
    assert read(completion("a text", 8, "length")) == Completion("a text", 8, False)
    assert read(completion("refused", 2, "content_filter")) == Completion("refused", 2, False)


def test_tokens_that_are_not_counted_are_estimated() -> None:
    assert read(without("usage")) == Completion("a text", 2, True)
    assert read(without("usage", "completion_tokens")) == Completion("a text", 2, True)
    assert read(completion("a text", 2000)) == Completion("a text", 8, True)


@pytest.mark.parametrize(
    "answer",
    [
        None, [], "text", 7, {}, {"choices": None}, {"choices": []}, {"choices": {}}, {"choices": ["text"]},
        {"choices": [{}, {}]}, {"choices": [None]}, {"error": {"message": "no"}},
        without("choices", 0, "message"), without("choices", 0, "message", "content"),
        completion(None), completion(7), completion(["a"]), completion({"text": "a"}), completion(""),
        completion(" \n"),
        completion("x" * (64 * 8 + 1)), completion("half \ud800 of it"), completion("a", "3"), completion("a", -1),
        completion("a", True), completion("a", 1.5),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_nonsense_by_a_reason_of_ours(answer: Any) -> None:
    assert isinstance(read(answer), MalformedResponse)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b'{"choices": [', b"<html><body>Sign in</body></html>", b"\xff\xfe", b"\x1f\x8b\x08",
        b"[" * 100_000, b"1" * 10_000,
    ],
)  # fmt: skip
def test_what_is_no_json_is_nonsense(data: bytes) -> None:
    assert read_reply(data, HOW) == MalformedResponse("an answer is not JSON")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "usage", "completion_tokens"]), inner)
    ),
)


@given(JSON)
def test_whatever_is_said_is_a_text_or_nonsense_and_never_repeated(answer: Any) -> None:
    found = read(answer)
    if isinstance(found, MalformedResponse):
        assert found.reason in {
            "an answer is no JSON object", "an answer does not have one choice", "an answer has no text",
            "an answer is empty", "an answer is longer than was asked for", "an answer holds half a character",
            "an answer does not count its tokens in whole numbers",
        }  # fmt: skip
    else:
        assert found.text.strip()
        assert 0 <= found.tokens <= HOW.max_new_tokens


def test_the_longest_text_fits_into_the_largest_answer() -> None:
    longest = completion("\u4e2d" * (64 * 8))
    assert len(json.dumps(longest).encode()) < largest_answer(HOW)
    assert isinstance(read(longest), Completion)
