"""Time per summary against the number of documents, for each way of summarising, in one run.

    python -m benchmarks.summaries.cells --train            # the adapters, once
    python -m benchmarks.summaries.time_per_summary  # 10, 30 and 100 documents, 50 tokens, best of 3 rounds

All ways alternate in one process: in each round every way writes one summary of every number of documents, with the
same documents, sizes and number of tokens (no token ends a text). The best round of each counts. Processor time is
what to compare on a machine that does other things as well.

    reading      the same release with one token: all documents are read, next to nothing is drawn
    a token      what is left of the time, by token: what each further token costs
    read anew    token-level as Algorithm 1 of "Differentially Private Summarization with Large Language Models" is
                 written, n model calls for each token: no keys and values are kept. Run where there are few documents,
                 elsewhere T times the reading

`--json FILE` keeps every measurement.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.json_lines import DATA
from benchmarks.summaries.cells import MODEL, PRECISION, adapter, release
from benchmarks.summaries.data import Product, products, store
from benchmarks.summaries.systems import ADAPTERS, BY_NAME, DELTA, TOKENS
from tasks.accounting.zcdp import release_amount
from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.loading import load
from tasks.inference.prompts.render import PromptPieces, prompts_for, reference_tokens
from tasks.mechanisms.core.rng import OperatingSystemRandom
from tasks.mechanisms.vectors.noisy_mean import calibrate_mean
from tasks.summarization.group_means import noisy_means
from tasks.summarization.token_level import CLIP_NORMS

WAYS = ("token_level", "ink", "one_shot", "one_shot_4", "one_shot_paper", "non_private")
DOCUMENTS = (10, 30, 100)
EPSILON = "10"
ANEW = "read_anew"
MOST_ANEW = 10
"""Documents with which every token reads all of them: it takes half an hour with a hundred."""
LONGEST_PROMPT = 7000
"""Tokens of documents in one prompt: what the model's positions leave (`non_private` reads all of them at once)."""


@dataclass(frozen=True)
class Measured:
    """One release of one summary."""

    way: str
    documents: int
    tokens: int
    round: int
    work: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--documents", nargs="+", type=int, default=list(DOCUMENTS))
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="JSON lines, one for each release")
    arguments = parser.parse_args()
    for name in {BY_NAME[way].adapter for way in arguments.only} & ADAPTERS.keys():
        adapter(str(name), arguments)
    found = measure(arguments)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(asdict(each)) + "\n" for each in found), encoding="utf-8")
    print_tables(found, arguments)


def measure(arguments: argparse.Namespace) -> list[Measured]:
    """Every way with every number of documents, alternating, after one release of each that is not counted."""
    model = replace(load(arguments.model, arguments.device, PRECISION), stop_tokens=())
    engine, found = Engine(model), []
    with tempfile.TemporaryDirectory() as folder:
        some = [pooled(arguments.data, count) for count in arguments.documents]
        corpora = [store([product], Path(folder) / str(len(product.reviews))) for product in some]
        for way in arguments.only:
            timed(engine, corpora[0], some[0], way, 1, 0)
        for number, (corpus, product), way in itertools.product(
            range(1, arguments.rounds + 1), zip(corpora, some, strict=True), arguments.only
        ):
            for tokens in (1, arguments.tokens):
                found.append(timed(engine, corpus, product, way, tokens, number))
                print(found[-1], flush=True)
            if way == "token_level" and len(product.reviews) <= MOST_ANEW:
                found.append(timed_anew(engine, product, arguments.tokens, number))
                print(found[-1], flush=True)
    return found


def pooled(data: Path, count: int) -> Product:
    """So many public reviews as if they were of one product."""
    known = products(data, "public")
    reviews = [review for product in known for review in product.reviews]
    if count > len(reviews):
        raise SystemExit(f"there are {len(reviews)} public reviews")
    return replace(known[0], reviews=tuple(reviews[:count]))


