"""The models that are fetched on request alone, beside those that everybody has.

    python -m benchmarks.inference.models_on_request
    python -m benchmarks.inference.models_on_request --generations 8 --references 7 --tokens 32 --characters 50000

Language models: bits per character of public texts, each after the token that opens a text (float32); and row-tokens a
second of the whole decoding loop of InvisibleInk, with prompts in completion form, for both models alike. Embedders:
texts a second. A model that was not pulled is named with the command that fetches it, and left out; nothing is
downloaded here.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice, pairwise
from math import log
from pathlib import Path

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from benchmarks.inference.decoding import TEXTS, Stopwatch, Work, decode_engine
from tasks.corpus.demo.clinic import demo_notes
from tasks.generation.decoding.loop import GenerationJob
from tasks.inference.catalogue.registry import Kind, ModelNotPulled
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.log_likelihood import next_token_scores
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.loading import load, require_pulled
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import private_prompt, public_prompt, reference_tokens

LANGUAGE_MODELS = {"smollm2-135m-instruct": "<|endoftext|>", "gemma3-270m": "<bos>"}
"""With the token that came before each text when they were trained."""
EMBEDDERS = ("all-minilm-l6-v2", "all-mpnet-base-v2")
DESCRIPTION = "Short descriptions of films."
PROMPT = PromptSpec(DESCRIPTION, public=DESCRIPTION, form="completion")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=32, help="at least 2")
    parser.add_argument("--reference-tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--characters", type=int, default=50_000, help="of the texts that are scored, about")
    parser.add_argument("--texts", type=Path, default=TEXTS.with_name("wiki_movies.jsonl"), help="JSONL with `text`")
    arguments = parser.parse_args()
    texts = some_texts(arguments.texts, arguments.characters)
    print(f"{len(texts)} texts, {sum(map(len, texts)):,} characters, {torch.get_num_threads()} threads\n")
    print("| model | tokens | bits per character | row-tokens/s | row-tokens/s of processor |")
    print("| --- | --- | --- | --- | --- |")
    for name in pulled(tuple(LANGUAGE_MODELS), "causal_lm"):
        print(f"| {name} | {described(load(name, 'cpu'), texts, arguments)} |", flush=True)
    print("\n| embedder | numbers | texts/s | texts/s of processor |\n| --- | --- | --- | --- |")
    for name in pulled(EMBEDDERS, "embedder"):
        print(f"| {name} | {embedded(name, texts)} |", flush=True)


def pulled(names: Sequence[str], kind: Kind) -> list[str]:
    """Those of the models that are on this machine; the others are named with the reason."""
    here: list[str] = []
    for name in names:
        try:
            require_pulled(name, kind)
            here.append(name)
        except ModelNotPulled as problem:
            print(f"left out: {problem.message} {problem.advice}")
    return here


def some_texts(file: Path, characters: int) -> list[str]:
    """Real texts where they are, else demo notes; about so many characters of them."""
    if file.exists():
        several = [str(json.loads(line)["text"]) for line in file.open(encoding="utf-8")]
    else:
        print(f"{file} is missing: demo notes instead")
        several = [note["text"] for note in demo_notes()]
    taken: list[str] = []
    for text in several:
        if sum(map(len, taken)) >= characters:
            break
        taken.append(text)
    return taken


def described(model: LanguageModel, texts: Sequence[str], arguments: argparse.Namespace) -> str:
    """Tokens, bits per character and speed of a model."""
    tokens, bits = bits_of(model, texts)
    work, engine = work_of(model, texts, arguments), Engine(replace(model, stop_tokens=()))
    decode_engine(engine, work, Stopwatch(model.device))  # the first session checks row isolation
    runs = [decode_engine(engine, work, Stopwatch(model.device)) for _ in range(arguments.rounds)]
    drawn = arguments.generations * (1 + arguments.references) * work.tokens
    wall, processor = min(run.seconds["all"] for run in runs), min(run.cpu for run in runs)
    characters = sum(map(len, texts))
    return f"{tokens:,} | {bits / characters:.3f} | {drawn / wall:.0f} | {drawn / processor:.0f}"


@torch.inference_mode()
def bits_of(model: LanguageModel, texts: Sequence[str]) -> tuple[int, float]:
    """Number of tokens, and bits of all of them."""
    first = model.tokenizer.convert_tokens_to_ids(LANGUAGE_MODELS[model.name])
    count, nats = 0, 0.0
    for text in texts:
        tokens = [first, *reference_tokens(model.tokenizer, text, model.positions - 1)]
        hidden = RowBatch(model, 1, len(tokens)).read_all([tokens], len(tokens))[0, :-1]
        following = torch.tensor([after for _, after in pairwise(tokens)])
        nats -= float(next_token_scores(model, hidden, following).double().sum())
        count += len(tokens) - 1
    return count, nats / log(2)


def work_of(model: LanguageModel, texts: Sequence[str], arguments: argparse.Namespace) -> Work:
    """Generations of the sizes that were asked for; texts are used again where there are too few."""
    limit, several = arguments.reference_tokens, cycle(texts)
    public, private = public_prompt(model.tokenizer, PROMPT), private_prompt(model.tokenizer, PROMPT)
    jobs = []
    for _ in range(arguments.generations):
        some = islice(several, arguments.references)
        references = tuple(tuple(reference_tokens(model.tokenizer, text, limit)) for text in some)
        jobs.append(GenerationJob(public, private, references))
    sizes = Sizes.of([public], [private], limit, arguments.tokens, arguments.references)
    return Work(tuple(jobs), sizes)


def embedded(name: str, texts: Sequence[str]) -> str:
    """Width and speed of an embedder."""
    embedder = load_embedder(name, device="cpu")
    embedder(texts[:2])
    start, worked = time.perf_counter(), time.process_time()
    rows = embedder(texts)
    wall, processor = time.perf_counter() - start, time.process_time() - worked
    return f"{rows.shape[1]} | {len(texts) / wall:.1f} | {len(texts) / processor:.1f}"


if __name__ == "__main__":
    main()
