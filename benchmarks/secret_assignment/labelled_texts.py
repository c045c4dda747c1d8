"""Accuracy of a classifier of texts that are drawn by either claim of a request: the claim's worth for labelled data.

    python -m benchmarks.secret_assignment.labelled_texts --texts texts.jsonl --draw 1     # releases of each kind
    python -m benchmarks.secret_assignment.labelled_texts --texts texts.jsonl \
        --out docs/figures/secret_claim_labels.jsonl

Releases of InvisibleInk with two labels from public data, at a bench in memory: `SAMPLES` texts of
at most `TOKENS` tokens, half of each label. The units of a label are split into `BATCHES` batches, one for each text,
so N of the claim while the assignment is secret is `BATCHES`, not `SAMPLES`: a unit is in a batch of its own label. The
unconditional epsilon of such a request is the one that a price gives. Texts are appended to `--texts` when a release is
made, and one that is there already is not made again; `--out` gets figures alone.

A logistic regression on embeddings (`tasks.evaluation`, *train on synthetic, test on real*) learns the labels from the
texts of one release, and is asked about real texts that no system has read; the figure is the mean over the releases
of a kind. Intervals are 95 % bootstraps over the texts of each release and over the tested texts, `ROUNDS` times; all
kinds are tested on the same texts, so differences are paired in these. Controls: the public model alone, one document a
text without privacy, and as many real texts themselves.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.intervals import written
from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there, write_lines
from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.secret_assignment.utility import CLAIMS, UNCONDITIONAL, unconditional_epsilon
from benchmarks.utility.next_tokens import NAMES, USUAL_ROWS
from benchmarks.utility.systems import DELTA
from benchmarks.utility.texts import DESCRIPTIONS, SEED
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus, open_corpus
from tasks.evaluation.algorithms import Classes, fit_softmax
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import reference_tokens
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.text.interfaces import Points
from tasks.values.plan import PlanInputs

LABELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "mts_dialog": ("section", {"FAM/SOCHX": "family and social history", "GENHX": "history of present illness"}),
    "yelp": ("stars", {"1": "negative", "2": "negative", "4": "positive", "5": "positive"}),
}
"""Field of a label, and the label of its values; records with other values are left out."""
BATCHES, TOKENS, REFERENCE_TOKENS = 32, 32, 64
SAMPLES = 2 * BATCHES
UNTRAINED = 3
"""Every so manieth text is read by no system: those are tested."""
UNITS = BATCHES * USUAL_ROWS
"""The most units of a label, so that a batch has about as many rows as are nominal; further ones would cost time."""
MEMORY = 2**31
"""Of the engine, in bytes: how many texts are drawn at a time, whatever else the machine does."""
MODEL, PRECISION, ROUNDS = "smollm2-135m-instruct", "bfloat16", 200
SECRET, PUBLIC, SINGLE, REAL = "while secret", "public only", "one document, no privacy", "real texts"
CONTROLS = {PUBLIC: "public_only", SINGLE: "non_private"}
Floats = NDArray[np.float64]
Kind = tuple[str | None, str]
"""A claim, None of a control, and what holds it."""


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


def kinds(claims: Sequence[str] = CLAIMS) -> list[Kind]:
    """What is drawn, controls first."""
    return [(None, name) for name in CONTROLS] + [
        (claim, meaning) for claim in claims for meaning in (UNCONDITIONAL, SECRET)
    ]


def read(data: str) -> tuple[Labelled, Labelled]:
    """Texts that systems read, and those that are tested: of a corpus, those that have one of the labels."""
    field, labels = LABELS[data]
    rows = [row for row in read_lines(DATA / f"{data}.jsonl") if str(row[field]) in labels]
    private = [row for place, row in enumerate(rows) if place % UNTRAINED]
    private = [row for label in names(data) for row in _of_label(private, field, labels, label)[:UNITS]]
    unread = [row for place, row in enumerate(rows) if place % UNTRAINED == 0]

    def labelled(side: Sequence[Mapping[str, Any]]) -> Labelled:
        return Labelled(tuple(row["text"] for row in side), tuple(labels[str(row[field])] for row in side))

    return labelled(private), labelled(unread)


def _of_label(
    rows: Sequence[Mapping[str, Any]], field: str, labels: Mapping[str, str], label: str
) -> list[Mapping[str, Any]]:
    return [row for row in rows if labels[str(row[field])] == label]


def store(private: Labelled, folder: Path) -> Corpus:
    """The texts as an ingested version with labels, every text a unit."""
    home, source = ProjectHome(folder / "home"), folder / "texts.jsonl"
    home.create()
    with source.open("w", encoding="utf-8") as lines:
        for number, (text, label) in enumerate(zip(private.texts, private.labels, strict=True)):
            lines.write(json.dumps({"id": f"{number}", "unit": f"{number}", "text": text, "label": label}) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY, label_field="label").uid)


def parameters(data: str) -> dict[str, Any]:
    """The parameters of all systems' requests."""
    return {
        "samples": SAMPLES,
        "max_new_tokens": TOKENS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "temperature": "1",
        "precision": PRECISION,
        "labels": names(data),
    }