def timed(engine: Engine, corpus: Corpus, product: Product, way: str, tokens: int, number: int) -> Measured:
    """One release of one summary; what it writes is not looked at."""
    count = len(product.reviews)
    parameters: dict[str, Any] = {**BY_NAME[way].parameters, "max_new_tokens": tokens}
    if way == "non_private":
        parameters["max_reference_tokens"] = LONGEST_PROMPT
    system = replace(BY_NAME[way], parameters=parameters)
    epsilon = None if system.epsilons == (None,) else EPSILON
    work, started = time.process_time(), time.monotonic()
    made = release(engine, corpus, system, epsilon, [product.group], count)
    work, seconds = time.process_time() - work, time.monotonic() - started
    if made.texts[0].tokens != tokens:
        raise AssertionError(f"{way} wrote {made.texts[0].tokens} tokens, not {tokens}")
    return Measured(way, count, tokens, number, work, seconds)


def timed_anew(engine: Engine, product: Product, tokens: int, number: int) -> Measured:
    """A token-level summary whose every token reads all prompts; the draw itself is left out."""
    system, count = BY_NAME["token_level"], len(product.reviews)
    work, started = time.process_time(), time.monotonic()
    wanted = system.request([product.group], count)
    rho = release_amount(Decimal(EPSILON), DELTA).rho
    mean = calibrate_mean(rho, tokens, CLIP_NORMS["none"])
    model, limit = engine.model, wanted.max_reference_tokens
    public, private = prompts_for(model.tokenizer, system.prompt, product.group.shown)
    rows = [[reference_tokens(model.tokenizer, text, limit) for text in product.reviews]]
    drawn: tuple[int, ...] = ()
    for _ in range(tokens):
        pieces = PromptPieces(private.prefix, private.suffix + drawn)
        sizes = Sizes.of([public], [pieces], limit, 1, count)
        (states,) = last_hidden(engine, [pieces], rows, sizes)
        found = noisy_means(mean, states.values, states, 1, count, OperatingSystemRandom())
        drawn += (int(model.logits(found).argmax()),)
    return Measured(ANEW, count, tokens, number, time.process_time() - work, time.monotonic() - started)


def print_tables(found: Sequence[Measured], arguments: argparse.Namespace) -> None:
    """Markdown: processor and wall seconds a summary, and what one-shot saves."""
    best: dict[tuple[str, int, int], tuple[float, float]] = {}
    rounds = defaultdict(list)
    for each in found:
        rounds[each.way, each.documents, each.tokens].append(each)
    for key, several in rounds.items():
        best[key] = min(each.work for each in several), min(each.seconds for each in several)
    for number, what in enumerate(("processor", "wall")):
        print(f"\nSeconds a summary of {arguments.tokens} tokens, {what}, best of {arguments.rounds}:\n")
        parts = ("in all", "reading", "a token")
        print("| | " + " | ".join(f"{n} documents: {part}" for n in arguments.documents for part in parts) + " |")
        print("| --- |" + " --- |" * (3 * len(arguments.documents)))
        for way in arguments.only:
            cells = []
            for count in arguments.documents:
                whole, reading = best[way, count, arguments.tokens][number], best[way, count, 1][number]
                cells += [f"{whole:.2f}", f"{reading:.2f}", f"{(whole - reading) / (arguments.tokens - 1):.4f}"]
            print(f"| {BY_NAME[way].title} | " + " | ".join(cells) + " |")
    if {"one_shot", "token_level"} <= set(arguments.only):
        _print_ratios(best, arguments)


def _print_ratios(best: dict[tuple[str, int, int], tuple[float, float]], arguments: argparse.Namespace) -> None:
    tokens = arguments.tokens
    print(f"\nProcessor time, by that of one-shot (T / 4 = {tokens / 4:g}):\n")
    print("| documents | token-level, in all | behind the reading | read anew for each token |")
    print("| --- | --- | --- | --- |")
    for count in arguments.documents:
        whole, reading = best["token_level", count, tokens][0], best["token_level", count, 1][0]
        ours, first = best["one_shot", count, tokens][0], best["one_shot", count, 1][0]
        later = (whole - reading) / max(ours - first, 1e-9)
        run = best.get((ANEW, count, tokens))
        anew = f"{run[0] / ours:.1f}" if run else f"{tokens * reading / ours:.1f} (computed)"
        print(f"| {count} | {whole / ours:.2f} | {later:.2f} | {anew} |")


if __name__ == "__main__":
    main()
