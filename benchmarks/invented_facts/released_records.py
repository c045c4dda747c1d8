"""Benchmark of facts, for records and summaries: which questions can be answered from a release of these alone.

    python -m benchmarks.invented_facts.released_records           # appends what docs/figures/facts_records.jsonl lacks
    python -m benchmarks.invented_facts.released_records --table   # the table of docs/utility.md from these lines

Worlds, the rule that answers, and the way in which the 20 creatures are declared are those of `released_texts.py`. All
systems read at most REFERENCES units a creature (the last by name has fewer).

    records      one record a creature, held to a schema: what it eats, where it lives, which colour it has, each one of
                 the eight values. A record says all three of each creature, so that one of eight answers is right by
                 chance; the piece is the creature's name with the record
    summaries    one summary a creature, of the units that tell about it; a piece is a sentence

Controls: `public_only`, which is told the creature and reads no unit; `non_private`, one whole unit (of a summary: all
of them) in each prompt; and private facts, in a release of their own whose 20 creatures have one unit each.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.invented_facts.released_texts import sentences, store
from benchmarks.invented_facts.worlds import DELTA, NO_DATA, NO_NOISE, RELATIONS, World, answer, line_of, table
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.partition import BatchSplit
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.pricing.registry import SYSTEMS
from tasks.text.keyword_normalisation import roots
from tasks.values.plan import PlanInputs

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "facts_records.jsonl"
REFERENCES, REFERENCE_TOKENS, RECORD_TOKENS, SUMMARY_TOKENS = 16, 48, 32, 24
TEMPERATURE = "1"
RECORDS, SUMMARIES = "records", "summaries"
SCHEMA = {
    "type": "object",
    "required": list(RELATIONS),
    "properties": {relation: {"enum": list(values)} for relation, (_, values) in RELATIONS.items()},
}
DESCRIPTIONS = {
    RECORDS: (
        "A JSON object about one animal, in which `eats` says what it eats, `lives` where it lives, and `colour` which"
        " colour it has."
    ),
    SUMMARIES: "A short sentence that says what people tell about this animal: what it eats, where it lives, or its"
    " colour.",
}


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        kind: `RECORDS` or `SUMMARIES`.
        facts: shared or private: whose creatures are declared.
    """

    kind: str
    system: str
    facts: str
    epsilon: str
    trial: int = 0

    @property
    def shown(self) -> str:
        """The system as the table has it."""
        return f"{self.kind}, {self.system}"


EPSILONS = ("1", "4", "10", "100")


def cells() -> Iterator[Cell]:
    """Yield all releases."""
    for kind, systems in ((RECORDS, ["invisible_ink"]), (SUMMARIES, ["invisible_ink", "token_level_summary"])):
        yield Cell(kind, "public_only", "shared", NO_DATA)
        yield Cell(kind, "non_private", "shared", NO_NOISE)
        for system in systems:
            yield from (Cell(kind, system, "shared", epsilon) for epsilon in reversed(EPSILONS))
        yield Cell(kind, "invisible_ink", "private", "100")


def main() -> None:
    parser = figures_parser(__doc__, OUT)
    parser.add_argument("--kinds", nargs="+", default=[RECORDS, SUMMARIES], choices=[RECORDS, SUMMARIES])
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append the line of every release that is missing."""
    engine = Engine(load(arguments.model, arguments.device, arguments.precision))
    for cell in cells():
        there = {(line["system"], line["facts"], line["epsilon"]) for line in read_lines_if_there(arguments.out)}
        if cell.kind in arguments.kinds and (cell.shown, cell.facts, cell.epsilon) not in there:
            line = scored(cell, release(engine, cell, arguments.precision))
            append_lines(arguments.out, [line])
            print({name: value for name, value in line.items() if name != "texts"}, flush=True)


def scored(cell: Cell, texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the score of a release of (creature, text), with its texts."""
    world = World.of(cell.trial)
    facts = world.shared if cell.facts == "shared" else world.private
    of_relation = {relation: [] for relation in RELATIONS} if cell.kind == RECORDS else {}
    for creature, text in texts if of_relation else ():
        for relation, value in json.loads(text).items():
            of_relation[relation].append(roots(f"{creature} {value}"))
    pieces = [roots(sentence) for _, text in texts for sentence in sentences(text)]
    said = [(fact, answer(fact, of_relation.get(fact.relation, pieces))) for fact in facts]
    count = sum(map(len, of_relation.values())) or len(pieces)
    return line_of(cell.trial, cell.shown, cell.epsilon, cell.facts, said, count) | {"texts": [list(t) for t in texts]}


def release(engine: Engine, cell: Cell, precision: str) -> list[tuple[str, str]]:
    """Return the texts of one release, each with its creature."""
    world, system = World.of(cell.trial), SYSTEMS[cell.system]
    facts = world.shared if cell.facts == "shared" else world.private
    labels = tuple(fact.creature for fact in facts)
    of_kind: dict[str, Any] = (
        {"samples": len(labels), "labels": labels, "schema": SCHEMA, "constrained": True}
        if cell.kind == RECORDS
        else {"groups": [{"id": label} for label in labels]}
    )
    fields = {field.alias or name for name, field in system.parameters.model_fields.items()}
    wanted = {
        "references": REFERENCES,
        "max_new_tokens": RECORD_TOKENS if cell.kind == RECORDS else SUMMARY_TOKENS,
        # Without privacy a summary has all texts of its group in one prompt.
        "max_reference_tokens": REFERENCE_TOKENS * (REFERENCES if cell.epsilon == NO_NOISE else 1),
        "temperature": TEMPERATURE,
        "top_k": 100,
        "precision": precision,
        **of_kind,
    }
    parameters = system.parameters.model_validate({name: wanted[name] for name in wanted if name in fields})
    amount = release_amount(Decimal(cell.epsilon), Decimal(DELTA)) if system.charges else None
    with tempfile.TemporaryDirectory() as folder:
        corpus = store(few(world, labels), labels, Path(folder))
        plan = system.plan(PlanInputs(amount, parameters, 1, len(labels) * REFERENCES, governed=system.charges))
        bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTIONS[cell.kind]), labels))
        bench = replace(bench, split=BatchSplit(KEY, f"{cell.shown} {cell.epsilon}"))
        made = system.generate(plan, parameters, bench).texts
        return [(text.label or "", text.text) for text in made]


def few(world: World, labels: Sequence[str]) -> World:
    """Return the world with the first REFERENCES units of each creature: a summary reads every unit of its group."""
    left = {next(iter(roots(label))): REFERENCES for label in labels}
    texts = []
    for text in world.texts:
        told = sorted(roots(text) & set(left))
        if told and left[told[0]]:  # `store` gives the unit this creature
            left[told[0]] -= 1
            texts.append(text)
    return replace(world, texts=tuple(texts))


if __name__ == "__main__":
    main()
