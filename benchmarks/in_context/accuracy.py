"""In-context learning from released demonstrations: accuracy by data set, source of demonstrations, and their number.

    python -m benchmarks.in_context.accuracy --out results.jsonl  # zero-shot and real demonstrations
    python -m benchmarks.in_context.accuracy --out results.jsonl --pools pools.jsonl --released   # and released ones
    python -m benchmarks.in_context.accuracy --out results.jsonl --table               # print what is there
    python -m benchmarks.in_context.accuracy --out results.jsonl --shuffled            # the control: shuffled labels
    python -m benchmarks.in_context.accuracy --out docs/figures/in_context_controls.jsonl \
        --pools docs/figures/in_context_pools.jsonl --released --shuffled-corpus --releases 3 \
        --mechanisms private_icl --epsilons 8 --tasks agnews --shots --released-shots 4 --items 200
    the same without --shuffled-corpus, with --mechanisms few_shot_generation --releases 1
    the same with --tasks dbpedia14 mit_movies_director --shots 4 --shuffled, without --pools, --released and so on

Every cell is appended to the file when it is measured, and one that is there already is not measured again; so a
run that was stopped goes on. Test items are the last ones of a set, demonstrations come from all others; both by
public rules, the same for every column. Released demonstrations are made by the real generators from public data;
`--pools` keeps them, so that more shots or items need no new release, and `--make` makes them and asks nothing.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.controls import permuted
from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there
from benchmarks.in_context.demonstrations import (
    PUBLIC_ONLY,
    Sizes,
    kept_pool,
    public_labels,
    public_only,
    released,
    store,
)
from models_db.errors import AlmonerError
from tasks.corpus.store import Corpus
from tasks.evaluation.in_context.demonstrations import SHOTS, TASKS, Example, Task, read_examples
from tasks.evaluation.in_context.measure import ZERO_SHOT, ZERO_SHOT_NAMED, InContextTest
from tasks.evaluation.in_context.result import InContextResult
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load

MODEL = "smollm2-135m-instruct"
REAL, SHUFFLED = "real", "real, labels shuffled"
OF_SHUFFLED = ", of shuffled labels"
"""What the column of a release is called whose corpus has every text under another's label."""
TITLES = {
    "agnews": "AG News",
    "trec": "TREC",
    "dbpedia14": "DBpedia",
    "mit_movies_genre": "MIT-G",
    "mit_movies_director": "MIT-D",
}


@dataclass(frozen=True)
class Set:
    """A public data set, split: what stands for the private texts, and what is asked about."""

    task: Task
    private: list[Example]
    items: tuple[Example, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--shots", nargs="*", type=int, default=list(SHOTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--text-tokens", type=int, default=64)
    parser.add_argument("--shuffled", action="store_true", help="also real demonstrations with shuffled labels")
    parser.add_argument("--released", action="store_true", help="also released and public-only demonstrations")
    parser.add_argument("--released-shots", nargs="+", type=int, default=list(SHOTS))
    parser.add_argument("--pools", type=Path, help="JSON lines, one for each pool of released demonstrations")
    parser.add_argument("--releases", type=int, default=1, help="releases, and public pools, of each kind")
    parser.add_argument("--shuffled-corpus", action="store_true", help="also releases of a corpus with shuffled labels")
    parser.add_argument("--make", action="store_true", help="only make the pools that are missing")
    parser.add_argument("--mechanisms", nargs="+", default=["invisible_ink", "private_prediction", "private_icl"])
    parser.add_argument("--epsilons", nargs="+", default=["1", "8"])
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--references", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--precision", default="bfloat16", help="of drawing; answers are always read in float32")
    parser.add_argument("--demonstrations", nargs="*", default=[], metavar="NAME=TASK=FILE", help="a release's texts")
    parser.add_argument("--full", action="store_true", help="500 items, 5 seeds, 48 texts of 31 references")
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.items, arguments.seeds = 500, 5
        arguments.samples, arguments.references = 48, 31
    if arguments.make:
        make_pools(arguments)
        return
    if not arguments.table:
        measure(arguments)
    results = read_lines(arguments.out)
    for kind in ("calibrated", "raw"):
        print("\n".join(["", f"{kind}; % right, 95 % interval; † not above chance:", "", *table(results, kind)]))


def measure(arguments: argparse.Namespace) -> None:
    """Append every cell that is missing."""
    model = load(arguments.model, arguments.device)
    there = _there(arguments.out)
    for name in arguments.tasks:
        with tempfile.TemporaryDirectory() as folder:
            for column, shots, run in cells(model, split(arguments, TASKS[name]), Path(folder), arguments):
                if (name, column, shots) not in there:
                    _append(arguments.out, name, column, shots, run)


def make_pools(arguments: argparse.Namespace) -> None:
    """Make every pool that `--pools` does not have yet."""
    for name in arguments.tasks:
        with tempfile.TemporaryDirectory() as folder:
            for column, pool in pools(split(arguments, TASKS[name]), Path(folder), arguments).items():
                print(name, column, len(pool()), flush=True)


def _append(out: Path, name: str, column: str, shots: int, run: Callable[[], InContextResult]) -> None:
    try:
        found: dict[str, Any] = run().to_json()
    except AlmonerError as refused:
        found = {"task": name, "column": column, "shots": shots, "refused": refused.code}
    append_lines(out, [found])
    print(name, column, shots, found.get("refused") or found["calibrated"], flush=True)


