"""Texts of `steering_vector` at equal epsilon beside InvisibleInk's and the public model's.

    python -m benchmarks.steering_vectors.releases --stage tuning --kept drawn.jsonl --out docs/figures/steering.jsonl
    python -m benchmarks.steering_vectors.releases --stage reported --kept drawn.jsonl --out docs/figures/steering.jsonl
    python -m benchmarks.steering_vectors.releases --stage equal_time --fewer-rows 2 --kept again.jsonl \\
        --out docs/figures/steering.jsonl
    python -m benchmarks.steering_vectors.releases --model gemma3-270m --form completion --ink 4 --fewer-rows 2 \\
        --texts 32 --kept gemma.jsonl --out docs/figures/steering.jsonl
    python -m benchmarks.steering_vectors.releases --out docs/figures/steering.jsonl --table

Depth, strength and clip norm were chosen by the figures of `tuning`, on a corpus that no other page reports; those of
`reported` are the corpora of the other pages on utility, measured once with what was chosen. Releases are drawn as in
`sampled`, from the same units. The control has the vector of another corpus's texts under the same prompt: what is
left then is owed to any vector, and not to the units. MAUVE is of as many texts of each release against real texts that
no system has read; all releases of a corpus by one model share clusters and draws of real texts, so differences are
paired. Perplexity is SmolLM2's, whichever model wrote the texts. With `--fewer-rows`, InvisibleInk is drawn again with
so many rows, for a comparison at less processor time; `equal_time` draws a second release of the public model and of
the vector beside it, for a model whose first release was drawn without. Lines hold figures alone.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from pydantic import BaseModel
from torch import Tensor

from benchmarks.common.drawn_releases import DEFAULT_MODEL
from benchmarks.common.intervals import rounded, written
from benchmarks.common.json_lines import append_lines
from benchmarks.common.open_bench import open_bench
from benchmarks.utility.mauve import embedder, measured_together
from benchmarks.utility.sampled import DELTA, UNREAD, distinct_2, figures, real_texts, store
from benchmarks.utility.texts import DESCRIPTIONS, read_texts
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.store import Corpus
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.pricing.registry import SYSTEMS
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tasks.prompted_generation.steering.run import SteeringRun
from tasks.prompted_generation.steering.vectors import PublicOrigin
from tasks.values.generated import Generated
from tasks.values.plan import Generator, Plan, PlanInputs

PUBLIC, INK, STEERED = "public_only", "invisible_ink", "steering_vector"
TUNING = {"agnews": "Short news items of a news agency."}
OTHERS = {"agnews": "sst2", "mts_dialog": "yelp", "yelp": "mts_dialog"}
"""Whose vector the control has."""
REFERENCES, FEWER_ROWS = 7, 2
"""Rows behind a text of InvisibleInk, as on the other pages; and for a comparison at less processor time."""
TEXTS, TOKENS, REFERENCE_TOKENS = 64, 32, 64
MOST_UNITS = {"tuning": 600, "reported": 900, "equal_time": 900}
"""Units that systems may read of a corpus."""
FREE = "1000"
"""An epsilon whose noise cannot be seen: what the vector would be worth without privacy."""


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        units: the corpus whose units are read; `data` unless it is a control.
        changes: parameters other than the defaults.
    """

    data: str
    system: str
    epsilon: str | None = None
    units: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For tables."""
        own = [f"{name} {value}" for name, value in self.changes.items()]
        control = [f"vector of {self.units}"] if self.units else []
        return ", ".join([self.system, *control, *own])


def tuning() -> Iterator[Cell]:
    """Settings at one epsilon, and the public model."""
    for data in TUNING:
        yield Cell(data, PUBLIC)
        for depth in ("0.3", "0.5", "0.7"):
            for strength in ("0.5", "1", "2"):
                yield Cell(data, STEERED, "8", changes={"depth": depth, "strength": strength})


def reported(ink: Sequence[str] = ("4", "8"), fewer_rows: int | None = None) -> Iterator[Cell]:
    """The systems at both epsilons, the vector without noise, and the control.

    Args:
        ink: epsilons at which InvisibleInk is drawn.
        fewer_rows: rows of a second release of InvisibleInk at the first of them; None draws no such release.
    """
    for data in DESCRIPTIONS:
        yield Cell(data, PUBLIC)
        for epsilon in ("4", "8"):
            if epsilon in ink:
                yield Cell(data, INK, epsilon)
            yield Cell(data, STEERED, epsilon)
        if fewer_rows is not None:
            yield Cell(data, INK, ink[0], changes={"references": fewer_rows})
        yield Cell(data, STEERED, FREE)
        yield Cell(data, STEERED, "8", OTHERS[data])


def equal_time(fewer_rows: int) -> Iterator[Cell]:
    """The vector at epsilon 4 and InvisibleInk with fewer rows, which take about as long; and the public model."""
    for data in DESCRIPTIONS:
        yield Cell(data, PUBLIC)
        yield Cell(data, STEERED, "4")
        yield Cell(data, INK, "4", changes={"references": fewer_rows})


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    """The releases of a stage."""
    if arguments.stage == "tuning":
        return list(tuning())
    if arguments.stage == "equal_time":
        return list(equal_time(arguments.fewer_rows or FEWER_ROWS))
    return list(reported(arguments.ink, arguments.fewer_rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=list(MOST_UNITS), default="reported")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each release")
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--ink", nargs="+", default=["4", "8"], help="epsilons at which InvisibleInk is drawn")
    parser.add_argument("--fewer-rows", type=int, help="of another release of InvisibleInk")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16", "int8"))
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path("drawn.jsonl"),
        help="JSON lines of drawn texts; what is there is not drawn again",
    )
    parser.add_argument("--table", action="store_true", help="only print what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        measure(cells_of(arguments), arguments)
    print("\n".join(table([json.loads(line) for line in arguments.out.open(encoding="utf-8")])))


def measure(cells: Sequence[Cell], arguments: argparse.Namespace) -> None:
    """Draw all releases of a stage, then measure those of a corpus together, and append their lines."""
    engine, embed = Engine(load(arguments.model, "cpu", arguments.precision)), embedder()
    drawn: dict[int, dict[str, Any]] = {}
    there = read_rows(arguments.kept)
    with tempfile.TemporaryDirectory() as folder:
        names = dict.fromkeys(name for cell in cells for name in (cell.data, cell.units) if name)
        most = MOST_UNITS[arguments.stage]
        stores = {name: store(name, Path(folder) / name, most) for name in names}
        known: dict[str, Any] = {}
        for number, cell in enumerate(cells):
            drawn[number] = row = there.get(name_of(asdict(cell)), {})
            if row:
                continue
            started = time.process_time()
            corpus, units = stores[cell.units or cell.data]
            texts, released = generate(engine, corpus, units, cell, arguments.texts, known, arguments.form)
            seconds = round(time.process_time() - started, 1)
            row |= {"cell": asdict(cell), "texts": texts, "released": released, "seconds": seconds}
            print(f"{cell.data}, {cell.name}, {cell.epsilon}: {seconds} s {released}", flush=True)
            append_lines(arguments.kept, [row])
    other = arguments.model != DEFAULT_MODEL
    scorer = load(DEFAULT_MODEL, "cpu", arguments.precision) if other else engine.model
    with arguments.out.open("a", encoding="utf-8") as lines:
        for data in dict.fromkeys(cell.data for cell in cells):
            mine = {number: each for number, each in drawn.items() if each["cell"]["data"] == data}
            for line in measured(scorer, embed, data, mine, arguments):
                lines.write(json.dumps(line) + "\n")


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The releases that are drawn already, by their cells."""
    rows = map(json.loads, path.open(encoding="utf-8")) if path.exists() else iter(())
    return {name_of(row["cell"]): row for row in rows}


