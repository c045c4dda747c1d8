"""Stages that benchmarks of drawn texts share: their options, a release at a bench in memory, and kept texts."""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY, open_bench
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus
from tasks.decoding.journal import RunJournal
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import reference_tokens
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import Generated

DELTA = "1e-5"
DEFAULT_MODEL = "smollm2-135m-instruct"
Cell = TypeVar("Cell")


def drawing_parser(description: str | None, figures_of: str, samples: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark that draws texts, keeps them and measures them.

    Args:
        figures_of: what `--out` has a line for.
        samples: texts of a release.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="JSON lines, the texts of each release; not for publication")
    parser.add_argument("--out", type=Path, required=True, help=f"JSON lines, figures of each {figures_of}")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    parser.add_argument("--samples", type=int, default=samples, help="texts of a release")
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options; texts are needed unless the table of what is there is asked for."""
    arguments = parser.parse_args()
    if arguments.texts is None and not arguments.table:
        parser.error("--texts is needed to draw texts")
    return arguments


def append_missing(
    texts: Path,
    cells: Iterable[Cell],
    cell_of: Callable[[Mapping[str, Any]], Cell],
    release: Callable[[Cell], dict[str, Any]],
) -> None:
    """Append every release that is not among the kept texts.

    Args:
        cell_of: the cell of a line that is there.
        release: makes the line of a cell.
    """
    there = [cell_of(row) for row in read_lines_if_there(texts)]
    for cell in cells:
        if cell not in there:
            row = release(cell)
            append_lines(texts, [row])
            print(f"{cell}: {row['seconds']} s", flush=True)


def draw_release(
    engine: Engine,
    corpus: Corpus,
    units: int,
    system: str,
    parameters: Mapping[str, Any],
    epsilon: Decimal,
    prompt: Prompt,
    split: str,
    journal: RunJournal | None = None,
    labels: Sequence[str] = (),
) -> tuple[Plan, Generated, float]:
    """Return the plan of a release, what it generated, and the seconds of the processor that it took.

    Args:
        units: of the corpus, as its declared population.
        epsilon: of a system that charges.
        split: names the split of the units into batches.
        labels: those that the parameters declare.
    """
    generator = SYSTEMS[system]
    settings = generator.parameters.model_validate({"temperature": "1", **parameters})
    started, amount = time.process_time(), release_amount(epsilon, DELTA) if generator.charges else None
    plan = generator.plan(PlanInputs(amount, settings, 1, units, governed=generator.charges))
    bench = open_bench(engine, corpus, PromptSpec.of(prompt, tuple(labels)))
    bench = replace(bench, split=BatchSplit(KEY, split), journal=journal or RunJournal())
    return plan, generator.generate(plan, settings, bench), round(time.process_time() - started, 1)


def beginning(model: LanguageModel, text: str, tokens: int) -> str:
    """Return the first tokens of a text, which are what MAUVE compares."""
    cut: str = model.tokenizer.decode(reference_tokens(model.tokenizer, text, tokens), skip_special_tokens=True)
    return cut
