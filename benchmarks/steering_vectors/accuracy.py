"""Accuracy of a classifier that learns labels from texts of `steering_vector`, InvisibleInk and the public model.

    python -m benchmarks.steering_vectors.accuracy --texts texts.jsonl --out docs/figures/steering_accuracy.jsonl
    python -m benchmarks.steering_vectors.accuracy --out docs/figures/steering_accuracy.jsonl --table

Releases of `SAMPLES` texts, half of each of two labels, from the units of `secret_assignment.labelled_texts`, one of
each kind: the vector and InvisibleInk at equal epsilon, the vector without visible noise, and the public model, which
knows the names of the labels alone. InvisibleInk splits a label's units into a batch for each text; the vector reads
all of them. The control has the same vectors under the other label's name: what a classifier still learns then is owed
to the name. A second reference is as many real texts themselves.

A logistic regression on embeddings learns the labels from a release, and is asked about real texts that no system has
read. Intervals are 95 % bootstraps over the texts of a release and over the tested ones; all kinds are tested on the
same texts, so differences are paired in these. The texts of `--texts` are not published; `--out` has figures alone.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.drawn_releases import append_missing, drawing_parser, parsed
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.secret_assignment.labelled_texts import (
    LABELS,
    MEMORY,
    REFERENCE_TOKENS,
    SAMPLES,
    TOKENS,
    Labelled,
    balanced_accuracies,
    cut,
    names,
    read,
    real_texts,
    shown,
    store,
)
from benchmarks.steering_vectors.releases import FREE, INK, PUBLIC, REFERENCES, STEERED, generated
from benchmarks.utility.sampled import DELTA
from benchmarks.utility.texts import DESCRIPTIONS
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.pricing.registry import SYSTEMS
from tasks.values.plan import PlanInputs

EPSILONS = ("4", "8")
REAL = "real texts"


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        swapped: the units stand under the other label's name.
    """

    data: str
    system: str
    epsilon: str | None = None
    swapped: bool = False

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.system}, labels swapped" if self.swapped else self.system


def cells() -> Iterator[Cell]:
    """The public model, both systems at each epsilon, the vector without noise, and the control."""
    for data in LABELS:
        yield Cell(data, PUBLIC)
        yield from (Cell(data, STEERED, epsilon) for epsilon in (*EPSILONS, FREE))
        yield Cell(data, STEERED, EPSILONS[-1], swapped=True)
        yield from (Cell(data, INK, epsilon) for epsilon in EPSILONS)


def is_chosen(cell: Cell, systems: Sequence[str], epsilons: Sequence[str]) -> bool:
    """Return whether a release is among those that are drawn."""
    return cell.system in systems and (cell.epsilon is None or cell.epsilon in epsilons)


def main() -> None:
    parser = drawing_parser(__doc__, "kind of release", SAMPLES)
    parser.add_argument("--systems", nargs="+", default=[PUBLIC, STEERED, INK], help="that are drawn")
    parser.add_argument("--epsilons", nargs="+", default=[*EPSILONS, FREE], help="that are drawn")
    arguments = parsed(parser)
    if not arguments.table:
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(Engine(model, memory=MEMORY), arguments)
        write_lines(arguments.out, measure(read_lines(arguments.texts), model.tokenizer))
    print("\n".join(table(read_lines(arguments.out))))


def swapped(units: Labelled) -> Labelled:
    """Return the texts with each of two labels in the other's place."""
    one, two = sorted(set(units.labels))
    return replace(units, labels=tuple(two if label == one else one for label in units.labels))


