"""YAML writer with one fixed form, for files that people continue to edit: block style, quoted or literal text.

The bytes depend on no library, so a file that is written again is the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from tasks.publishing.documents.markdown import visible

Value: TypeAlias = "str | int | Decimal | Sequence[Value] | Mapping[str, Value]"


def yaml_lines(values: Mapping[str, Value]) -> str:
    """Return `values` as a YAML document, in their order; decimals are plain numbers, exact to the last digit."""
    return "".join(f"{line}\n" for line in _mapping(values))


def _mapping(values: Mapping[str, Value]) -> Iterator[str]:
    for name, value in values.items():
        yield from _under(f"{name}:", value)


def _under(head: str, value: Value) -> Iterator[str]:
    match value:
        case str():
            lines = [visible(line).rstrip() for line in value.strip().splitlines()] or [""]
            if len(lines) == 1:
                yield f"{head} {json.dumps(lines[0], ensure_ascii=False)}"
            else:
                yield f"{head} |2-"  # two more spaces than the key has, however the first line begins
                yield from (f"  {line}".rstrip() for line in lines)
        case Decimal():
            yield f"{head} {format(value, 'f')}"
        case int():
            yield f"{head} {value}"
        case Mapping():
            yield head
            yield from (f"  {line}" for line in _mapping(value))
        case _:
            yield head
            for item in value:
                yield from _item(item)


def _item(value: Value) -> Iterator[str]:
    lines = _mapping(value) if isinstance(value, Mapping) else _under("", value)
    for number, line in enumerate(lines):
        yield f"  {' ' if number else '-'} {line.lstrip() if number == 0 else line}"
