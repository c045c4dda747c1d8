"""Film records as JSON, with and without the constraint: parse rate, schema validity, number raw, with intervals.

    python -m benchmarks.records --out results.jsonl              # 16 records a cell, 7 references, 96 tokens
    python -m benchmarks.records --out results.jsonl --full       # 200 records a cell, 128 tokens: hours on two cores
    python -m benchmarks.records --out results.jsonl --table      # print what is there
    python -m benchmarks.records --out results.jsonl --table --content docs/figures/records_content.jsonl

`--content` writes what the constrained records of each cell have of the films, record by record, beside their texts:
the share of their genres, and of their names, that some film has, and whether their title is a film's and their year
another one than that of the prompt's example. `public_only`, which reads no film, is the control.

Every cell is appended with its texts when it is measured, and one that is there already is not measured again. The
figures come from the texts alone, by the metric `records`. The records stand for private ones and are public
(Wikipedia), which is why a bench without a ledger may arm nothing.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import difference_of_means, written
from benchmarks.common.json_lines import DATA, append_lines, write_lines
from benchmarks.common.open_bench import KEY, open_bench
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.store import Corpus, open_corpus
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.lexical import records
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import PlanInputs

DELTA = Decimal("1e-6")
FIELDS = ("title", "year", "genres", "cast")
MOST_CAST = 4

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 80},
        "year": {"type": "integer", "minimum": 1888, "maximum": 2029},
        "genres": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 20}, "maxItems": 4},
        "cast": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 40}, "maxItems": MOST_CAST},
    },
    "required": list(FIELDS),
}
DESCRIPTION = (
    "A record of one film as a JSON object on one line, with the keys title (text), year (number), genres (list of"
    ' texts) and cast (list of names), in this form: {"title": "...", "year": 1970, "genres": ["..."], "cast": ["..."]}'
)


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    mechanism: str
    epsilon: str | None
    constrained: bool
    samples: int
    tokens: int
    references: int
    temperature: str
    model: str

    def parameters(self) -> dict[str, Any]:
        """The request's parameters; see docs/records.md."""
        return {
            "samples": self.samples,
            "references": self.references,
            "max_new_tokens": self.tokens,
            "max_reference_tokens": 96,
            "temperature": self.temperature,
            "top_k": 100,
            "schema": SCHEMA,
            "constrained": self.constrained,
        }


@dataclass(frozen=True)
class Text:
    """A generated text, as it is kept."""

    text: str
    tokens: int
    complete: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--data", type=Path, default=DATA / "wiki_movies.jsonl")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--epsilons", nargs="+", default=["4", "10"])
    parser.add_argument("--mechanisms", nargs="+", default=["public_only", "invisible_ink"])
    parser.add_argument("--forms", nargs="+", default=["free", "constrained"], choices=["free", "constrained"])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--content", type=Path, help="where to write the content of the constrained records")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.samples, arguments.tokens = 200, 128
    if not arguments.table:
        measure(arguments)
    rows = [json.loads(line) for line in arguments.out.open(encoding="utf-8")]
    print("\n".join(table(rows)))
    if arguments.content:
        films = [json.loads(line) for line in arguments.data.open(encoding="utf-8")]
        found = [row | {"content": content(row["texts"], films)} for row in rows if row["cell"]["constrained"]]
        write_lines(arguments.content, found)


CONTENT = {
    "genres": "genres that a film has",
    "cast": "names that a film has",
    "title": "titles of films",
    "year": "years other than the example's",
}
EXAMPLE_YEAR = 1970
"""The year in the public description, which the model likes to repeat."""


