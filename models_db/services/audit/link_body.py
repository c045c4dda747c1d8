"""The body of an audit link as a reader gets it: bounded, because a hostile writer may have put anything there."""

from typing import Any

from models_db.values.bounded_json import InvalidJson, parse_json

MOST_BODY_BYTES = 1_000_000
"""A longer body is not parsed."""


def parse_body(text: object) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None if it is unreadable: no object, too long, too deep, or a number too long.

    Also unreadable are what is no text (SQLite keeps bytes in a column of text), an object with a key twice, and text
    that no file can hold, such as half of a surrogate pair.
    """
    if not isinstance(text, str):
        return None
    try:
        body = parse_json(text, most_bytes=MOST_BODY_BYTES)
    except InvalidJson:
        return None
    return body if isinstance(body, dict) else None
