"""Canonical JSON (RFC 8785) for everything that is hashed or signed; JSON from outside, parsed within bounds.

A restricted profile, so that the standard library is enough and no two readers can disagree: strings, integers
below 2**53, booleans, null, arrays and objects. Floats are refused: every epsilon, delta and rho is an integer
or a decimal string.

JSON from outside, parsed within bounds: size, nesting, digits of a number, each key once, valid Unicode. RFC 8259
leaves these open: the standard library takes the last of two equal keys, `NaN`, and numbers of any length. Errors quote
nothing of the input: a file that was named by mistake may be private.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

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


MOST_DEPTH = 64
"""Brackets inside one another."""
MOST_DIGITS = 300
"""Characters of one number: beyond every amount, and no more than a float can hold."""
_NO_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[^][{}"]+', re.DOTALL)


class InvalidJson(ValueError):
    """Text that is no JSON within bounds; the message says why, and where as far as is known, and quotes nothing."""


def parse_json(source: str | bytes, *, most_bytes: int, most_depth: int = MOST_DEPTH, halves: bool = False) -> Any:
    """Parse a JSON text within bounds.

    Args:
        halves: whether text may hold half of a surrogate pair, which no file can hold; the caller looks for it then.

    Raises:
        InvalidJson: it is no JSON, or beyond a bound.
    """
    text = _decode_text(source, most_bytes)
    if nesting_depth(text, most_depth) > most_depth:
        raise InvalidJson(f"it is nested deeper than {most_depth} levels")
    try:
        value = _DECODER.decode(text)
        if not halves and "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as problem:
        raise InvalidJson(f"line {problem.lineno}: it is not JSON") from None
    except UnicodeEncodeError:
        raise InvalidJson("it contains half of a surrogate pair") from None
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    return value


def nesting_depth(text: str, enough: int) -> int:
    """Return the nesting depth of brackets outside strings, up to `enough` + 1; their number, if that is enough."""
    if (most := text.count("[") + text.count("{")) <= enough:
        return most
    brackets, depth = _NO_BRACKET.sub("", text), 0
    while brackets and depth <= enough:
        brackets, depth = brackets.replace("[]", "").replace("{}", ""), depth + 1
    return depth


def _decode_text(raw: str | bytes, most_bytes: int) -> str:
    if len(raw) > most_bytes:
        raise InvalidJson(f"it is longer than {most_bytes:,} bytes")
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        size = len(text.encode())
    except UnicodeError:
        raise InvalidJson("it is not UTF-8 text") from None
    if size > most_bytes:
        raise InvalidJson(f"it is longer than {most_bytes:,} bytes")
    return text


def _with_digit_bound(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def number(digits: str) -> Any:
        if len(digits) > MOST_DIGITS:
            raise InvalidJson(f"a number has more than {MOST_DIGITS} digits")
        return read(digits)

    return number


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise InvalidJson("a number is too large")
    return number


def _refuse_constant(_: str) -> None:
    raise InvalidJson("NaN and Infinity are not JSON")


def _require_distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidJson("a key is there twice")
    return fields


_DECODER = json.JSONDecoder(
    parse_int=_with_digit_bound(int),
    parse_float=_with_digit_bound(_parse_finite),
    parse_constant=_refuse_constant,
    object_pairs_hook=_require_distinct_keys,
)
