"""Canonical JSON (RFC 8785) for everything that is hashed or signed.

A restricted profile, so that the standard library is enough and no two readers can disagree: strings, integers
below 2**53, booleans, null, arrays and objects. Floats are refused: every epsilon, delta and rho is an integer
or a decimal string.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"

_LARGEST_INTEGER = 2**53 - 1
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_canonical(value: Json) -> bytes:
    """Return the one UTF-8 encoding of `value`: keys in UTF-16 order, no spaces.

    Raises:
        TypeError: a float, a non-string key or any other type.
        ValueError: an integer beyond 2**53 - 1, or text that is not valid Unicode.

    >>> encode_canonical({"delta": "1e-7", "epsilon": 4, "draft": True})
    b'{"delta":"1e-7","draft":true,"epsilon":4}'
    """
    return _ENCODER.encode(_require_encodable(value)).encode("utf-8")


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical encoding, as 64 hexadecimal digits."""
    return hashlib.sha256(encode_canonical(value)).hexdigest()


def _require_encodable(value: Json) -> Json:
    match value:
        case None | bool() | str():
            return value
        case int():
            if abs(value) > _LARGEST_INTEGER:
                raise ValueError(f"{value} does not fit a JSON number exactly; write it as a string")
            return value
        case dict() | Mapping():  # `dict` is quickly told
            if not all(isinstance(key, str) for key in value):
                raise TypeError("object keys must be strings")
            plain = all(key.isascii() for key in value)
            ordered = sorted(value) if plain else sorted(value, key=lambda key: key.encode("utf-16-be"))
            return {key: _require_encodable(value[key]) for key in ordered}
        case list() | tuple():
            return [_require_encodable(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical form; use integers or decimal strings")