def name_of(cell: Mapping[str, Any]) -> str:
    """A cell as a key."""
    return json.dumps(cell, sort_keys=True)


@dataclass(frozen=True)
class Shared(SteeringRun):
    """A run that shares its origin and exact sums with those that read the same units behind the same prompt.

    Sharing is for benchmarks alone: a release never keeps sums without noise.

    Attributes:
        known: both of them, by what they depend on.
        key: of this run.
    """

    known: dict[str, Any] = field(default_factory=dict)
    key: str = ""

    @cached_property
    def origin(self) -> PublicOrigin:
        if f"{self.key} origin" not in self.known:
            self.known[f"{self.key} origin"] = self._public_origin()
        return self.known[f"{self.key} origin"]  # type: ignore[no-any-return]

    def _sums(self) -> Tensor:
        if self.key not in self.known:
            self.known[self.key] = super()._sums()
        return self.known[self.key]  # type: ignore[no-any-return]


def generated(
    system: Generator[Any], parameters: BaseModel, plan: Plan, bench: RunContext, known: dict[str, Any], key: str
) -> Generated:
    """Return what a release generates; one by a vector shares sums with others of the same key, as `Shared`."""
    if not isinstance(parameters, SteeringParameters):
        return system.generate(plan, parameters, bench)
    run = SteeringRun.of(parameters, None, NoisyMean.from_event(plan.invocations[0].event), plan, bench)
    return Shared(**{part.name: getattr(run, part.name) for part in fields(run)}, known=known, key=key).generated()


