"""Tables of pages in docs/: each stands in a marked region and is written from committed data.

    <!-- table: NAME -->

    | ... |

    <!-- end -->

A table whose data were not kept has its published figures, row by row, in docs/figures/transcribed/PAGE.jsonl, with
`"source": "table"`: page and data then agree, but nothing can be worked out anew from them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.json_lines import read_lines

_REGION = re.compile(r"^<!-- table: (?P<name>[a-z0-9_-]+) -->\n(?P<body>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^ *<!-- (?:table: .*|end) -->$", re.MULTILINE)
_RULE = re.compile(r"^ *\|[ :|-]*---[ :|-]*\|$")


class RegionError(ValueError):
    """A page whose marks do not fit the tables that are known."""


def regions(page: str) -> dict[str, str]:
    """Return the text between the marks of each region, by name.

    Raises:
        RegionError: a mark has no partner, or a name is there twice.
    """
    found = list(_REGION.finditer(page))
    names = [each["name"] for each in found]
    if len(_MARK.findall(page)) != 2 * len(found):
        raise RegionError("a mark has no partner")
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise RegionError(f"there twice: {', '.join(doubled)}")
    return {each["name"]: each["body"] for each in found}


def body(rows: Sequence[str]) -> str:
    """Return what stands between the marks of a table."""
    return "\n" + "\n".join(rows) + "\n\n"


def filled(page: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return the page with every region written anew.

    Raises:
        RegionError: a region has no table, a table no region, or marks do not fit.
    """
    there = regions(page)
    if missing := sorted(there.keys() ^ tables.keys()):
        raise RegionError(f"a region without data, or data without a region: {', '.join(missing)}")
    return _REGION.sub(
        lambda found: f"<!-- table: {found['name']} -->\n{body(tables[found['name']])}<!-- end -->", page
    )


def unmarked(page: str) -> Iterator[str]:
    """Yield the head of every table that stands in no region."""
    rest = _REGION.sub("", page).splitlines()
    for head, rule in pairwise(rest):
        if _RULE.match(rule):
            yield head.strip()


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of a Markdown table, the head first and the rule left out."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if not _RULE.match(line)]
    if any(len(cells) != len(split[0]) for cells in split):
        raise RegionError("rows of different lengths")
    return split


def transcribed(name: str, text: str) -> list[dict[str, Any]]:
    """Return a published table as data: a line for the head, and one for each row."""
    head, *rows = rows_of(text)
    return [
        {"table": name, "source": "table", "columns": head},
        *({"table": name, "source": "table", "cells": cells} for cells in rows),
    ]


def transcribed_tables(path: Path) -> dict[str, list[str]]:
    """Return the rows of every table of a file of transcribed ones, by name."""
    found: dict[str, list[str]] = {}
    for line in read_lines(path):
        rows = found.setdefault(line["table"], [])
        rows.append("| " + " | ".join(line.get("columns") or line["cells"]) + " |")
        if "columns" in line:
            rows.append("| " + " | ".join("---" for _ in line["columns"]) + " |")
    return found
