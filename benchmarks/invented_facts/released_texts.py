"""Benchmark of facts, for texts: which questions can be answered from the released texts alone.

    python -m benchmarks.invented_facts.released_texts           # appends what docs/figures/facts_texts.jsonl lacks
    python -m benchmarks.invented_facts.released_texts --table   # the table of docs/utility.md from these lines

Worlds, and the rule that answers, are those of `worlds.py`; a piece is a sentence of a released text. A release has
TEXTS texts of at most TOKENS tokens, each from REFERENCES units, at its whole epsilon.

    a text of any units       nothing is declared: the batches are mixed
    a text of each creature   the 20 creatures are declared as labels, as somebody who knows whom to ask about would.
                              A unit has the label of a creature that it tells about, one of them if it tells about two.
                              Private facts have a release of their own, whose 20 labels are the private creatures:
                              each batch of it has one unit

Both are made at each of TEMPERATURES. Controls: `public_only`, which reads no unit but is told the label: what a model
guesses; and `non_private`, one whole unit in each prompt: what the model can copy. A release is kept with its texts,
and one that is there is not made again.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.invented_facts.worlds import (
    DELTA,
    NO_DATA,
    NO_NOISE,
    Fact,
    World,
    answer,
    line_of,
    table,
)
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus, open_corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.pricing.registry import SYSTEMS
from tasks.text.keyword_normalisation import roots
from tasks.values.plan import PlanInputs

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "facts_texts.jsonl"
TEXTS, TOKENS, REFERENCES, REFERENCE_TOKENS = 20, 24, 7, 48
TEMPERATURES = ("0.3", "1")
DESCRIPTION = (
    "Notes in which people write about animals, two or three short sentences: what an animal eats, where it lives, or"
    " which colour it has."
)
ANY, EACH = "of any units", "of each creature"


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        texts: `ANY` or `EACH`.
        facts: shared or private: whose creatures are the labels; shared alone for `ANY`.
    """

    trial: int
    system: str
    texts: str
    facts: str
    epsilon: str
    temperature: str

    @property
    def shown(self) -> str:
        """The system as the table has it."""
        return f"{self.system} {self.texts}, temperature {self.temperature}"


def cells(trials: int) -> Iterator[Cell]:
    """Yield the releases world by world; at temperature 1 those of the first world alone."""
    for trial in range(trials):
        for temperature in TEMPERATURES if trial == 0 else TEMPERATURES[:1]:
            for system, texts, facts, epsilon in RELEASES:
                yield Cell(trial, system, texts, facts, epsilon, temperature)


RELEASES: Sequence[tuple[str, str, str, str]] = (
    ("public_only", EACH, "shared", NO_DATA),
    ("non_private", EACH, "shared", NO_NOISE),
    ("non_private", EACH, "private", NO_NOISE),
    *(("invisible_ink", EACH, "shared", epsilon) for epsilon in ("100", "10", "4", "1")),
    *(("invisible_ink", EACH, "private", epsilon) for epsilon in ("100", "10")),
    ("private_icl", EACH, "shared", "100"),
    ("non_private", ANY, "shared", NO_NOISE),
    ("invisible_ink", ANY, "shared", "100"),
)
"""System, texts, facts and epsilon of the releases of a world."""


def main() -> None:
    parser = figures_parser(__doc__, OUT)
    parser.add_argument("--trials", type=int, default=1, help="worlds")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append the lines of every release that is missing."""
    engine = Engine(load(arguments.model, arguments.device, arguments.precision))
    for cell in cells(arguments.trials):
        there = {
            (line["trial"], line["system"], line["release"], line["epsilon"])
            for line in read_lines_if_there(arguments.out)
        }
        if (cell.trial, cell.shown, cell.facts, cell.epsilon) not in there:
            texts = release(engine, cell, arguments.precision)
            append_lines(arguments.out, scored(cell, texts))
            print(cell, flush=True)


def _made(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["trial"], line["system"], line["release"], line["epsilon"]


def scored(cell: Cell, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the score of each kind of facts that a release is asked about; the first line has the texts."""
    world, other = World.of(cell.trial), World.of(cell.trial + 1)
    asked: Mapping[str, Sequence[Fact]] = {
        "shared": world.shared,
        "private": world.private,
        "other world": other.shared,
    }
    if cell.texts == EACH:  # creatures that were not declared are in no text but by chance
        asked = {cell.facts: asked[cell.facts]}
    pieces = [roots(sentence) for text in texts for sentence in sentences(text)]
    kept: dict[str, Any] = {"release": cell.facts, "texts": list(texts)}
    for kind, facts in asked.items():
        said = [(fact, answer(fact, pieces)) for fact in facts]
        yield line_of(cell.trial, cell.shown, cell.epsilon, kind, said, len(pieces)) | kept
        kept = {"release": cell.facts}


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, its unfinished end among them."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\n", text) if part.strip()]


def release(engine: Engine, cell: Cell, precision: str) -> list[str]:
    """Return the texts of one release."""
    world, system = World.of(cell.trial), SYSTEMS[cell.system]
    facts = world.shared if cell.facts == "shared" else world.private
    labels = tuple(fact.creature for fact in facts) if cell.texts == EACH else ()
    wanted = {
        "samples": TEXTS,
        "references": REFERENCES,
        "max_new_tokens": TOKENS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "temperature": cell.temperature,
        "top_k": 100,
        "precision": precision,
        **({"labels": labels} if labels else {}),
    }
    parameters = system.parameters.model_validate(wanted)
    amount = release_amount(Decimal(cell.epsilon), Decimal(DELTA)) if system.charges else None
    with tempfile.TemporaryDirectory() as folder:
        corpus = store(world, labels, Path(folder))
        # As many units as make one batch of each label: a private creature's one unit is then always read.
        units = TEXTS * REFERENCES if cell.facts == "private" else len(world.texts)
        plan = system.plan(PlanInputs(amount, parameters, 1, units, governed=system.charges))
        bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTION), labels))
        bench = replace(bench, split=BatchSplit(KEY, f"{cell.shown} {cell.epsilon}"))
        return [text.text for text in system.generate(plan, parameters, bench).texts]


def store(world: World, labels: Sequence[str], folder: Path) -> Corpus:
    """Return the units as an ingested version; a unit's label is the first of its creatures that is declared."""
    home, source = ProjectHome(folder / "home"), folder / "units.jsonl"
    home.create()
    names = {next(iter(roots(label))): label for label in labels}
    with source.open("w", encoding="utf-8") as lines:
        for number, text in enumerate(world.texts):
            told = [names[word] for word in sorted(roots(text)) if word in names]
            record = {"id": f"{number}", "unit": f"{number}", "text": text, "label": told[0] if told else "none"}
            lines.write(json.dumps(record) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY, label_field="label").uid)


if __name__ == "__main__":
    main()
