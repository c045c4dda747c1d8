"""Benchmark of facts, for texts: which questions can be answered from the released texts alone.

    python -m benchmarks.invented_facts.released_texts           # appends what docs/figures/facts_texts.jsonl lacks
    python -m benchmarks.invented_facts.released_texts --table   # the table of these lines

Worlds, and the rule that answers, are those of `worlds.py`; a piece is a sentence of a released text. A release has
TEXTS texts of at most TOKENS tokens, at its whole epsilon.

    a text of any units       nothing is declared: the batches are mixed
    a text of each creature   the 20 creatures are declared as labels, as somebody who knows whom to ask about would.
                              A unit has the label of a creature that it tells about, one of them if it tells about two.
                              Private facts have a release of their own, whose 20 labels are the private creatures:
                              each has one unit

    decoders                  `invisible_ink`, `private_icl`, `private_prediction` (Amin et al.) and
                              `few_shot_generation` (Tang et al.) draw each text from REFERENCES units, or from more
                              where the name says so
    released values           `keyphrase_seeding` and `private_evolution` read all units of a label
                              once, and show the model what they have released; `none` is epsilon 1,000,000

Controls: `public_only`, which reads no unit but is told the label: what a model guesses; and `non_private`, one whole
unit in each prompt: what the model can copy. `RELEASES` says at which of TEMPERATURES a release is made. A release is
kept with its texts, and one that is there is not made again.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.figures_parser import model_figures_parser
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.external_models.systems import remember_points
from benchmarks.invented_facts.systems import REFERENCE_TOKENS, Workplace, add_selection, selected, system
from benchmarks.invented_facts.worlds import EPSILONS, NO_DATA, NO_NOISE, Fact, World, answer, line_of, table
from tasks.text.words import roots

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "facts_texts.jsonl"
TEXTS, TOKENS, REFERENCES = 20, 24, 7
TEMPERATURES = COPYING, FREE = "0.3", "1"
WITHOUT_NOISE = (*EPSILONS, NO_NOISE)
MORE = 32
"""References of the systems for whose noise 7 are too few."""
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
        for name, texts, facts, epsilon, temperatures in RELEASES:
            for temperature in temperatures if trial == 0 else [each for each in temperatures if each == COPYING]:
                yield Cell(trial, name, texts, facts, epsilon, temperature)


def _each(
    name: str, temperature: str, epsilons: Sequence[str] = EPSILONS, leak_tests: Sequence[str] = ("100",)
) -> Iterator[tuple[str, str, str, str, Sequence[str]]]:
    """Yield a system's releases of shared creatures, from the largest epsilon down, and then those of private ones."""
    yield from ((name, EACH, "shared", epsilon, [temperature]) for epsilon in reversed(epsilons))
    yield from ((name, EACH, "private", epsilon, [temperature]) for epsilon in leak_tests)


RELEASES: Sequence[tuple[str, str, str, str, Sequence[str]]] = (
    ("public_only", EACH, "shared", NO_DATA, TEMPERATURES),
    ("non_private", EACH, "shared", NO_NOISE, TEMPERATURES),
    ("non_private", EACH, "private", NO_NOISE, TEMPERATURES),
    *(("invisible_ink", EACH, "shared", epsilon, TEMPERATURES) for epsilon in reversed(EPSILONS)),
    ("invisible_ink", EACH, "private", "100", [COPYING]),
    ("public_only", ANY, "shared", NO_DATA, [FREE]),
    ("non_private", ANY, "shared", NO_NOISE, TEMPERATURES),
    ("invisible_ink", ANY, "shared", "100", TEMPERATURES),
    *_each("keyphrase_seeding", COPYING, WITHOUT_NOISE, ["100", NO_NOISE]),
    *_each("private_evolution", COPYING),
    *_each("few_shot_generation", COPYING),
    *_each("private_prediction", FREE),
    *_each("private_icl", FREE),
    *_each(f"private_icl with {MORE} references", FREE, ["100"], leak_tests=[]),
)
"""System, texts, facts, epsilon and temperatures of the releases of a world."""


def main() -> None:
    parser = model_figures_parser(__doc__, OUT)
    parser.add_argument("--trials", type=int, default=1, help="worlds")
    add_selection(parser)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measure(arguments: argparse.Namespace) -> None:
    """Append the lines of every release that is missing."""
    remember_points()
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(arguments.model, arguments.device, arguments.precision, Path(folder))
        for cell in cells(arguments.trials):
            there = {
                (line["trial"], line["system"], line["release"], line["epsilon"])
                for line in read_lines_if_there(arguments.out)
            }
            if selected(arguments, cell) and (cell.trial, cell.shown, cell.facts, cell.epsilon) not in there:
                started = time.process_time()
                append_lines(arguments.out, scored(cell, release(place, cell)))
                print(cell, f"{time.process_time() - started:.0f} s", flush=True)


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


def release(place: Workplace, cell: Cell) -> list[str]:
    """Return the texts of one release."""
    world = World.of(cell.trial)
    facts = world.shared if cell.facts == "shared" else world.private
    labels = tuple(fact.creature for fact in facts) if cell.texts == EACH else ()
    asked = {
        "samples": TEXTS,
        "references": REFERENCES,
        "max_new_tokens": TOKENS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "temperature": cell.temperature,
        "top_k": 100,
        **({"labels": labels} if labels else {}),
    }
    # As many units as make one batch of each label: a private creature's one unit is then always read.
    rows = system(cell.system).changes.get("references", REFERENCES)
    units = TEXTS * rows if cell.facts == "private" else len(world.texts)
    corpus, key = place.corpus(cell.trial, labels), f"{cell.shown} {cell.epsilon}"
    return [text.text for text in place.release(cell.system, cell.epsilon, asked, corpus, DESCRIPTION, units, key)]


if __name__ == "__main__":
    main()
