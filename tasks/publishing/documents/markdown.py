"""Escaping of untrusted text inside Markdown and YAML."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

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
