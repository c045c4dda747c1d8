"""Private summaries of products under matched budgets: every system, epsilon and trial, with its texts and scores.

    python -m benchmarks.summaries.cells --train                       # the adapters, once
    python -m benchmarks.summaries.cells --part 1/2 &                  # two processes share the cells
    python -m benchmarks.summaries.cells --part 2/2
    python -m benchmarks.summaries.cells --list                        # what there is, and what it took

A cell is one release of all 21 products that were not trained on: `kind: summaries`, one text a product, 8 reviews
each, delta 1e-6, 50 tokens, at a bench without a ledger, because the reviews are public. It is appended to the file
with every text when it is made, and one that is there with the same parameters is not made again. There are no seeds:
randomness is the operating system's, and trials are independent runs. What the model makes of a document when it is
read for a one-shot summary is the same in every cell, so each process reads documents once for all of them; times of
single summaries are what `summaries/time_per_summary.py` measures.

`--half public` writes about the other half, by which all parameters were chosen.
"""

import argparse
import fcntl
import itertools
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.json_lines import DATA, read_lines
from benchmarks.common.open_bench import open_bench
from benchmarks.summaries.data import LICENCE, Product, products, store, training_file
from benchmarks.summaries.scores import SCORES, KeepingPieces, scores
from benchmarks.summaries.systems import (
    ADAPTERS,
    DELTA,
    NO_NOISE,
    REFERENCES,
    SYSTEMS_COMPARED,
    System,
    known_adapter,
    training_settings,
)
from models_db.values.requests import PublicGroup
from tasks.accounting.zcdp import release_amount
from tasks.adapters.training.train import TrainingRequest, train_adapter
from tasks.corpus.store import Corpus
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.engine import hidden_states
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import PlanInputs
from tasks.values.results import Generated

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "summaries.jsonl"
MODEL = "smollm2-135m-instruct"
PRECISION: Precision = "bfloat16"


@dataclass(frozen=True)
class Cell:
    """One release: what makes it, at what price, and which of several it is."""

    system: System
    epsilon: str | None
    trial: int

    @property
    def key(self) -> dict[str, Any]:
        """What a line of results is known by; an adapter by its digest."""
        written = self.system.written()
        if self.system.adapter is not None and (known := known_adapter(self.system.adapter)):
            written["adapter"] = known.digest
        name = {"system": self.system.name, "epsilon": self.epsilon, "trial": self.trial}
        plain: dict[str, Any] = json.loads(json.dumps({**name, "precision": PRECISION, "parameters": written}))
        return plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="JSON lines, one for each cell")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--half", choices=["test", "public"], default="test")
    parser.add_argument("--groups", type=int, help="only the first so many products, for trials")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[system.name for system in SYSTEMS_COMPARED])
    parser.add_argument("--epsilons", nargs="+", help="of those that a system is measured at")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every n-th cell, from the i-th")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="a parameter, for trials")
    parser.add_argument("--train", action="store_true", help="only train the adapters that are missing")
    parser.add_argument("--list", action="store_true", help="only say what is there")
    arguments = parser.parse_args()
    if arguments.list:
        show(arguments)
    elif arguments.train:
        for name in ADAPTERS:
            adapter(name, arguments)
    else:
        measure(arguments)


def cells(arguments: argparse.Namespace) -> list[Cell]:
    """All that is asked for, trial by trial, so that any first part of them is of use."""
    changed = dict(each.split("=", 1) for each in arguments.set)
    own = {name: changed.pop(name) for name in ("noise", "asked", "adapter") if name in changed}
    found = []
    for trial, system in itertools.product(range(arguments.trials), SYSTEMS_COMPARED):
        if arguments.only and system.name not in arguments.only:
            continue
        made = replace(system, parameters={**system.parameters, **changed}, **own)
        epsilons = [each for each in system.epsilons if each is None or each in (arguments.epsilons or system.epsilons)]
        found += [Cell(made, each, trial) for each in epsilons if trial == 0 or each != NO_NOISE]
    return found


def part(some: Sequence[Cell], which: str) -> list[Cell]:
    """Every n-th, from the i-th: neighbours take about as long as each other."""
    number, of = map(int, which.split("/"))
    if not 1 <= number <= of:
        raise SystemExit(f"--part {which}: I/N with I from 1 to N")
    return list(some[number - 1 :: of])


def there(out: Path) -> list[dict[str, Any]]:
    """The lines that the file has."""
    return read_lines(out) if out.exists() else []


def measure(arguments: argparse.Namespace) -> None:
    """Make and append every cell that is missing."""
    with tempfile.TemporaryDirectory() as folder, documents_read_once():
        place = Workplace(arguments, Path(folder))
        for cell in part(cells(arguments), arguments.part):
            if cell.system.adapter is not None:
                adapter(cell.system.adapter, arguments)
            if cell.key in [line["cell"] for line in there(arguments.out)]:
                continue
            line = place.line(cell)
            append(arguments.out, line)
            print(shown(line), flush=True)


