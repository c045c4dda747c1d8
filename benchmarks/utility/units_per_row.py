"""Whether several units a row are worth their price: next tokens of real texts at equal rho.

    python -m benchmarks.utility.units_per_row --kept traces --out docs/figures/units_per_row.jsonl    # resumes by text
    python -m benchmarks.utility.units_per_row --model gemma3-270m --form completion --texts 12 --kept traces --out ...
    python -m benchmarks.utility.units_per_row --time 6 --out docs/figures/units_per_row.jsonl    # processor time alone
    python -m benchmarks.utility.units_per_row --out docs/figures/units_per_row.jsonl --table

A row of r units is a conversation with r answers, or a completion behind r texts. Where a unit is added or removed, its
row moves from one clipped contribution to another, by up to 2 C in each coordinate, and not from C to nothing: r > 1
has half the clip norm at the same rho (docs/decisions/0129). Along held-out real texts, as in `next_tokens`, all
settings are computed from the same states. `loss` is that of the real token, as there; `kl` is KL(unclipped mean of
`MOST_UNITS` rows of one unit || the setting), over the setting's candidates: one aim for all settings, though not of
rows with several units. `--time` appends the processor time in which rows of one kind read their units and one text, of
so many texts; the public row is left out, because all settings have it.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor

from benchmarks.common.intervals import written
from benchmarks.common.json_lines import append_lines, read_lines
from benchmarks.utility.next_tokens import compare, interval
from benchmarks.utility.systems import INK, Bound, Setting, bind, private_distribution, unprotected
from benchmarks.utility.texts import DESCRIPTIONS, STRIDE, Forced, Trace, choose, read_texts
from models_db.values.requests import Prompt
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import prompts_for

EPSILONS = ("1", "4", "10")
UNITS, ROWS = (1, 2, 4), 7
MOST_UNITS = UNITS[-1] * ROWS
REFERENCE_TOKENS = 64
CANDIDATES = 100
_ROWS_AT_ONCE = 7


@dataclass(frozen=True)
class Cell:
    """One setting.

    Attributes:
        units: r, units of a row; 0 for the public model alone.
        rows: B.
        epsilon: None for the mean of the rows without clipping.
    """

    units: int
    rows: int
    epsilon: str | None


CELLS = (
    Cell(0, 0, None),
    *(Cell(units, ROWS, None) for units in UNITS),
    *(Cell(units, ROWS, epsilon) for epsilon in EPSILONS for units in UNITS),
    *(Cell(1, units * ROWS, epsilon) for epsilon in EPSILONS for units in UNITS[1:]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, help="folder for what was read")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each setting and data set")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument(
        "--time", type=int, metavar="TEXTS", help="only append the time that rows take, on so many texts"
    )
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    if arguments.time:
        model = load(arguments.model, arguments.device, arguments.precision)
        append_lines(arguments.out, timed(model, arguments.model, arguments.form, arguments.time))
    elif not arguments.table:
        if arguments.kept is None:
            parser.error("--kept is needed to read texts")
        measure(load(arguments.model, arguments.device, arguments.precision), arguments)
    print("\n".join(table(read_lines(arguments.out))))


@torch.inference_mode()
def measure(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append the figures of all settings, by text."""
    bound = {cell: bound_of(cell) for cell in CELLS if cell.epsilon is not None}
    kept = arguments.kept / arguments.model
    with arguments.out.open("a", encoding="utf-8") as out:
        for data, description in DESCRIPTIONS.items():
            prompt = PromptSpec.of(Prompt.model_validate({"description": description, "form": arguments.form}))
            found: dict[Cell, dict[str, list[float]]] = {cell: {"kl": [], "loss": []} for cell in CELLS}
            for trace in traces(model, data, prompt, arguments.texts, kept):
                logits = trace.logits(model)
                for cell in CELLS:
                    for name, value in along(cell, bound.get(cell), logits, trace.following).items():
                        found[cell][name].append(float(f"{value:.5g}"))
            for cell, by_text in found.items():
                norm = float(bound[cell][1].draw.clip_norm) if cell in bound else None
                named = {"model": arguments.model, "data": data, **asdict(cell), "C": norm}
                out.write(json.dumps(named | by_text) + "\n")
            out.flush()


def bound_of(cell: Cell) -> tuple[Setting, Bound]:
    """The rule at the clip norm that epsilon buys; half of it where a row has several units."""
    setting = Setting(INK, cell.epsilon, cell.rows, top_k=CANDIDATES)
    bound = bind(setting)
    if cell.units > 1:
        setting = Setting(INK, None, cell.rows, top_k=CANDIDATES, clip=str(Decimal(float(bound.draw.clip_norm)) / 2))
        bound = bind(setting)
    return setting, bound


def along(cell: Cell, bound: tuple[Setting, Bound] | None, logits: Tensor, following: Tensor) -> Mapping[str, float]:
    """Figures of one setting as means over a text's positions; `logits` float32 [rows of `row_sources`, n, V]."""
    public, single = logits[0], logits[1 : 1 + MOST_UNITS]
    rows = [place for place, units in enumerate(row_units()) if units == max(1, cell.units)][: cell.rows]
    private = logits[[1 + place for place in rows]]
    if bound is not None:
        found, _ = private_distribution(*bound, public, private)
    else:
        found = unprotected(private.mean(0) if cell.rows else public, "1", CANDIDATES)
    aim = single.mean(0).double().log_softmax(1).gather(1, found.tokens)
    floor = public.double().log_softmax(1).gather(1, following[:, None])[:, 0]
    figures = compare(found, aim, following, floor)
    return {name: float(figures[name].mean()) for name in ("kl", "loss")}


