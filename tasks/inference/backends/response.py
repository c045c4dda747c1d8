"""Parser of an endpoint's answer: the first choice of a chat completion, checked field by field.

An endpoint may send anything. One text and one number are taken from an answer, and an answer of any other form is
malformed; the reason is in almoner's words and quotes nothing of the answer.
"""

import json
from dataclasses import dataclass
from typing import Any

from tasks.inference.backends.interface import Completion, Sampling

CHARACTERS_PER_TOKEN = 64
"""A text has at most as many characters for each token that it may have: ordinary text has three to six."""

BYTES_PER_TOKEN = 6 * CHARACTERS_PER_TOKEN
"""JSON writes a character in six bytes at most, if it is in the basic plane."""

BYTES_BESIDE = 65_536
"""Room for everything in an answer that is not the text."""

_BYTES_OF_A_TOKEN = 4
"""Bytes of an ordinary token, for an estimate of a text's tokens if the endpoint does not count them."""


@dataclass(frozen=True)
class MalformedResponse:
    """Reason why a reply is malformed, in our own words."""

    reason: str


def largest(how: Sampling) -> int:
    """Return the maximum number of bytes of an answer; a longer one is malformed."""
    return BYTES_BESIDE + BYTES_PER_TOKEN * how.max_new_tokens


def read_reply(data: bytes, how: Sampling) -> Completion | MalformedResponse:
    """Return the text in an answer."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):  # also where it is no UTF-8, or a number is too long
        return MalformedResponse("an answer is not JSON")
    choice = _first_choice(answer)
    if isinstance(choice, MalformedResponse):
        return choice
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str):
        return MalformedResponse("an answer has no text")
    if (unfit := _unfit(text, how)) is not None:
        return MalformedResponse(unfit)
    tokens = _tokens(answer, text, how)
    if tokens is None:
        return MalformedResponse("an answer does not count its tokens in whole numbers")
    return Completion(text, tokens, choice.get("finish_reason") == "stop")


def _first_choice(answer: Any) -> dict[str, Any] | MalformedResponse:
    if not isinstance(answer, dict):
        return MalformedResponse("an answer is no JSON object")
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return MalformedResponse("an answer does not have one choice")
    return choices[0]


def _unfit(text: str, how: Sampling) -> str | None:
    if not text.strip():
        return "an answer is empty"
    if len(text) > CHARACTERS_PER_TOKEN * how.max_new_tokens:
        return "an answer is longer than was asked for"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "an answer holds half a character"
    return None


def _tokens(answer: dict[str, Any], text: str, how: Sampling) -> int | None:
    """Return the endpoint's count of tokens, or an estimate; None if its count is no number."""
    usage = answer.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if count is None:
        return min(how.max_new_tokens, -(-len(text.encode()) // _BYTES_OF_A_TOKEN))
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        return None
    return min(count, how.max_new_tokens)
