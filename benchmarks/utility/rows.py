"""Does clipping log-probabilities reach the paper's clipping with 1.5 times fewer rows, by MAUVE?

    python -m benchmarks.utility.sampled --out sampled.jsonl --samples 144 --references 4   # and so on
    python -m benchmarks.utility.rows sampled.jsonl

Lines of `sampled.jsonl` are compared that differ in clipping and rows alone, each at as many texts as both have.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import written
from benchmarks.utility.mauve import embedder, mean, measured_together
from benchmarks.utility.sampled import MECHANISMS, UNPROTECTED, Cell, read_cells, real_texts
from tasks.inference.loading.loading import load

FEWER_ROWS = 1.5
LOG, PAPER = (name for name in MECHANISMS if name.startswith("InvisibleInk"))
OTHERS = "real, others"
Found = Mapping[Cell, Sequence[Mapping[str, Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sampled", type=Path, nargs="+", help="results of utility/sampled.py")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="whose tokens real texts are cut to")
    arguments = parser.parse_args()
    found, tokenizer, embed = read_cells(arguments.sampled), load(arguments.model).tokenizer, embedder()
    columns = [OTHERS, *UNPROTECTED, LOG, PAPER]
    print(f"| data | epsilon | rows | texts | {' | '.join(columns)} | difference |")
    print("| --- " * (5 + len(columns)) + "|")
    differences = []
    for fewer, more in pairs(found):
        count = min(len(found[fewer]), len(found[more]))
        others, real = real_texts(tokenizer, fewer.data, count, fewer.tokens)
        estimates = measured_together(embed, {OTHERS: others} | sides(found, fewer, more, count), real)
        differences.append(estimates[LOG].less(estimates[PAPER]))
        shown = [written(estimates[name].shown, 2) if name in estimates else "" for name in columns]
        place = f"{fewer.data} | {fewer.epsilon} | {fewer.references}, {more.references} | {count}, {len(real)} real"
        print(f"| {place} | {' | '.join(shown)} | {written(differences[-1].shown, 2)} |", flush=True)
    if differences:
        print(f"\nmean difference: {written(mean(differences).shown, 2)}")


def pairs(found: Found) -> list[tuple[Cell, Cell]]:
    """Log-probability clipping with few rows, and the paper's with at least 1.5 times as many; all else equal."""
    return [
        (fewer, more)
        for fewer in found
        for more in found
        if (fewer.system, more.system) == (LOG, PAPER)
        and more.references >= FEWER_ROWS * fewer.references
        and replace(fewer, system=PAPER, references=more.references) == more
    ]


def sides(found: Found, fewer: Cell, more: Cell, count: int) -> dict[str, list[str]]:
    """`count` texts of either line, and of the lines without protection that have so many."""
    lines = [cell for cell in found if cell.system in UNPROTECTED and cell.data == fewer.data]
    lines = [cell for cell in lines if len(found[cell]) >= count and cell.tokens == fewer.tokens]
    return {cell.system: [text["text"] for text in found[cell][:count]] for cell in (*lines, fewer, more)}


if __name__ == "__main__":
    main()
