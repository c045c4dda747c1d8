"""How long the metrics of a release take: seconds and processor seconds of each, on public reviews.

    python -m benchmarks.evaluation                     # 500 texts of 200 tokens against 500 documents
    python -m benchmarks.evaluation --texts 50 --documents 50
    python -m benchmarks.evaluation --only mauve topics

Texts and documents are different reviews of one data set, joined within a label and cut, so the figures that are
printed beside the seconds are those of a release as good as the corpus itself. Loading is counted with the embedding,
which is counted once: every metric reads the same points.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.json_lines import DATA
from tasks.evaluate import scorer
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.in_context.learner import ModelLearner
from tasks.evaluation.registry import METRICS
from tasks.inference.catalogue.devices import use_threads
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import reference_tokens
from tasks.text.public_models import load_tagger

NAMES = [name for name, metric in METRICS.items() if metric.exposure != "charged" and not name.startswith("judge")]
"""Charged metrics need a budget, and judging takes as long as a model takes to write."""

CORPUS = DATA / "yelp.jsonl"


@dataclass(frozen=True)
class Text:
    """A released text."""

    text: str
    tokens: int
    label: str
    complete: bool = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    arguments = parser.parse_args()
    print(f"{use_threads()} threads, {arguments.texts} texts and {arguments.documents} documents")
    model = load(arguments.model)
    made = reviews(model, arguments.tokens)
    texts = [next(made) for _ in range(arguments.texts)]
    documents = [next(made) for _ in range(arguments.documents)]
    measure(arguments.only, subject_of(model, texts, documents))


def reviews(model: LanguageModel, tokens: int) -> Iterator[Text]:
    """Reviews of one label after the other, joined until they have `tokens` tokens, and cut there."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for line in CORPUS.open(encoding="utf-8"):
        row = json.loads(line)
        held = waiting[str(row["category"])]
        held += reference_tokens(model.tokenizer, row["text"] + "\n", 4 * tokens)
        if len(held) >= tokens:
            yield Text(model.tokenizer.decode(held[:tokens]), tokens, str(row["category"]))
            held.clear()


def subject_of(model: LanguageModel, texts: list[Text], documents: list[Text]) -> EvaluationInput:
    """A release with all that any metric needs."""
    return EvaluationInput(
        texts,
        scorer(model),
        lambda: [document.text for document in documents],
        embed=CachedEmbedder(load_embedder()),
        tag=load_tagger(),
        labelled=lambda: [(document.text, document.label) for document in documents],
        learn=ModelLearner(model),
    )


def measure(names: list[str], subject: EvaluationInput) -> None:
    """Print the seconds of each metric, and what it says."""
    embed, documents = subject.embed, subject.documents
    assert embed is not None
    assert documents is not None
    total = timed("embedding", lambda: str(embed([*(text.text for text in subject.texts), *documents()]).shape))
    for name in names:
        total += timed(name, lambda name=name: METRICS[name].compute(subject).line)
    print(f"{'all':24}{total:10.1f} s")


def timed(name: str, action: Callable[[], str]) -> float:
    """Seconds of one action; printed with the processor's."""
    wall, processor = time.perf_counter(), time.process_time()
    said = action()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{name:24}{wall:10.1f} s {processor:10.1f} s of processors   {said}", flush=True)
    return wall


if __name__ == "__main__":
    main()
