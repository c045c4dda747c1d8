"""Texts of the real systems, made at a bench in memory from public data, and how they compare with the real ones.

    python -m benchmarks.utility.sampled --out sampled.jsonl            # 48 texts of 32 tokens a cell, 7 references
    python -m benchmarks.utility.sampled --out sampled.jsonl --full     # 500 texts of 200 tokens: days on two cores
    python -m benchmarks.utility.sampled --out sampled.jsonl --table    # figures of what is there

Every cell is appended with its texts when it is made, and one that is there already is not made again. Cells that
differ in their number of samples alone are one line of the table; a second release splits the units anew. The data
are public, which is why a bench without a ledger may arm nothing. The table needs the registry's embedder
(`almoner models pull all-minilm-l6-v2`).
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
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.utility.texts import DESCRIPTIONS, SEED, read_texts
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus, open_corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.log_likelihood import log_likelihoods
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import reference_tokens
from tasks.pricing.registry import SYSTEMS
from tasks.text.words import words
from tasks.values.plan import PlanInputs

DELTA = Decimal("1e-5")
UNPROTECTED = ("one document, no privacy", "public only")
UNREAD = 4
"""Every so manieth text of a data set is read by no system: those are the real texts to compare with."""
MECHANISMS = {
    "public only": ("public_only", {}),
    "one document, no privacy": ("non_private", {}),
    "InvisibleInk, log-probability": ("invisible_ink", {"clipping": "log_probability", "sampler": "opendp"}),
    "InvisibleInk, paper": ("invisible_ink", {"clipping": "logit", "sampler": "opendp"}),
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
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS))
    parser.add_argument("--systems", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS))
    parser.add_argument("--epsilons", nargs="+", default=["10", "3", "1", "5"])
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--reference-tokens", type=int, default=64, help="of a private text, what a row reads")
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16", "int8"))
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--mauve-texts", type=int, default=48, help="of how many texts the table's MAUVE is")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.samples, arguments.tokens, arguments.reference_tokens = 500, 200, 128
    model = load(arguments.model, arguments.device, arguments.precision)
    if not arguments.table:
        measure(model, arguments)
    print_table(model, read_cells([arguments.out]), arguments.mauve_texts)


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


def measure(model: LanguageModel, arguments: argparse.Namespace) -> None:
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


def print_table(model: LanguageModel, found: Mapping[Cell, Sequence[dict[str, Any]]], count: int) -> None:
    """Markdown, a table for each data set, real texts first; MAUVE of `count` texts, where a line has so many."""
    from benchmarks.utility.mauve import embedder  # only a table needs it

    embed = embedder()
    for data, tokens in dict.fromkeys((cell.data, cell.tokens) for cell in found):
        mine = {cell: texts for cell, texts in found.items() if (cell.data, cell.tokens) == (data, tokens)}
        others, real = real_texts(model.tokenizer, data, count, tokens)
        print(f"\n{data}: texts of at most {tokens} tokens; MAUVE of {count} against {len(real)} real ones\n")
        print("| texts | epsilon | rows | number | MAUVE | perplexity | distinct-2 | tokens | complete |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        few = min(map(len, mine.values()))
        same = [_as_text(model, text, tokens) for text in others]
        print(f"| real, others | - | - | {_figures(model, same, embed, few, count, real)} |")
        for cell in sorted(mine, key=_place):
            shown = [cell.system, cell.epsilon or "-", str(cell.references) if cell.epsilon else "-"]
            shown.append(_figures(model, mine[cell], embed, few, count, real))
            print(f"| {' | '.join(shown)} |", flush=True)


def _place(cell: Cell) -> tuple[Any, ...]:
    return list(MECHANISMS).index(cell.system), Decimal(cell.epsilon or 0), cell.references


def _figures(
    model: LanguageModel, texts: Sequence[dict[str, Any]], embed: Any, few: int, count: int, real: Sequence[str]
) -> str:
    """distinct-2 is of the first `few` texts of every line: it falls with their number."""
    from benchmarks.utility.mauve import measured_together

    found, written_out = figures(model, texts), [text["text"] for text in texts]
    enough = len(texts) >= count
    mauve = written(measured_together(embed, {"": written_out[:count]}, real)[""].shown, 2) if enough else ""
    shown = [str(len(texts)), mauve, written(found["perplexity"], 1), f"{distinct_2(written_out[:few]):.2f}"]
    return " | ".join([*shown, written(found["tokens"], 0), f"{found['complete'][0]:.0%}"])


def _as_text(model: LanguageModel, text: str, tokens: int) -> dict[str, Any]:
    count = len(reference_tokens(model.tokenizer, text, tokens))
    return {"text": text, "tokens": count, "complete": count < tokens}


if __name__ == "__main__":
    main()
