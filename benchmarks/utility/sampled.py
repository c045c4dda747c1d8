"""Texts of the real systems, made at a bench in memory from public data, and how they compare with the real ones.

    python -m benchmarks.utility.sampled --out sampled.jsonl            # 48 texts of 32 tokens a cell, 7 references
    python -m benchmarks.utility.sampled --out sampled.jsonl --references 4 --epsilons 10 \\
        --systems "InvisibleInk, log-probability"                       # fewer rows, as if they were enough
    python -m benchmarks.utility.sampled --out sampled.jsonl --full     # 500 texts of 200 tokens: days on two cores
    python -m benchmarks.utility.sampled --table                        # every figure of what is there

Every cell is appended to `--out` with its texts when it is made, and one that is there already is not made again. Cells
that differ in their number of samples alone are one line of the table; a second release splits the units anew. Then the
figures of all texts that are there are written to `--to`: releases of a data set share clusters and real texts, so
their differences in MAUVE are paired. The data are public, which is why a bench without a ledger may arm nothing.
Figures need the registry's embedder (`almoner models pull all-minilm-l6-v2`).
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.drawn_releases import DEFAULT_MODEL
from benchmarks.common.intervals import rounded, written
from benchmarks.common.json_lines import append_lines, read_lines, read_lines_if_there, write_lines
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.utility.texts import DESCRIPTIONS, SEED, read_texts
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus, open_corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import log_likelihoods
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import reference_tokens
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.text.words import words
from tasks.values.plan import PlanInputs

TO = Path(__file__).resolve().parents[2] / "docs" / "figures" / "drawn_systems.jsonl"
DELTA = Decimal("1e-5")
REAL, PUBLIC, ONE = "real, others", "public only", "one document, no privacy"
LOG_PROBABILITY, PAPER = "InvisibleInk, log-probability", "InvisibleInk, paper"
FEWER_ROWS = 1.5
"""How many times fewer rows log-probability clipping is asked to need (docs/utility.md)."""
UNREAD = 4
"""Every so manieth text of a data set is read by no system: those are the real texts to compare with."""
MECHANISMS = {
    PUBLIC: ("public_only", {}),
    ONE: ("non_private", {}),
    LOG_PROBABILITY: ("invisible_ink", {"clipping": "log_probability"}),
    PAPER: ("invisible_ink", {"clipping": "logit"}),
    "Amin et al.": ("private_prediction", {}),
    "private ICL": ("private_icl", {}),
}


@dataclass(frozen=True)
class Cell:
    """One release.

    Attributes:
        form: of the prompt; `completion` for a base model.
    """

    data: str
    system: str
    epsilon: str | None
    samples: int
    tokens: int
    references: int
    temperature: str
    top_k: int
    reference_tokens: int
    precision: str
    model: str = DEFAULT_MODEL
    form: str = "chat"

    @property
    def name(self) -> str:
        """The cell among those of its data set."""
        return f"{self.system}, epsilon {self.epsilon}, {self.references} rows"

    def parameters(self) -> dict[str, Any]:
        """The request's parameters."""
        _, own = MECHANISMS[self.system]
        return own | {
            "samples": self.samples,
            "references": self.references,
            "max_new_tokens": self.tokens,
            "max_reference_tokens": self.reference_tokens,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "precision": self.precision,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON lines, the texts of each cell")
    parser.add_argument("--to", type=Path, default=TO, help="JSON lines, the figures of all cells")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS))
    parser.add_argument("--systems", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS))
    parser.add_argument("--epsilons", nargs="+", default=["10", "1"])
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--reference-tokens", type=int, default=64, help="of a private text, what a row reads")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--mauve-texts", type=int, default=48, help="of how many texts MAUVE is")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print the tables of the figures")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.samples, arguments.tokens, arguments.reference_tokens = 500, 200, 128
    if not arguments.table:
        if arguments.out is None:
            parser.error("--out is needed to draw texts")
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(model, arguments)
        write_lines(arguments.to, list(measure(model, read_cells([arguments.out]), arguments.mauve_texts)))
    lines = read_lines(arguments.to)
    for data in dict.fromkeys(line["data"] for line in lines):
        print("\n".join(["", f"{data}:", "", *table(lines, data)]))
    print("\n".join(["", *rows_table(lines)]))


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """The references first, then one epsilon after the other."""
    sizes = (
        arguments.samples,
        arguments.tokens,
        arguments.references,
        arguments.temperature,
        arguments.top_k,
        arguments.reference_tokens,
        arguments.precision,
        arguments.model,
        arguments.form,
    )
    charging = {name: SYSTEMS[MECHANISMS[name][0]].charges for name in arguments.systems}
    for data in arguments.data:
        yield from (Cell(data, name, None, *sizes) for name, charges in charging.items() if not charges)
    for epsilon in arguments.epsilons:
        for data in arguments.data:
            yield from (Cell(data, name, epsilon, *sizes) for name, charges in charging.items() if charges)