def draw(engine: Engine, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for data in LABELS:
            units = read(data)[0]
            for control, own in ((False, units), (True, swapped(units))):
                place = Path(folder) / f"{data} {control}"
                place.mkdir()
                stores[data, control] = store(own, place)
        known: dict[str, Any] = {}
        append_missing(
            arguments.texts,
            [cell for cell in cells() if is_chosen(cell, arguments.systems, arguments.epsilons)],
            lambda row: Cell(**row["cell"]),
            lambda cell: release(engine, stores[cell.data, cell.swapped], cell, arguments, known),
        )


def parameters(data: str, system: str, samples: int, precision: str) -> dict[str, Any]:
    """Return the parameters of a request; n of a vector is the number of a label's units."""
    own: Mapping[str, Any] = {
        PUBLIC: {"max_reference_tokens": REFERENCE_TOKENS},
        STEERED: {"references": len(read(data)[0]) // len(names(data))},
        INK: {
            "references": REFERENCES,
            "batches": samples // len(names(data)),
            "sampler": "table",
            "max_reference_tokens": REFERENCE_TOKENS,
        },
    }[system]
    sizes = {"samples": samples, "max_new_tokens": TOKENS, "temperature": "1", "precision": precision}
    return sizes | {"labels": names(data)} | dict(own)


def release(
    engine: Engine, corpus: Corpus, cell: Cell, arguments: argparse.Namespace, known: dict[str, Any]
) -> dict[str, Any]:
    """Return one release's texts."""
    system = SYSTEMS[cell.system]
    wanted = system.parameters.model_validate(
        parameters(cell.data, cell.system, arguments.samples, arguments.precision)
    )
    amount = None if cell.epsilon is None else release_amount(Decimal(cell.epsilon), DELTA)
    started = time.process_time()
    plan = system.plan(PlanInputs(amount, wanted, 1, None, governed=system.charges))
    bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTIONS[cell.data]), names(cell.data)))
    bench = replace(bench, split=BatchSplit(KEY, f"accuracy {cell.epsilon}"))
    made = generated(system, wanted, plan, bench, known, f"{cell.data} {cell.swapped}")
    return {
        "cell": asdict(cell),
        "texts": [[text.text, text.label] for text in made.texts],
        "released": dict(made.released),
        "seconds": round(time.process_time() - started, 1),
    }


def measure(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Yield the figures of each kind of release of each data set; none of their words."""
    from benchmarks.utility.mauve import embedder  # only figures need it

    embed = embedder()
    for data in LABELS:
        private, tested = read(data)
        own = {Cell(**row["cell"]): row for row in rows if row["cell"]["data"] == data}
        sides = {cell: Labelled(*zip(*row["texts"], strict=True)) for cell, row in own.items()}
        sides[Cell(data, REAL)] = real_texts(private, tokenizer, 0)
        classes = {name: number for number, name in enumerate(names(data))}
        features = embed([cut(text, tokenizer) for text in tested.texts])
        true = np.array([classes[label] for label in tested.labels])
        estimates = {
            cell: balanced_accuracies(
                [(embed(side.texts), np.array([classes[label] for label in side.labels]))], features, true
            )
            for cell, side in sides.items()
        }
        for cell, values in estimates.items():
            others = {"public": Cell(data, PUBLIC), "ink": Cell(data, INK, cell.epsilon)}
            usual = {name: other for name, other in others.items() if other in estimates and other != cell}
            usual = {name: other for name, other in usual.items() if cell.epsilon}
            line = own.get(cell, {})
            yield {
                "data": data,
                "system": cell.name,
                "epsilon": cell.epsilon,
                "texts": len(sides[cell].texts),
                "units": len(private),
                "tested": len(tested),
                "accuracy": shown(values),
                **{f"less_{name}": shown(values - estimates[other]) for name, other in usual.items()},
                "released": line.get("released", {}),
                "seconds": line.get("seconds"),
            }


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a kind of release."""
    yield "| data | texts of | epsilon | n | tested | accuracy | less public | less InvisibleInk | CPU s |"
    yield "|" + 9 * " --- |"
    for line in lines:
        epsilon = {None: "", FREE: "no noise"}.get(line["epsilon"], line["epsilon"])
        cells = [line["data"], line["system"], epsilon, str(line["texts"]), str(line["tested"])]
        cells += [written(line[name], 3) if name in line else "" for name in ("accuracy", "less_public", "less_ink")]
        cells.append("" if line["seconds"] is None else str(line["seconds"]))
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
