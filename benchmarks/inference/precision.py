"""What fewer bits cost in quality, and what they save in time.

    python -m benchmarks.inference.precision

Quality, against float32 on the same public texts: the divergence KL(float32 || other) of the next token (nats, mean
over all tokens, with a 95 % interval over texts), its worst token, how often the likeliest token is the same, and
perplexity. Time: single passes of the engine's shapes, all precisions in turn in one process, the least of all rounds;
processor time is the figure to compare where other work runs beside it.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor

from benchmarks.common.json_lines import DATA
from models_db.errors import EnvironmentProblem
from tasks.corpus.demo_clinic import demo_notes
from tasks.inference.catalogue.model_check import PRECISIONS
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import reference_tokens

MODEL = "smollm2-135m-instruct"
TEXTS = DATA / "mts_dialog.jsonl"
# Rows, new tokens of each, columns before them: private rows of 4 and 8 generations, public rows, reading references.
SHAPES = ((28, 1, 256), (64, 1, 256), (8, 1, 96), (4, 32, 64))


@dataclass(frozen=True)
class Text:
    """One text under one model.

    Attributes:
        scores: float32 [tokens - 1, V], log-probabilities of the next token.
        following: int64 [tokens - 1], what came.
    """

    scores: Tensor
    following: Tensor

    @property
    def loss(self) -> float:
        """The sum of negative log-probabilities of what came, in nats."""
        return -float(self.scores.gather(1, self.following[:, None]).double().sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, default=TEXTS, help="JSONL with a `text` field")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=160, help="the most that is read of a text")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    models = loaded(arguments.device)
    quality(models, tokens_of(models["float32"], arguments))
    times(models, arguments.rounds)


def loaded(device: str) -> dict[str, LanguageModel]:
    """The model at every precision that this device has."""
    models = {}
    for precision in PRECISIONS:
        try:
            models[precision] = load(MODEL, device, precision)
        except EnvironmentProblem as problem:
            print(f"{precision} is left out: {problem.message}")
    return models


def tokens_of(model: LanguageModel, arguments: argparse.Namespace) -> list[tuple[int, ...]]:
    """Real public texts where they are, demo notes otherwise."""
    if arguments.texts.exists():
        texts = [json.loads(line)["text"] for line in arguments.texts.open(encoding="utf-8")]
    else:
        print(f"{arguments.texts} is missing: demo notes instead")
        texts = [note["text"] for note in demo_notes()]
    found = (reference_tokens(model.tokenizer, text, arguments.tokens) for text in texts)
    return list(islice((tokens for tokens in found if len(tokens) > 1), arguments.count))


@torch.inference_mode()
def read(model: LanguageModel, tokens: Sequence[int]) -> Text:
    """The text as the engine reads it, alone."""
    hidden = RowBatch(model, 1, len(tokens)).read_all([tokens], len(tokens))
    scores = torch.log_softmax(model.logits(hidden[0, :-1]), dim=-1)
    return Text(scores, torch.tensor(tokens[1:], device=model.device))


@torch.inference_mode()
def quality(models: dict[str, LanguageModel], texts: Sequence[Sequence[int]]) -> None:
    names = list(models)
    losses: dict[str, float] = dict.fromkeys(names, 0.0)
    divergences: dict[str, list[Tensor]] = {name: [] for name in names}
    same: dict[str, list[Tensor]] = {name: [] for name in names}
    for tokens in texts:
        own = read(models["float32"], tokens)
        for name in names:
            ours = own if name == "float32" else read(models[name], tokens)
            losses[name] += ours.loss
            divergences[name].append((own.scores.exp() * (own.scores - ours.scores)).sum(1))
            same[name].append((own.scores.argmax(1) == ours.scores.argmax(1)).float())
    count = sum(len(tokens) - 1 for tokens in texts)
    print(f"\n{MODEL}, {models['float32'].device}: {len(texts)} texts, {count} tokens\n")
    print(f"{'':12}{'KL, nats':>12}{'+/-':>10}{'worst':>10}{'same top-1':>12}{'perplexity':>12}{'change':>10}")
    base = math.exp(losses["float32"] / count)
    for name in names:
        every, per_text = torch.cat(divergences[name]), [float(part.mean()) for part in divergences[name]]
        error = 1.96 * statistics.stdev(per_text) / math.sqrt(len(per_text))
        perplexity = math.exp(losses[name] / count)
        print(
            f"{name:12}{float(every.mean()):>12.5f}{error:>10.5f}{float(every.max()):>10.3f}"
            f"{float(torch.cat(same[name]).mean()):>12.1%}{perplexity:>12.3f}{perplexity / base - 1:>10.2%}"
        )


def times(models: dict[str, LanguageModel], rounds: int) -> None:
    print(f"\n{'rows x tokens, after':24}" + "".join(f"{name + ' ms':>14}{'CPU ms':>10}" for name in models))
    for rows, queries, before in SHAPES:
        passes = {name: one_pass(model, rows, queries, before) for name, model in models.items()}
        least = dict.fromkeys(models, (math.inf, math.inf))
        for _ in range(rounds):
            for name, run in passes.items():
                began, worked = time.perf_counter(), time.process_time()
                run()
                spent = time.perf_counter() - began, time.process_time() - worked
                least[name] = (min(least[name][0], spent[0]), min(least[name][1], spent[1]))
        cells = "".join(f"{wall * 1000:>14.1f}{cpu * 1000:>10.1f}" for wall, cpu in least.values())
        print(f"{f'{rows} x {queries}, {before}':24}{cells}")


def one_pass(model: LanguageModel, rows: int, queries: int, before: int) -> Callable[[], None]:
    """Reading `queries` tokens of each row after `before` columns, again and again at the same place."""
    batch = RowBatch(model, rows, before + queries)
    sequences = [[(7 * row + column) % model.vocabulary for column in range(queries)] for row in range(rows)]

    @torch.inference_mode()
    def run() -> None:
        batch.filled = before
        batch.bias[:, :before] = 0.0
        hidden = batch.read(sequences, queries)
        if model.device.type == "cuda":
            hidden.sum().item()

    return run


if __name__ == "__main__":
    main()