def draw(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every cell that is missing."""
    out: Path = arguments.out
    there = [Cell(**row["cell"]) for row in read_lines_if_there(out)]
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data) for data in arguments.data}
        for cell in cells(arguments):
            if cell in there:
                continue
            started = time.process_time()
            texts = generate(engine, *stores[cell.data], cell)
            row = {"cell": asdict(cell), "texts": texts, "seconds": round(time.process_time() - started, 1)}
            append_lines(out, [row])
            print(f"{cell}: {row['seconds']} s", flush=True)


def store(data: str, folder: Path, most: int | None = None, texts: Sequence[str] | None = None) -> tuple[Corpus, int]:
    """The data set as an ingested version, every text a unit; without the texts that `real_texts` compares with.

    Args:
        most: units at most; None for all.
        texts: other texts than those.
    """
    folder.mkdir(parents=True)
    home, source = ProjectHome(folder / "home"), folder / "texts.jsonl"
    home.create()
    if texts is None:
        texts = [text for place, text in enumerate(read_texts(data)) if place % UNREAD]
    private = texts[:most]
    with source.open("w", encoding="utf-8") as lines:
        for number, text in enumerate(private):
            lines.write(json.dumps({"id": f"{number}", "unit": f"{number}", "text": text}) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY).uid), len(private)


def real_texts(tokenizer: Any, data: str, count: int, tokens: int) -> tuple[list[str], list[str]]:
    """Texts that no system has read, cut to as many tokens as a system may draw: `count` of them, and others.

    The others are what MAUVE compares with, three times as many where there are so many.
    """
    unread = [text for place, text in enumerate(read_texts(data)) if place % UNREAD == 0]
    mixed = random.Random(SEED).sample(unread, len(unread))[: 4 * count]
    cut = [tokenizer.decode(reference_tokens(tokenizer, text, tokens), skip_special_tokens=True) for text in mixed]
    return cut[:count], cut[count:]


def generate(engine: Engine, corpus: Corpus, units: int, cell: Cell) -> list[dict[str, Any]]:
    """The texts of one release."""
    system = SYSTEMS[MECHANISMS[cell.system][0]]
    parameters = system.parameters.model_validate(cell.parameters())
    amount = None if cell.epsilon is None else release_amount(Decimal(cell.epsilon), DELTA)
    plan = system.plan(PlanInputs(amount, parameters, 1, units, governed=system.charges))
    prompt = Prompt.model_validate({"description": DESCRIPTIONS[cell.data], "form": cell.form})
    bench = open_bench(engine, corpus, PromptSpec.of(prompt))
    bench = replace(bench, split=BatchSplit(KEY, f"{cell.samples} samples"))
    made = system.generate(plan, parameters, bench)
    return [{"text": text.text, "tokens": text.tokens, "complete": text.complete} for text in made.texts]


def distinct_2(texts: Sequence[str]) -> float:
    """Different pairs of neighbouring words, as a share of all pairs; copies would lower it, so it has no bootstrap."""
    pairs = [pair for text in texts for pair in zip(words(text), words(text)[1:], strict=False)]
    return len(set(pairs)) / max(1, len(pairs))


def perplexity(scores: Sequence[tuple[float, int]]) -> float:
    """exp of the mean negative log-likelihood of a token, from sums and counts by text."""
    total, count = (sum(parts) for parts in zip(*scores, strict=True))
    return float(2.718281828459045 ** (-total / max(1, count)))


def interval(values: Sequence[Any], statistic: Callable[[Sequence[Any]], float], rounds: int = 300) -> list[float]:
    """The statistic, and a 95 % percentile interval over texts drawn with replacement."""
    source = random.Random(SEED)
    drawn = sorted(statistic([source.choice(values) for _ in values]) for _ in range(rounds))
    return [statistic(values), drawn[round(0.025 * rounds)], drawn[round(0.975 * rounds) - 1]]


def figures(model: LanguageModel, texts: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Length and perplexity under the model without a prompt, each with its interval, and the share that ended."""
    scores = log_likelihoods(model, [text["text"] for text in texts])
    return {
        "tokens": interval([text["tokens"] for text in texts], fmean),
        "perplexity": interval(scores, perplexity),
        "complete": [sum(text["complete"] for text in texts) / len(texts)],
    }


def read_cells(paths: Sequence[Path]) -> dict[Cell, list[dict[str, Any]]]:
    """Texts by setting; cells that differ in their number of samples alone are one, whose `samples` is 0."""
    found: dict[Cell, list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        for row in map(json.loads, path.open(encoding="utf-8")):
            found[Cell(**row["cell"] | {"samples": 0})] += row["texts"]
    return dict(found)


def measure(
    model: LanguageModel, found: Mapping[Cell, Sequence[dict[str, Any]]], count: int
) -> Iterator[dict[str, Any]]:
    """Yield the figures of every cell, real texts first; none of their words.

    Args:
        count: texts of each cell that MAUVE compares; a cell with fewer has none.
    """
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embed = embedder()
    for data, tokens in dict.fromkeys((cell.data, cell.tokens) for cell in found):
        mine = {cell: found[cell] for cell in sorted(found, key=_place) if (cell.data, cell.tokens) == (data, tokens)}
        others, real = real_texts(model.tokenizer, data, count, tokens)
        sides = {REAL: others} | {
            cell.name: [text["text"] for text in texts[:count]] for cell, texts in mine.items() if len(texts) >= count
        }
        mauve = measured_together(embed, sides, real)
        of_name: dict[str, Cell | None] = {REAL: None} | {cell.name: cell for cell in mine}
        public = next((name for name, cell in of_name.items() if cell is not None and cell.system == PUBLIC), None)
        few = min(map(len, mine.values()))
        for name, cell in of_name.items():
            texts = [_as_text(model, text, tokens) for text in others] if cell is None else mine[cell]
            estimate, controls = mauve.get(name), {}
            if estimate is not None and cell is not None and public in mauve and name != public:
                controls["more_than_public"] = rounded(estimate.less(mauve[public]).shown)
            if estimate is not None and cell is not None and (paper := _paper(cell, mine)) in mauve:
                controls["less_paper"] = rounded(estimate.less(mauve[paper]).shown)
            yield {
                "data": data, "system": REAL if cell is None else cell.system,
                "epsilon": None if cell is None else cell.epsilon,
                "rows": None if cell is None or cell.epsilon is None else cell.references,
                "texts": len(texts), "compared": count if estimate is not None else 0, "real_texts": len(real),
                "mauve": None if estimate is None else rounded(estimate.shown), **controls,
                **{key: rounded(values) for key, values in figures(model, texts).items()},
                "distinct_2": round(distinct_2([text["text"] for text in texts[:few]]), 4), "distinct_2_of": few,
            }  # fmt: skip


def _paper(cell: Cell, mine: Mapping[Cell, Any]) -> str | None:
    """Return the paper's variant with at least FEWER_ROWS times as many rows, for one by log-probabilities."""
    if cell.system != LOG_PROBABILITY:
        return None
    return next(
        (
            one.name
            for one in mine
            if (one.system, one.epsilon) == (PAPER, cell.epsilon) and one.references >= FEWER_ROWS * cell.references
        ),
        None,
    )


def table(lines: Sequence[Mapping[str, Any]], data: str) -> Iterator[str]:
    """Yield Markdown: the figures of a data set."""
    scores = "MAUVE | more than public only | perplexity | distinct-2 | tokens | complete"
    yield f"| texts | epsilon | rows | number | {scores} |"
    yield "|" + 10 * " --- |"
    for line in lines:
        if line["data"] == data:
            cells = [line["system"], line["epsilon"] or "-", str(line["rows"] or "-"), str(line["texts"])]
            cells += [_written(line, "mauve"), _written(line, "more_than_public"), written(line["perplexity"], 1)]
            cells += [f"{line['distinct_2']:.2f}", written(line["tokens"], 0), f"{line['complete'][0]:.0%}"]
            yield f"| {' | '.join(cells)} |"


def rows_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: log-probability clipping with fewer rows beside the paper's clipping with more."""
    heads = (REAL, PUBLIC, "log-probability", "paper", "difference", "log-probability less public only")
    yield f"| data | epsilon | rows | texts | {' | '.join(heads)} |"
    yield "|" + 10 * " --- |"
    for fewer in (line for line in lines if "less_paper" in line):
        same = [line for line in lines if line["data"] == fewer["data"]]
        of = {line["system"]: line for line in same if line["epsilon"] in (None, fewer["epsilon"])}
        cells = [fewer["data"], fewer["epsilon"], f"{fewer['rows']}, {of[PAPER]['rows']}"]
        cells.append(f"{fewer['compared']}, {fewer['real_texts']} real")
        cells += [_written(line, "mauve") for line in (of[REAL], of[PUBLIC], fewer, of[PAPER])]
        cells += [_written(fewer, "less_paper"), _written(fewer, "more_than_public")]
        yield f"| {' | '.join(cells)} |"


def _written(line: Mapping[str, Any], name: str) -> str:
    return "" if line.get(name) is None else written(line[name], 2)


def _place(cell: Cell) -> tuple[Any, ...]:
    return list(MECHANISMS).index(cell.system), Decimal(cell.epsilon or 0), cell.references


def _as_text(model: LanguageModel, text: str, tokens: int) -> dict[str, Any]:
    count = len(reference_tokens(model.tokenizer, text, tokens))
    return {"text": text, "tokens": count, "complete": count < tokens}


if __name__ == "__main__":
    main()