def content(texts: Sequence[Mapping[str, Any]], films: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Each record's shares of CONTENT; 0 for an empty list. A text that is no record is left out."""
    known = {name: {str(each).casefold() for film in films for each in film[name]} for name in ("genres", "cast")}
    titles = {film["title"].casefold() for film in films}
    found = []
    for text in texts:
        try:
            record = json.loads(text["text"])
        except ValueError:
            continue
        shares = {
            name: sum(each.casefold() in of for each in record[name]) / max(1, len(record[name]))
            for name, of in known.items()
        }
        found.append(
            shares
            | {"title": float(record["title"].casefold() in titles), "year": float(record["year"] != EXAMPLE_YEAR)}
        )
    return found


def content_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each figure: shares of the control and of each other cell, and the difference with its interval."""
    control, *others = sorted(rows, key=lambda row: row["cell"]["epsilon"] is not None)
    yield "| | system | epsilon | n | share | the control's, n | more than the control |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in others:
        for name, title in CONTENT.items():
            mine, theirs = ([one[name] for one in each["content"]] for each in (row, control))
            more = written(difference_of_means(mine, theirs, seed=0), 2)
            cell = row["cell"]
            yield (
                f"| {title} | `{cell['mechanism']}` | {cell['epsilon']} | {len(mine)} | {fmean(mine):.2f}"
                f" | {fmean(theirs):.2f}, {len(theirs)} | {more} |"
            )


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    sizes = (arguments.samples, arguments.tokens, arguments.references, arguments.temperature, arguments.model)
    for mechanism in arguments.mechanisms:
        for epsilon in arguments.epsilons if SYSTEMS[mechanism].charges else [None]:
            for form in arguments.forms:
                yield Cell(mechanism, epsilon, form == "constrained", *sizes)


def measure(arguments: argparse.Namespace) -> None:
    """Append every cell that is missing."""
    there = [json.loads(line)["cell"] for line in arguments.out.open()] if arguments.out.exists() else []
    engine = Engine(load(arguments.model, arguments.device))
    with tempfile.TemporaryDirectory() as folder:
        corpus, units = store(arguments.data, Path(folder))
        for cell in cells(arguments):
            if asdict(cell) in there:
                continue
            started = time.process_time()
            texts = generate(engine, corpus, units, cell)
            row = {"cell": asdict(cell), "texts": list(map(asdict, texts)), "seconds": time.process_time() - started}
            append_lines(arguments.out, [row])
            print(f"{cell}: {records(EvaluationInput(texts, schema=SCHEMA)).line}", flush=True)


def store(data: Path, folder: Path) -> tuple[Corpus, int]:
    """The films as an ingested version, each a unit whose text is its record."""
    home, source = ProjectHome(folder / "home"), folder / "films.jsonl"
    home.create()
    films = [json.loads(line) for line in data.open(encoding="utf-8")]
    with source.open("w", encoding="utf-8") as lines:
        for film in films:
            film["cast"] = film["cast"][:MOST_CAST]
            text = json.dumps({name: film[name] for name in FIELDS}, ensure_ascii=False)
            lines.write(json.dumps({"id": film["id"], "unit": film["id"], "text": text}) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY).uid), len(films)


def generate(engine: Engine, corpus: Corpus, units: int, cell: Cell) -> list[Text]:
    """The texts of one release."""
    system = SYSTEMS[cell.mechanism]
    fields = {field.alias or name for name, field in system.parameters.model_fields.items()}
    given = {name: value for name, value in cell.parameters().items() if name in fields}
    parameters = system.parameters.model_validate(given)
    amount = None if cell.epsilon is None else release_amount(Decimal(cell.epsilon), DELTA)
    plan = system.plan(PlanInputs(amount, parameters, 1, units, governed=system.charges))
    bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTION)))
    return [Text(text.text, text.tokens, text.complete) for text in system.generate(plan, parameters, bench).texts]


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield counts and shares; the interval is Wilson's, 95 %. Cells that differ in their number of samples are one."""
    yield "| mechanism | epsilon | constrained | number raw | complete | parse | valid | mean tokens |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    settings: dict[Cell, list[Text]] = defaultdict(list)
    for row in rows:
        settings[Cell(**row["cell"] | {"samples": 0})] += [Text(**text) for text in row["texts"]]
    for cell, texts in sorted(settings.items(), key=lambda setting: _place(setting[0])):
        found = records(EvaluationInput(texts, schema=SCHEMA)).values
        shown = [f"`{cell.mechanism}`", cell.epsilon or "-", "yes" if cell.constrained else "no", found["raw"]]
        shown += [found["complete"], *(_share(found, name) for name in ("parsed", "valid"))]
        shown.append(f"{sum(text.tokens for text in texts) / max(1, len(texts)):.0f}")
        yield "| " + " | ".join(map(str, shown)) + " |"


def _place(cell: Cell) -> tuple[bool, str, bool, float]:
    return cell.epsilon is not None, cell.mechanism, cell.constrained, float(cell.epsilon or 0)


def _share(found: Any, name: str) -> str:
    percent = [f"{100 * float(found[f'{name}_{figure}']):.0f}" for figure in ("share", "low", "high")]
    return f"{found[name]}: {percent[0]} % ({percent[1]} - {percent[2]})"


if __name__ == "__main__":
    main()
