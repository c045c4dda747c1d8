"""The kit's report: one JSON file with every figure, and one Markdown file that says at its top what passed."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu.section import FAILED, NOT_RUN, PARTIAL, PASSED, Record
from benchmarks.gpu.sections import find

JSON_NAME, MARKDOWN_NAME = "gpu.json", "gpu.md"
_STATES = (PASSED, FAILED, PARTIAL, NOT_RUN)
_MOST_ALIKE = 12
"""So many rows that passed and measured nothing else are shown one by one; more are counted."""


def write(folder: Path, records: Sequence[Record], machine: Mapping[str, Any], device: str) -> tuple[Path, Path]:
    """Write both files; returns their paths, the Markdown first."""
    folder.mkdir(parents=True, exist_ok=True)
    page, figures = folder / MARKDOWN_NAME, folder / JSON_NAME
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    told = {"device": device, "machine": dict(machine), "written": now, "sections": [asdict(r) for r in records]}
    figures.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    page.write_text(markdown(records, machine, device, now), encoding="utf-8")
    return page, figures


def markdown(records: Sequence[Record], machine: Mapping[str, Any], device: str, now: str) -> str:
    """Return the page: a summary, then the figures of every section."""
    lines = [f"# GPU kit: {device}", "", f"torch {machine['torch']}, CUDA {machine['cuda']}; {now}", ""]
    for state in _STATES:
        titles = [find(record.section).title for record in records if record.status == state]
        lines.append(f"* {state}: {', '.join(titles) or 'none'}")
    if len({record.code for record in records if record.rows}) > 1:
        lines.append("* sections were measured by different versions of the code; gpu.json names the version of each")
    lines += ["", "| section | status | why | seconds |", "| --- | --- | --- | --- |"]
    lines += [f"| {find(r.section).title} | {r.status} | {_cell(r.reason)} | {r.seconds:.0f} |" for r in records]
    for record in records:
        if record.rows:
            lines += ["", f"## {find(record.section).title}", "", find(record.section).about, *_figures(record.rows)]
    return "\n".join(lines) + "\n"


def _figures(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """One table for each set of columns; rows that passed and say nothing else are counted where they are many."""
    plain = [row for row in rows if row["passed"] is True and set(row) == {"name", "passed", "seconds"}]
    counted = plain if len(plain) > _MOST_ALIKE else []
    if counted:
        yield from ("", f"{len(counted)} rows passed, from {counted[0]['name']} to {counted[-1]['name']}.")
    shown = [row for row in rows if row not in counted]
    for keys in dict.fromkeys(_columns(row) for row in shown):
        yield from ("", f"| {' | '.join(keys)} |", "| " + " | ".join("---" for _ in keys) + " |")
        for row in shown:
            if _columns(row) == keys:
                yield f"| {' | '.join(_cell(row[key]) for key in keys)} |"


def _columns(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in row if key != "passed" or row["passed"] is not None)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return "; ".join(map(_cell, value))
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_cell(one)}" for key, one in value.items())
    return str(value).replace("|", "\\|").replace("\n", " ")
