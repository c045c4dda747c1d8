"""Tables of docs/gpu.md, from the rows that one device's records had.

    python -m benchmarks.gpu.reports.tables out/gpu     keeps the rows of a device's records in docs/figures/gpu.jsonl
    python -m benchmarks.results                writes the tables

A row that is kept again replaces the one of its section, name and device; others stay, so that baselines need not be
measured again with every change of the engine.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.section import NOT_RUN, Record
from benchmarks.gpu.sections import SECTIONS

KEPT: Final = Path(__file__).resolve().parents[3] / "docs" / "figures" / "gpu.jsonl"
SPEEDS: Final = {"speed_8b": "Llama 3.1 8B", "speed_1b": "Llama 3.2 1B", "speed_smollm2": "SmolLM2-135M"}
SIDES: Final = ("engine", "engine without graphs", "first engine", "plain loop")
REFERENCES: Final = (7, 15, 31, 63)
_DIGITS: Final = 6

Row = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, help="folder of the sections' records")
    parser.add_argument("--to", type=Path, default=KEPT)
    arguments = parser.parse_args()
    old = [json.loads(line) for line in arguments.to.read_text().splitlines()] if arguments.to.exists() else []
    records = (Record.read(arguments.records / f"{section.name}.json") for section in SECTIONS)
    rows = merged(old, [row for record in records if record for row in rows_of(record)])
    arguments.to.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(record: Record) -> Iterator[Row]:
    """Yield the rows of a record with its section and device; none of a section that was not run."""
    for row in record.rows if record.status != NOT_RUN else ():
        if not row.get("not_run"):
            yield {"section": record.section, "device": record.device, **{key: _short(row[key]) for key in row}}


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return all rows, the new ones in the place of old ones of the same section, name and device."""
    found = {(row["section"], row["device"], row["name"]): row for row in [*old, *new]}
    order = [section.name for section in SECTIONS]
    return sorted(found.values(), key=lambda row: order.index(row["section"]))


def speed_table(rows: Sequence[Row]) -> Iterator[str]:
    """Tokens a second of the engine, without graphs, as it was when it first ran on this card, and of a plain loop."""
    head = "model", "references", "generations", "step, ms", "of the roofline", "tokens/s"
    yield f"| {' | '.join(head)} | without graphs | at first | plain loop | times it |"
    yield "|" + " --- |" * 10
    for section, model in SPEEDS.items():
        of = {row["name"]: row for row in rows if row["section"] == section}
        for references in REFERENCES:
            engine, plain, first, loop = (of.get(f"{side}, {references} references") for side in SIDES)
            if engine:
                times = f"{engine['tokens/s'] / loop['tokens/s']:.0f}" if loop else ""
                rates = " | ".join(_rate(row) for row in (engine, plain, first, loop))
                yield (
                    f"| {model} | {references} | {engine['generations']} | {engine['step ms']:.0f} | "
                    f"{engine['share of the roofline']:.2f} | {rates} | {times} |"
                )


def isolation_table(rows: Sequence[Row]) -> Iterator[str]:
    """How many questions about isolation and how many families passed."""
    yield "| question | asked | passed |"
    yield "| --- | --- | --- |"
    for section in SECTIONS:
        asked = [row for row in rows if row["section"] == section.name and row["passed"] is not None]
        if asked:
            yield f"| {section.title} | {len(asked)} | {sum(1 for row in asked if row['passed'])} |"


def _rate(row: Row | None) -> str:
    return f"{row['tokens/s']:,.0f}" if row else ""


def _short(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
