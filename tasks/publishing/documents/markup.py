"""Markdown and YAML of documents: untrusted text is escaped in both, and YAML has one fixed form.

The form is for files that people continue to edit: block style, quoted or literal text. The bytes depend on no library,
so a file that is written again is the same.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

_LOOKS_LIKE_A_PIPE = "\N{BOX DRAWINGS LIGHT VERTICAL}"
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def code(value: object) -> str:
    """Return `value` as an inline code span: one line, no formatting, no link, no HTML."""
    text = visible(str(value)).strip() or " "
    fence = "`" * (1 + _longest_run(text))
    padded = f" {text} " if "`" in text else text
    return f"{fence}{padded}{fence}"


def block(value: str) -> str:
    """Return `value` as a fenced block of plain text."""
    lines = [visible(line) for line in value.splitlines()] or [""]
    fence = "`" * max(3, 1 + _longest_run("\n".join(lines)))
    return "\n".join([f"{fence}text", *lines, fence])


def plain(value: str) -> str:
    """Return `value` as plain words in one line: nothing in it is formatting, a link or HTML."""
    text = " ".join(visible(value).split())
    return re.sub(r"[\\`*_\[\]<>&#!~@]|:(?=//)|(?<=www)\.", r"\\\g<0>", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of inline Markdown.

    Renderers disagree about a backslash before a pipe, so a pipe inside a cell becomes a character that looks like one.
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', _LOOKS_LIKE_A_PIPE) for cell in cells)} |" for cells in lines)


def visible(text: str) -> str:
    """Return `text` without control, direction-changing and other invisible characters, which could hide text."""
    return "".join(" " if unicodedata.category(sign) in _INVISIBLE else sign for sign in text)


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


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