def split(arguments: argparse.Namespace, task: Task) -> Set:
    """The last `items` records are asked about; all others stand for the private data."""
    found = read_examples(task, arguments.data / f"{task.name}.jsonl")
    return Set(task, found[: -arguments.items], tuple(found[-arguments.items :]))


Cell = tuple[str, int, Callable[[], InContextResult]]


def cells(model: LanguageModel, data: Set, folder: Path, arguments: argparse.Namespace) -> Iterator[Cell]:
    """Column, shots and how to measure it, cheapest columns first; `folder` holds what generators read."""
    test = InContextTest(model, data.task, data.items, max_text_tokens=arguments.text_tokens)
    seeds = range(arguments.seeds)

    def few(column: str, pool: Callable[[], Sequence[Example]], shots: int) -> Cell:
        return column, shots, lambda: test.few_shot(column, pool(), shots, seeds)

    yield ZERO_SHOT, 0, test.zero_shot
    if data.task.naming:
        yield ZERO_SHOT_NAMED, 0, test.zero_shot_named
    for shots in arguments.shots:
        yield few(REAL, lambda: data.private, shots)
        if arguments.shuffled:
            yield few(SHUFFLED, lambda: with_shuffled_labels(data.private), shots)
    for name, task, file in (given.split("=", 2) for given in arguments.demonstrations):
        if task == data.task.name:
            yield from (
                few(name, partial(read_examples, data.task, Path(file)), shots) for shots in arguments.released_shots
            )
    if arguments.released:
        for column, pool in pools(data, folder, arguments).items():
            for shots in arguments.released_shots:
                yield few(column, pool, shots)


def with_shuffled_labels(examples: Sequence[Example]) -> list[Example]:
    """The control: the same texts with each other's labels, so that only the form of demonstrations is left."""
    labels = permuted([example.label for example in examples], seed=0)
    return [replace(example, label=label) for example, label in zip(examples, labels, strict=True)]


def pools(data: Set, folder: Path, arguments: argparse.Namespace) -> dict[str, Callable[[], Sequence[Example]]]:
    """Released demonstrations by column, each made when it is first asked for and once."""
    sizes = Sizes(
        max(arguments.samples, len(public_labels(data.task))),
        arguments.references,
        arguments.tokens,
        arguments.text_tokens,
        arguments.temperature,
        arguments.precision,
    )
    engine = cache(lambda: Engine(load(arguments.model, arguments.device, arguments.precision)))
    corpora = {"": cache(lambda: store(data.task, data.private, _made(folder / "real")))}
    if arguments.shuffled_corpus:
        shuffled = with_shuffled_labels(data.private)
        corpora[OF_SHUFFLED] = cache(lambda: store(data.task, shuffled, _made(folder / "shuffled")))
    units = len(data.private)
    makers: dict[str, Callable[[], list[Example]]] = {
        PUBLIC_ONLY: lambda: public_only(engine(), data.task, corpora[""](), sizes)
    }
    for mechanism in arguments.mechanisms:
        for epsilon in arguments.epsilons:
            for suffix, corpus in corpora.items():

                def make(
                    mechanism: str = mechanism, epsilon: str = epsilon, corpus: Callable[[], Corpus] = corpus
                ) -> list[Example]:
                    return released(engine(), data.task, corpus(), units, mechanism, epsilon, sizes)

                makers[f"{mechanism}, epsilon {epsilon}{suffix}"] = make
    columns = {
        (f"{column}, release {number}" if number > 1 else column): make
        for column, make in makers.items()
        for number in range(1, arguments.releases + 1)
    }
    return {
        column: cache(partial(kept_pool, arguments.pools, data.task, column, sizes, make))
        for column, make in columns.items()
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def table(results: Sequence[dict[str, Any]], kind: str) -> Iterator[str]:
    """Yield Markdown: a row for each source and number of demonstrations, a column for each task.

    Args:
        kind: `calibrated`, or `raw` for answers as the model gives them by itself.
    """
    names = [name for name in TASKS if any(result["task"] == name for result in results)]
    chances = {r["task"]: f"{_percent(r['chance'])} ({r['tested']} items)" for r in results if "chance" in r}
    yield f"| demonstrations | k | {' | '.join(TITLES[name] for name in names)} |"
    yield f"| --- | --- |{' --- |' * len(names)}"
    for column, shots in sorted({(r["column"], r["shots"]) for r in results}, key=_place):
        found = {r["task"]: r for r in results if (r["column"], r["shots"]) == (column, shots)}
        shown = [_cell(found[name], kind) if name in found else "" for name in names]
        yield f"| {column.replace('_', ' ')} | {shots} | {' | '.join(shown)} |"
    yield f"| the best constant answer |  | {' | '.join(chances.get(name, '') for name in names)} |"


def _place(row: tuple[str, int]) -> tuple[int, str, int]:
    known = [ZERO_SHOT, ZERO_SHOT_NAMED, REAL, SHUFFLED, PUBLIC_ONLY]
    return known.index(row[0]) if row[0] in known else len(known), *row


def _cell(result: dict[str, Any], kind: str) -> str:
    if "refused" in result:
        return str(result["refused"])
    found = result[kind]
    low, high = found["over_seeds"] or found["over_items"]
    shown = f"{_percent(found['mean'])} [{_percent(low)}, {_percent(high)}]"
    return shown if found["above_chance"] else f"{shown} †"


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f}"


def _there(out: Path) -> set[tuple[str, str, int]]:
    return {(result["task"], result["column"], result["shots"]) for result in read_lines_if_there(out)}


if __name__ == "__main__":
    main()