def row_units() -> list[int]:
    """How many units each private row has: `MOST_UNITS` rows of one, then `ROWS` rows of each larger number."""
    return [1] * MOST_UNITS + [units for units in UNITS[1:] for _ in range(ROWS)]


def row_sources(references: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], ...]]:
    """The references of each private row: row j of r units has those number j, j + B, j + 2 B ..."""
    return [(one,) for one in references] + [
        tuple(references[row + ROWS * each] for each in range(units)) for units in UNITS[1:] for row in range(ROWS)
    ]


def traces(model: LanguageModel, data: str, prompt: PromptSpec, count: int, kept: Path) -> Iterator[Trace]:
    """Each held-out text's states, read once and then kept in `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    for text in choose(model.tokenizer, read_texts(data), count, rows=MOST_UNITS):
        path = kept / f"{data}-{text.number}.npz"
        if not path.exists():
            read(model, prompt, text).save(path)
            print(f"{data}: text {text.number + 1} of {count}", flush=True)
        yield Trace.load(path)


@torch.inference_mode()
def timed(model: LanguageModel, name: str, form: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each number of units and of rows: the processor seconds of each text."""
    for data, description in DESCRIPTIONS.items():
        prompt = PromptSpec.of(Prompt.model_validate({"description": description, "form": form}))
        found: dict[tuple[int, int], list[float]] = defaultdict(list)
        for text in choose(model.tokenizer, read_texts(data), count, rows=MOST_UNITS):
            groups = [seconds for _, seconds in passes(model, prompt, text)][1:]
            for (units, rows), taken in by_kind(groups).items():
                found[units, rows].append(round(taken, 3))
            print(f"{data}: text {text.number + 1} of {count}", flush=True)
        for (units, rows), seconds in found.items():
            yield {"model": name, "data": data, "units": units, "rows": rows, "seconds": seconds}


def by_kind(groups: Sequence[float]) -> dict[tuple[int, int], float]:
    """The time of every number of units a row and of rows, of the times of groups of `ROWS` rows in their order."""
    single = MOST_UNITS // ROWS
    found = {(1, ROWS * units): sum(groups[:units]) for units in UNITS}
    return found | {(units, ROWS): groups[single + place] for place, units in enumerate(UNITS[1:])}


def read(model: LanguageModel, prompt: PromptSpec, text: Forced) -> Trace:
    """The states of all rows before every `STRIDE`-th token of the text, the public row first (`texts.read`)."""
    found = [states for states, _ in passes(model, prompt, text)]
    return Trace(torch.cat(found), torch.tensor(text.tokens[::STRIDE], dtype=torch.int64))


def passes(model: LanguageModel, prompt: PromptSpec, text: Forced) -> Iterator[tuple[Tensor, float]]:
    """Yield the states of each group of rows, of which the public row is the first, and the processor seconds."""
    public, private = prompts_for(model.tokenizer, prompt)
    sources = row_sources([reference[:REFERENCE_TOKENS] for reference in text.references])
    # What stands behind a reference asks for another, or separates texts, so it also stands between two.
    prompts = [
        public.tokens,
        *((*private.prefix, *(token for unit in units for token in (*unit, *private.suffix))) for units in sources),
    ]
    groups = [[0], *(list(range(at, at + _ROWS_AT_ONCE)) for at in range(1, len(prompts), _ROWS_AT_ONCE))]
    for some in groups:
        rows = [(*prompts[index], *text.tokens[:-1]) for index in some]
        longest, started = max(map(len, rows)), time.process_time()
        states = RowBatch(model, len(rows), longest).read_all(rows, longest)
        yield states[:, -len(text.tokens) :: STRIDE].float().cpu(), time.process_time() - started


def table(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a setting; differences are paired by text, from one unit a row with as many rows.

    The times of rows stand in a column of their own, where some were measured.
    """
    lines = list(lines)
    there = {
        (line["model"], line["data"], Cell(line["units"], line["rows"], line["epsilon"])): line
        for line in lines
        if "loss" in line
    }
    times = {
        (line["model"], line["data"], line["units"], line["rows"]): line["seconds"]
        for line in lines
        if "seconds" in line
    }
    heads = ["model", "data", "texts", "epsilon", "rows B", "units a row", "C"]
    heads += ["KL", "KL, difference", "loss", "loss, difference", *(["CPU s"] if times else [])]
    yield f"| {' | '.join(heads)} |"
    yield "|" + len(heads) * " --- |"
    for (model, data, cell), line in there.items():
        usual = there.get((model, data, Cell(1, ROWS, cell.epsilon)))
        shown = [model, data, len(line["loss"]), cell.epsilon or "-", cell.rows or "-", cell.units or "-"]
        shown.append("" if line["C"] is None else f"{line['C']:.3f}")
        for name in ("kl", "loss"):
            shown.append(written(interval(line[name]), 3))
            differs = usual is not None and usual is not line
            less = [own - other for own, other in zip(line[name], usual[name], strict=True)] if usual else []
            shown.append(written(interval(less), 3) if differs else "")
        seconds = times.get((model, data, cell.units, cell.rows))
        if times:
            shown.append(written(interval(seconds), 1) if seconds else "")
        yield f"| {' | '.join(map(str, shown))} |"


if __name__ == "__main__":
    main()
