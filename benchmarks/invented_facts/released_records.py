"""Benchmark of facts, for records and summaries: which questions can be answered from a release of these alone.

    python -m benchmarks.invented_facts.released_records           # appends what docs/figures/facts_records.jsonl lacks
    python -m benchmarks.invented_facts.released_records --table   # the table of these lines

Worlds, the rule that answers, and the way in which the 20 creatures are declared are those of `released_texts.py`. All
systems read at most UNITS_OF_A_GROUP units a creature (the last by name has fewer).

    records      one record a creature, held to a schema: what it eats, where it lives, which colour it has, each one of
                 the eight values. A record says all three of each creature, so that one of eight answers is right by
                 chance; the piece is the creature's name with the record
    summaries    one summary a creature, of the units that tell about it; a piece is a sentence. The adapter of one-shot
                 summaries is trained on the shared facts of three other worlds

Controls: `public_only`, which is told the creature and reads no unit; `non_private`, one whole unit (of a summary: all
of them) in each prompt; `no data`, a system that reads units of which none tells about these creatures; and private
facts, in a release of their own whose 20 creatures have one unit each.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.figures_parser import model_figures_parser
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.invented_facts.released_texts import COPYING, sentences
from benchmarks.invented_facts.systems import (
    REFERENCE_TOKENS,
    SUMMARY,
    SUMMARY_TOKENS,
    UNITS_OF_A_GROUP,
    Workplace,
    add_selection,
    selected,
)
from benchmarks.invented_facts.worlds import NO_DATA, NO_NOISE, RELATIONS, World, answer, line_of, table
from benchmarks.summaries.cells import documents_read_once
from tasks.text.words import roots

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "facts_records.jsonl"
RECORD_TOKENS = 32
USUAL_TEMPERATURE = "1"
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
    SUMMARIES: SUMMARY,
}


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        kind: `RECORDS` or `SUMMARIES`.
        facts: shared or private: whose creatures are declared.
        told: whether the units tell about these creatures; they do not in a control.
    """

    kind: str
    system: str
    facts: str
    epsilon: str
    temperature: str = USUAL_TEMPERATURE
    told: bool = True
    trial: int = 0

    @property
    def shown(self) -> str:
        """The system as the table has it."""
        cooler = f", temperature {self.temperature}" if self.temperature != USUAL_TEMPERATURE else ""
        return f"{self.kind}, {self.system}{'' if self.told else ', no data'}{cooler}"


EPSILONS = ("100", "10", "4", "1")


def cells() -> Iterator[Cell]:
    """Yield all releases."""
    for kind in (RECORDS, SUMMARIES):
        yield Cell(kind, "public_only", "shared", NO_DATA)
        yield Cell(kind, "non_private", "shared", NO_NOISE)
        yield from (Cell(kind, "invisible_ink", "shared", epsilon) for epsilon in EPSILONS)
        yield Cell(kind, "invisible_ink", "private", "100")
    yield Cell(SUMMARIES, "public_only", "shared", NO_DATA, COPYING)
    yield Cell(SUMMARIES, "non_private", "shared", NO_NOISE, COPYING)
    for system, levels in (("one_shot_summary", (NO_NOISE, *EPSILONS)), ("token_level_summary", EPSILONS)):
        yield from (Cell(SUMMARIES, system, "shared", epsilon, COPYING) for epsilon in levels)
        yield Cell(SUMMARIES, system, "private", "100", COPYING)
    yield Cell(SUMMARIES, "one_shot_summary", "shared", "100", COPYING, told=False)


def main() -> None:
    parser = model_figures_parser(__doc__, OUT)
    parser.add_argument("--kinds", nargs="+", default=[RECORDS, SUMMARIES], choices=[RECORDS, SUMMARIES])
    add_selection(parser)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append the line of every release that is missing."""
    with tempfile.TemporaryDirectory() as folder, documents_read_once():
        place = Workplace(arguments.model, arguments.device, arguments.precision, Path(folder))
        for cell in cells():
            there = {(line["system"], line["facts"], line["epsilon"]) for line in read_lines_if_there(arguments.out)}
            wanted = cell.kind in arguments.kinds and selected(arguments, cell)
            if wanted and (cell.shown, cell.facts, cell.epsilon) not in there:
                started = time.process_time()
                append_lines(arguments.out, [scored(cell, release(place, cell))])
                print(cell, f"{time.process_time() - started:.0f} s", flush=True)


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


def release(place: Workplace, cell: Cell) -> list[tuple[str, str]]:
    """Return the texts of one release, each with its creature."""
    world = World.of(cell.trial)
    facts = world.shared if cell.facts == "shared" else world.private
    labels = tuple(fact.creature for fact in facts)
    of_kind: dict[str, Any] = (
        {"samples": len(labels), "labels": labels, "schema": SCHEMA, "constrained": True}
        if cell.kind == RECORDS
        else {"groups": [{"id": label} for label in labels]}
    )
    asked = {
        "references": UNITS_OF_A_GROUP,
        "max_new_tokens": RECORD_TOKENS if cell.kind == RECORDS else SUMMARY_TOKENS,
        # Without privacy a summary has all texts of its group in one prompt.
        "max_reference_tokens": REFERENCE_TOKENS * (UNITS_OF_A_GROUP if cell.system == "non_private" else 1),
        "temperature": cell.temperature,
        "top_k": 100,
        **of_kind,
    }
    others = tuple(fact.creature for fact in (world.private if cell.facts == "shared" else world.shared))
    corpus = place.corpus(cell.trial, labels if cell.told else others, UNITS_OF_A_GROUP)
    units, key = len(labels) * UNITS_OF_A_GROUP, f"{cell.shown} {cell.epsilon}"
    texts = place.release(cell.system, cell.epsilon, asked, corpus, DESCRIPTIONS[cell.kind], units, key)
    return [(text.label or "", text.text) for text in texts]


if __name__ == "__main__":
    main()
