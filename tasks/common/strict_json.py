"""Strict reader of one JSON object: only text on which two RFC 8259 readers agree."""

from typing import Any

from models_db.values.bounded_json import InvalidJson, parse_json

MOST_BYTES = 16 << 20
"""Maximum number of bytes of the text of one object."""


def parsed(raw: str) -> dict[str, Any] | None:
    """Return the one JSON object (RFC 8259) that `raw` is, None if it is anything else.

    No key twice, no NaN or infinity, no number too large for a float, valid Unicode: what parses can be written again.
    """
    try:
        value = parse_json(raw, most_bytes=MOST_BYTES)
    except InvalidJson:
        return None
    return value if isinstance(value, dict) else None
