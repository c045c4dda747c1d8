"""The body of an audit link as a reader gets it: bounded, because a hostile writer may have put anything there."""

import json
from typing import Any

MOST_BYTES = 1_000_000
"""A longer body is not parsed."""
MOST_DEPTH = 64
"""A body nested deeper than this is not parsed; brackets inside strings count too."""
_MOST_DIGITS = 400  # far below the interpreter's limit of 4,300, and beyond every amount


def parse_body(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`; None if it is unreadable: no object, too long, too deep, or a number too long."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES or _depth(text) > MOST_DEPTH:
        return None
    try:
        body = json.loads(text, parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("the number is too long")
    return int(digits)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
