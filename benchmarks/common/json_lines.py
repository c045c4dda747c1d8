"""JSON lines: the form of the corpora that benchmarks read, and of the results that they keep."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Folder of the public corpora."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return everything in a file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_lines_if_there(path: Path) -> list[dict[str, Any]]:
    """Return everything in a file; nothing if there is none."""
    return read_lines(path) if path.exists() else []


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows as the whole of a file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def append_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows behind what a file has; rows that are made meanwhile are written as they come."""
    with path.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
