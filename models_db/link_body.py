"""The body of an audit link as a reader gets it: bounded, because a hostile writer may have put anything there."""

import json
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 1_000_000
"""A longer body is not parsed."""
MOST_DEPTH = 64
"""A body nested deeper than this is not parsed; brackets inside strings count too."""
_MOST_DIGITS = 400  # far below the interpreter's limit of 4,300, and beyond every amount


def parse_body(text: object) -> dict[str, Any] | None:
    """The JSON object in `text`; None if it is unreadable: no object, too long, too deep, or a number too long.

    Also unreadable are what is no text (SQLite keeps bytes in a column of text) and text that no file can hold, such as
    half of a surrogate pair.
    """
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        return None
    try:
        if len(text.encode()) > MOST_BYTES or _depth(text) > MOST_DEPTH:
            return None
        body = json.loads(text, parse_int=_integer, parse_constant=_refuse)
        if "\\u" in text:
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def whole_number(body: Mapping[str, Any], name: str) -> int | None:
    """A field that a table's integer column could hold; None where the body has no such number."""
    found = body.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 2**63 else None


def _depth(text: str) -> int:
    """How deep brackets are nested; where there are few of them, at most so deep."""
    if (most := text.count("[") + text.count("{")) <= MOST_DEPTH:
        return most
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