def append(out: Path, line: dict[str, Any]) -> None:
    """In one write, so that processes that share a file do not mix their lines."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab", buffering=0) as file:
        file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


@contextmanager
def documents_read_once() -> Iterator[None]:
    """While this lasts, equal prompts and documents have their hidden states read once."""
    kept: dict[Any, list[Any]] = {}
    read = hidden_states.last_hidden

    def remembered(engine: Engine, private: Any, references: Any, sizes: Any) -> Iterator[Any]:
        key = (tuple(private), tuple(tuple(map(tuple, rows)) for rows in references), sizes)
        if key not in kept:
            kept[key] = list(read(engine, private, references, sizes))
        return iter(kept[key])

    with patch.object(hidden_states, "last_hidden", remembered):
        yield


class Workplace:
    """What all cells of a process share: model, embedder, reviews."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder

    @cached_property
    def products(self) -> list[Product]:
        return products(self.arguments.data, self.arguments.half)[: self.arguments.groups]

    @cached_property
    def corpus(self) -> Corpus:
        return store(self.products, self.folder)

    @cached_property
    def engine(self) -> Engine:
        return Engine(load(self.arguments.model, self.arguments.device, PRECISION))

    @cached_property
    def embed(self) -> KeepingPieces:
        return KeepingPieces(load_embedder())

    def line(self, cell: Cell) -> dict[str, Any]:
        """One cell as it is kept."""
        _ = self.engine, self.corpus, self.embed  # not part of what is timed
        started, work = time.monotonic(), time.process_time()
        made = generate(self.engine, self.corpus, self.products, cell)
        seconds = {"seconds": round(time.monotonic() - started, 2), "work": round(time.process_time() - work, 2)}
        references = {product.id: product.summaries for product in self.products}
        texts = [
            {
                "group": text.label,
                **({} if cell.system.mechanism == "non_private" else {"text": text.text}),  # may repeat a review
                "tokens": text.tokens,
                "complete": text.complete,
                **scores(text.text, references[text.label or ""], self.embed),
            }
            for text in made.texts
        ]
        return {"cell": cell.key, **seconds, "texts": texts}


def generate(engine: Engine, corpus: Corpus, some: Sequence[Product], cell: Cell) -> Generated:
    """The texts of one release; none of it is charged, because its reviews are public."""
    return release(engine, corpus, cell.system, cell.epsilon, [product.group for product in some])


def release(
    engine: Engine,
    corpus: Corpus,
    wanted: System,
    epsilon: str | None,
    groups: Sequence[PublicGroup],
    references: int = REFERENCES,
) -> Generated:
    """One text a group, by the system itself."""
    system = SYSTEMS[wanted.mechanism]
    amount = None if epsilon is None else release_amount(Decimal(epsilon), DELTA)
    parameters = wanted.request(groups, references)
    plan = system.plan(PlanInputs(amount, parameters, 1, None, governed=system.charges))
    return system.generate(plan, parameters, open_bench(engine, corpus, wanted.prompt))


def adapter(name: str, arguments: argparse.Namespace) -> None:
    """Train the adapter of that name, unless this machine has it; one process does, and others wait for it."""
    if known_adapter(name):
        return
    training = ADAPTERS[name]
    with (Path(tempfile.gettempdir()) / "almoner-summaries.lock").open("w") as lock, tempfile.TemporaryDirectory() as f:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if known_adapter(name):
            return
        path = training_file(arguments.data, Path(f) / "summaries.jsonl", training.answers)
        wanted = TrainingRequest(name, arguments.model, LICENCE, training_settings(training), wording=training.wording)
        started = time.monotonic()
        known = train_adapter(path, wanted, arguments.device)
        print(f"{name}: {time.monotonic() - started:.0f} s, {known.digest[:12]}, {known.meta.fit}", flush=True)


def shown(line: dict[str, Any]) -> str:
    """A cell, for people."""
    cell, texts = line["cell"], line["texts"]
    means = " ".join(f"{name} {sum(text[name] for text in texts) / len(texts):.3f}" for name in SCORES)
    return f"{cell['system']} {cell['epsilon'] or '-'} {cell['trial']}: {means}, {line['seconds']} s"


def show(arguments: argparse.Namespace) -> None:
    """How many cells of each system are there, of how many, and how long they take."""
    lines = there(arguments.out)
    known = [line["cell"] for line in lines]
    wanted = defaultdict(list)
    for cell in cells(arguments):
        wanted[cell.system.name].append(cell.key in known)
    for name, found in wanted.items():
        times = [line["seconds"] for line in lines if line["cell"]["system"] == name]
        mean = f"{sum(times) / len(times):.1f} s each" if times else "not timed"
        print(f"{name:20} {sum(found):3} of {len(found):3}, {mean}")


if __name__ == "__main__":
    main()