def names(data: str) -> tuple[str, ...]:
    """The labels of a data set."""
    return tuple(sorted(set(LABELS[data][1].values())))


def charged(data: str) -> dict[str, Any]:
    """The parameters of InvisibleInk's requests."""
    return parameters(data) | {"references": USUAL_ROWS, "batches": BATCHES}


def epsilon_of(data: str, kind: Kind) -> str | None:
    """The unconditional epsilon of a release."""
    claim, meaning = kind
    return claim if claim is None or meaning == UNCONDITIONAL else unconditional_epsilon(claim, charged(data))


def draw(engine: Engine, out: Path, releases: int, claims: Sequence[str]) -> None:
    """Append every release that is missing."""
    there = {(row["data"], row["claim"], row["meaning"], row["release"]) for row in read_lines_if_there(out)}
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for data in LABELS:
            (Path(folder) / data).mkdir()
            stores[data] = store(read(data)[0], Path(folder) / data)
        for number in range(releases):
            for kind in kinds(claims):
                for data, corpus in stores.items():
                    if (data, *kind, number) not in there:
                        row = release(engine, corpus, data, kind, number)
                        append_lines(out, [row])
                        print(f"{data}, {kind}, {number}: {row['seconds']} s", flush=True)


def release(engine: Engine, corpus: Corpus, data: str, kind: Kind, number: int) -> dict[str, Any]:
    """One release's texts."""
    epsilon = epsilon_of(data, kind)
    system = SYSTEMS["invisible_ink" if epsilon else CONTROLS[kind[1]]]
    wanted = system.parameters.model_validate(charged(data) if epsilon else parameters(data))
    amount = release_amount(Decimal(epsilon), DELTA) if epsilon else None
    started = time.process_time()
    plan = system.plan(PlanInputs(amount, wanted, 1, None, governed=epsilon is not None))
    if epsilon and (plan.assignment is None or plan.assignment.batches != BATCHES):
        raise AssertionError("N counts the batches of a label")
    bench = open_bench(engine, corpus, PromptSpec.of(Prompt(description=DESCRIPTIONS[data]), names(data)))
    made = system.generate(plan, wanted, replace(bench, split=BatchSplit(BatchSplit.new_key(), f"{kind} {number}")))
    return {
        "data": data,
        "claim": kind[0],
        "meaning": kind[1],
        "release": number,
        "epsilon": epsilon,
        "clip_norm": float(plan.facts["clip norm C"]) if epsilon else None,
        "texts": [[text.text, text.label] for text in made.texts],
        "seconds": round(time.process_time() - started, 1),
    }


