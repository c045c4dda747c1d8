"""JSON from outside, parsed within bounds: size, nesting, digits of a number, each key once, valid Unicode.

RFC 8259 leaves these open: the standard library takes the last of two equal keys, `NaN`, and numbers of any length.
Errors quote nothing of the input: a file that was named by mistake may be private.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

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