def generate(
    engine: Engine, corpus: Corpus, units: int, cell: Cell, count: int, known: dict[str, Any], form: str = "chat"
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The texts of one release, and the figures that it releases."""
    system = SYSTEMS[cell.system]
    references = units if cell.system == STEERED else REFERENCES
    sizes = {"samples": count, "references": references, "max_new_tokens": TOKENS, "temperature": "1"}
    rows = {} if cell.system == STEERED else {"max_reference_tokens": REFERENCE_TOKENS}
    drawn = {"sampler": "opendp"} if cell.system == INK else {}
    written_out = sizes | rows | drawn | dict(cell.changes)
    parameters = system.parameters.model_validate(written_out)
    amount = None if cell.epsilon is None else release_amount(Decimal(cell.epsilon), DELTA)
    plan = system.plan(PlanInputs(amount, parameters, 1, units, governed=system.charges))
    prompt = Prompt.model_validate({"description": (DESCRIPTIONS | TUNING)[cell.data], "form": form})
    bench = open_bench(engine, corpus, PromptSpec.of(prompt))
    vector = (getattr(parameters, name, None) for name in ("depth", "clip_norm"))
    made = generated(system, parameters, plan, bench, known, " ".join(map(str, (cell.data, cell.units, *vector))))
    texts = [{"text": text.text, "tokens": text.tokens, "complete": text.complete} for text in made.texts]
    return texts, dict(made.released)


def measured(
    scorer: LanguageModel, embed: Any, data: str, drawn: Mapping[int, Mapping[str, Any]], arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """One line for each release of a corpus, each figure with its 95 % bootstrap interval over texts.

    Args:
        scorer: scores every text, and its tokens are those that real texts are cut by.
    """
    others, real = real_texts(scorer.tokenizer, data, arguments.texts, TOKENS)
    sides = {str(number): [text["text"] for text in each["texts"]] for number, each in drawn.items()}
    estimates = measured_together(embed, sides | {"real": others}, real)
    public = next(str(number) for number, each in drawn.items() if each["cell"]["system"] == PUBLIC)
    again = ", second release" if arguments.stage == "equal_time" else ""
    about = {
        "model": arguments.model,
        "data": data,
        "real": len(real),
        "precision": arguments.precision,
        "units": units_of(data, MOST_UNITS[arguments.stage]),
    }
    for number, each in drawn.items():
        cell, estimate = Cell(**each["cell"]), estimates[str(number)]
        compared = {"public": public} if cell.system != PUBLIC else {}
        compared |= inks_beside(cell, drawn) if cell.system == STEERED else {}
        yield about | {
            "name": cell.name + again,
            "epsilon": cell.epsilon,
            "texts": len(each["texts"]),
            "seconds": each["seconds"],
            "released": each["released"],
            "mauve": rounded(estimate.shown),
            **{f"mauve_less_{name}": rounded(estimate.less(estimates[side]).shown) for name, side in compared.items()},
            "distinct_2": round(distinct_2(sides[str(number)]), 4),
            **{name: rounded(value) for name, value in figures(scorer, each["texts"]).items()},
        }
    yield about | {
        "name": "real, others" + again,
        "epsilon": None,
        "texts": len(others),
        "mauve": rounded(estimates["real"].shown),
    }


def inks_beside(cell: Cell, drawn: Mapping[int, Mapping[str, Any]]) -> dict[str, str]:
    """Which releases of InvisibleInk at a cell's epsilon it is compared with: `ink` by default, and `fewer_rows`."""
    others = ((str(number), each["cell"]) for number, each in drawn.items())
    return {
        "fewer_rows" if other["changes"] else "ink": number
        for number, other in others
        if other["system"] == INK and other["epsilon"] == cell.epsilon
    }


def units_of(data: str, most: int) -> int:
    """How many texts of a corpus systems may read."""
    return min(most, sum(1 for place in range(len(read_texts(data))) if place % UNREAD))


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The results as Markdown."""
    heads = "model | data | system | epsilon | texts | MAUVE | less public | less InvisibleInk | less fewer rows"
    rows = [f"| {heads} | perplexity | distinct-2 | CPU s |", "| --- " * 12 + "|"]
    for line in lines:
        cells = [
            line["model"],
            line["data"],
            line["name"],
            line["epsilon"] or "",
            str(line["texts"]),
            _shown(line["mauve"], 2),
        ]
        cells += [_shown(line.get(f"mauve_less_{name}"), 2) for name in ("public", "ink", "fewer_rows")]
        cells += [_shown(line.get("perplexity"), 1), str(line.get("distinct_2", "")), str(line.get("seconds", ""))]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _shown(values: Sequence[float] | None, digits: int) -> str:
    return "" if values is None else written(values, digits)


if __name__ == "__main__":
    main()