def measure(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Yield the figures of each kind of release of each data set; none of their words."""
    from benchmarks.utility.mauve import embedder  # only figures need it

    embed = embedder()
    for data in LABELS:
        private, tested = read(data)
        by_kind = {kind: [row for row in rows if _kind(row) == (data, *kind)] for kind in kinds()}
        found = {kind: [Labelled(*zip(*row["texts"], strict=True)) for row in own] for kind, own in by_kind.items()}
        found = {kind: own for kind, own in found.items() if own}
        count = min(map(len, found.values()))
        found[None, REAL] = [real_texts(private, tokenizer, number) for number in range(count)]
        classes = {name: number for number, name in enumerate(names(data))}
        features = embed([cut(text, tokenizer) for text in tested.texts])
        true = np.array([classes[label] for label in tested.labels])
        sides = {
            kind: [(embed(side.texts), np.array([classes[label] for label in side.labels])) for side in own[:count]]
            for kind, own in found.items()
        }
        estimates = {kind: balanced_accuracies(own, features, true) for kind, own in sides.items()}
        for kind, values in estimates.items():
            own = by_kind.get(kind, [])[:count]
            usual = {"more": (kind[0], UNCONDITIONAL)} if kind[1] == SECRET else {}
            usual |= {"more_than_public": (None, PUBLIC)} if kind[0] is not None else {}
            yield {
                "data": data,
                "claim": kind[0],
                "meaning": kind[1],
                "epsilon": own[0]["epsilon"] if own else None,
                "clip_norm": own[0]["clip_norm"] if own else None,
                "seconds": [row["seconds"] for row in own],
                "releases": count,
                "texts": SAMPLES,
                "tested": len(tested),
                "accuracy": shown(values),
                **{name: shown(values - estimates[other]) for name, other in usual.items()},
            }


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["claim"], row["meaning"]


def real_texts(private: Labelled, tokenizer: Any, number: int) -> Labelled:
    """As many real texts of each label as a release has, cut to as many tokens."""
    source, found = random.Random(SEED + number), list[tuple[str, str]]()
    for label in sorted(set(private.labels)):
        own = [text for text, its in zip(private.texts, private.labels, strict=True) if its == label]
        found += [(cut(text, tokenizer), label) for text in source.sample(own, BATCHES)]
    return Labelled(*zip(*found, strict=True))


def cut(text: str, tokenizer: Any) -> str:
    """The first `TOKENS` tokens of a text."""
    beginning: str = tokenizer.decode(reference_tokens(tokenizer, text, TOKENS), skip_special_tokens=True)
    return beginning


def balanced_accuracies(releases: Sequence[tuple[Points, Classes]], features: Points, true: Classes) -> Floats:
    """Balanced accuracy of what is learned from a release, the mean over releases: as measured, then resampled.

    Args:
        releases: points [n, d] and classes [n] of the texts of each.
        features: points [m, d] of the tested texts.
        true: their classes, int64 [m].

    Returns:
        float64 [1 + ROUNDS]: the figure; then figures of texts of each release, and of tested texts, drawn with
        replacement within each class. Tested texts of a round are the same for all kinds.
    """
    found = []
    for number in range(1 + ROUNDS):
        tests = np.arange(len(true)) if not number else resampled(true, np.random.default_rng(number))
        shares = []
        for release, (points, classes) in enumerate(releases):
            source = np.random.default_rng((number, release))
            picks = np.arange(len(classes)) if not number else resampled(classes, source)
            right = fit_softmax(points[picks], classes[picks], int(true.max()) + 1)(features)[tests] == true[tests]
            shares.append(np.mean([right[true[tests] == own].mean() for own in np.unique(true)]))
        found.append(float(np.mean(shares)))
    return np.array(found)


def resampled(classes: Classes, source: np.random.Generator) -> Classes:
    """Places drawn with replacement, as many of each class as there are: int64 [n]."""
    own = [np.flatnonzero(classes == each) for each in np.unique(classes)]
    return np.concatenate([source.choice(places, len(places)) for places in own])


def shown(values: Floats) -> list[float]:
    """The figure and its interval: the resampled ones are moved so that their mean is the figure (`mauve`)."""
    moved = values[1:] - values[1:].mean() + values[0]
    return [round(float(each), 4) for each in (values[0], *np.quantile(moved, (0.025, 0.975)))]


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: accuracy by claim and by what holds it, with differences to the unconditional claim."""
    heads = "data | claim | it holds | unconditional epsilon | clip norm C | accuracy | more | more than public only"
    yield f"| {heads} | CPU s |"
    yield "|" + 9 * " --- |"
    for line in lines:
        claim = "-" if line["claim"] is None else f"epsilon {line['claim']}"
        norm = "" if line["clip_norm"] is None else f"{line['clip_norm']:.2f}"
        scores = [written(line[name], 3) if name in line else "" for name in ("accuracy", "more", "more_than_public")]
        seconds = ", ".join(f"{each:.0f}" for each in line["seconds"])
        cells = [NAMES[line["data"]], claim, line["meaning"], line["epsilon"] or "-", norm, *scores, seconds]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines, the texts of each release")
    parser.add_argument("--draw", type=int, default=0, metavar="RELEASES", help="draw so many releases of each kind")
    parser.add_argument("--claims", nargs="+", default=list(CLAIMS), choices=CLAIMS, help="that are drawn")
    parser.add_argument("--out", type=Path, help="JSON lines, figures of each kind; of releases that are there")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    model = load(MODEL, arguments.device, PRECISION)
    if arguments.draw:
        draw(Engine(model, memory=MEMORY), arguments.texts, arguments.draw, arguments.claims)
    if arguments.out is not None:
        write_lines(arguments.out, measure(read_lines(arguments.texts), model.tokenizer))
        print("\n".join(table(read_lines(arguments.out))))


if __name__ == "__main__":
    main()
