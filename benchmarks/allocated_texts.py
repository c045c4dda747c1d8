"""Drawn texts under an equal and a proportional allocation to labels, at equal epsilon.

    python -m benchmarks.allocated_texts --texts texts.jsonl --out allocated_texts.jsonl
    python -m benchmarks.allocated_texts --out allocated_texts.jsonl --table

`benchmarks.utility.label_allocation` has what shares alone do; here a model draws the texts. Releases of InvisibleInk
with the labels of two public corpora, whose shares are as they come: as many texts, equally many of each label, or
in proportion to a noisy histogram that the release pays for. Either way a label's units are split into batches as a
request splits them, so a frequent label has fuller batches under an equal allocation. Controls, all of as many texts:
the public model alone under both allocations, so that what the allocation does can be told from what private texts do;
and real texts under both. The public model's proportional allocation is that of the true shares, without noise.

Figures: total variation between the shares of labels among the texts and among the units; MAUVE against texts that no
system has read; and accuracy, plain and balanced, of a logistic regression that learns the labels from a release and
is asked about those texts. Intervals are 95 % bootstraps over the drawn and the unread texts; releases share clusters,
unread texts and their resamples, so differences are paired in these. `--out` has figures alone.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.drawn_releases import DEFAULT_MODEL, append_missing, draw_release, drawing_parser, parsed
from benchmarks.common.intervals import rounded, written
from benchmarks.common.json_lines import DATA, read_lines, read_lines_if_there, write_lines
from benchmarks.secret_assignment.labelled_texts import (
    MEMORY,
    REFERENCE_TOKENS,
    ROUNDS,
    TOKENS,
    UNTRAINED,
    Labelled,
    cut,
    resampled,
    shown,
    store,
)
from benchmarks.utility.label_allocation import EQUAL, PROPORTIONAL, total_variation
from benchmarks.utility.texts import DESCRIPTIONS, SEED
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.evaluation.algorithms.logistic_regression import Classes, fit
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.planning.label_allocation import allocate
from tasks.text.interfaces import Points

LABELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "mts_dialog": (
        "section",
        {
            "FAM/SOCHX": "family and social history",
            "GENHX": "history of present illness",
            "PASTMEDICALHX": "past medical history",
            "CC": "chief complaint",
        },
    ),
    "yelp": ("stars", {"1": "negative", "2": "negative", "3": "mixed", "4": "positive", "5": "positive"}),
}
"""Field of a label, and the label of its values; records with other values are left out."""
SAMPLES, REFERENCES, EPSILON = 48, 7, Decimal(4)
UNITS = 523
"""The most units, which are the first ones; mts_dialog has no more."""
INK, PUBLIC, REAL = "invisible_ink", "public_only", "real texts"
Floats = NDArray[np.float64]
Kind = tuple[str, str]
"""A system, or real texts, and an allocation."""


@dataclass(frozen=True)
class Cell:
    """One release; its number names a split of the units of its own.

    Attributes:
        form: of the prompt; `completion` for a base model.
    """

    data: str
    system: str
    allocation: str
    release: int
    samples: int = SAMPLES
    model: str = DEFAULT_MODEL
    form: str = "chat"

    @property
    def kind(self) -> Kind:
        """The cell without its data set and number."""
        return self.system, self.allocation


def main() -> None:
    parser = drawing_parser(__doc__, "kind of release", SAMPLES)
    parser.add_argument("--form", default="chat", choices=("chat", "completion"), help="completion for a base model")
    parser.add_argument("--releases", type=int, default=1, help="of InvisibleInk under each allocation")
    arguments = parsed(parser)
    if not arguments.table:
        model = load(arguments.model, arguments.device, arguments.precision)
        draw(Engine(model, memory=MEMORY), arguments)
        others = [line for line in read_lines_if_there(arguments.out) if line["model"] != arguments.model]
        rows = [row for row in read_lines(arguments.texts) if row["cell"]["model"] == arguments.model]
        write_lines(arguments.out, [*others, *measure(rows, model.tokenizer)])
    print("\n".join(table(read_lines(arguments.out))))


def read(data: str) -> tuple[Labelled, Labelled]:
    """Return the texts that systems read, and those that none reads: of a corpus, those that have one of the labels."""
    field, labels = LABELS[data]
    rows = [row for row in read_lines(DATA / f"{data}.jsonl") if str(row[field]) in labels]
    private = [row for place, row in enumerate(rows) if place % UNTRAINED][:UNITS]
    unread = [row for place, row in enumerate(rows) if place % UNTRAINED == 0]

    def labelled(side: Sequence[Mapping[str, Any]]) -> Labelled:
        return Labelled(tuple(row["text"] for row in side), tuple(labels[str(row[field])] for row in side))

    return labelled(private), labelled(unread)


def names(data: str) -> tuple[str, ...]:
    """Return the labels of a data set."""
    return tuple(sorted(set(LABELS[data][1].values())))


def counts(data: str, labels: Sequence[str]) -> list[int]:
    """Return how many of the labels each name has, in the order of `names`."""
    found = Counter(labels)
    return [found[name] for name in names(data)]


def true_allocation(data: str, samples: int) -> tuple[int, ...]:
    """Return the numbers of texts in proportion to the true counts of the units."""
    return allocate(samples, counts(data, read(data)[0].labels))


def draw(engine: Engine, arguments: argparse.Namespace) -> None:
    """Append every release that is missing."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for data in LABELS:
            (Path(folder) / data).mkdir()
            stores[data] = store(read(data)[0], Path(folder) / data)
        about = (arguments.samples, arguments.model, arguments.form)
        cells = [Cell(data, PUBLIC, kind, 0, *about) for data in LABELS for kind in (EQUAL, PROPORTIONAL)]
        cells += [
            Cell(data, INK, kind, number, *about)
            for number in range(arguments.releases)
            for data in LABELS
            for kind in (EQUAL, PROPORTIONAL)
        ]
        append_missing(
            arguments.texts,
            cells,
            lambda row: Cell(**row["cell"]),
            lambda cell: release(engine, stores[cell.data], cell, arguments.precision),
        )


def release(engine: Engine, corpus: Corpus, cell: Cell, precision: str) -> dict[str, Any]:
    """Return one release's texts and labels.

    The public model buys no histogram: under a proportional allocation it draws more texts of each label than are
    needed, and the first ones of each are taken.
    """
    labels, charged = names(cell.data), cell.system == INK
    proportional = cell.allocation == PROPORTIONAL
    wanted = true_allocation(cell.data, cell.samples) if proportional and not charged else ()
    parameters = {
        "samples": max(wanted) * len(labels) if wanted else cell.samples,
        "max_new_tokens": TOKENS,
        "max_reference_tokens": REFERENCE_TOKENS,
        "precision": precision,
        "labels": labels,
        **({"references": REFERENCES} if charged else {}),
        **({"label_allocation": {"method": "proportional"}} if charged and proportional else {}),
    }
    prompt = Prompt.model_validate({"description": DESCRIPTIONS[cell.data], "form": cell.form})
    units = len(read(cell.data)[0])
    plan, made, seconds = draw_release(
        engine, corpus, units, cell.system, parameters, EPSILON, prompt, f"{cell.kind} {cell.release}", labels=labels
    )
    texts = [[text.text, str(text.label)] for text in made.texts]
    if wanted:
        own = {name: [text for text in texts if text[1] == name] for name in labels}
        seconds = round(seconds * cell.samples / len(texts), 1)
        texts = [text for name, count in zip(labels, wanted, strict=True) for text in own[name][:count]]
    return {
        "cell": asdict(cell),
        "clip_norm": float(plan.facts["clip norm C"]) if charged else None,
        "texts": texts,
        "released": dict(made.released),
        "seconds": seconds,
    }


def real_texts(private: Labelled, data: str, allocation: str, samples: int, tokenizer: Any) -> Labelled:
    """Return as many real texts as a release has under an allocation, of the units, cut to as many tokens."""
    source, found = random.Random(SEED), list[tuple[str, str]]()
    wanted = true_allocation(data, samples) if allocation == PROPORTIONAL else allocate(samples, [1] * len(names(data)))
    for name, count in zip(names(data), wanted, strict=True):
        own = [text for text, label in zip(private.texts, private.labels, strict=True) if label == name]
        found += [(cut(text, tokenizer), name) for text in source.sample(own, count)]
    return Labelled(*zip(*found, strict=True))


def measure(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Yield the figures of each kind of release of each data set; none of their words."""
    from benchmarks.utility.mauve import embedder, mean, measured_together  # only figures need it

    embed = embedder()
    for data in LABELS:
        private, unread = read(data)
        own = [(Cell(**row["cell"]), row) for row in rows if row["cell"]["data"] == data]
        releases: dict[Kind, list[Labelled]] = {}
        for cell, row in own:
            releases.setdefault(cell.kind, []).append(Labelled(*zip(*row["texts"], strict=True)))
        for kind in (EQUAL, PROPORTIONAL):
            releases[REAL, kind] = [real_texts(private, data, kind, own[0][0].samples, tokenizer)]
        compared = [cut(text, tokenizer) for text in unread.texts]
        sides = {f"{kind} {n}": side.texts for kind, made in releases.items() for n, side in enumerate(made)}
        together = measured_together(embed, sides, compared)
        mauve = {kind: mean([together[f"{kind} {n}"] for n in range(len(made))]) for kind, made in releases.items()}
        shares = np.array(counts(data, private.labels)) / len(private)
        learned = {
            kind: accuracies(made, unread.labels, compared, names(data), embed) for kind, made in releases.items()
        }
        for kind, made in releases.items():
            others = {"equal": (kind[0], EQUAL)} if kind[1] == PROPORTIONAL else {}
            others |= {"public": (PUBLIC, kind[1])} if kind[0] == INK else {}
            differences: dict[str, list[float]] = {}
            for name, other in others.items():
                less = learned[kind] - learned[other]
                differences |= {
                    f"mauve_less_{name}": rounded(mauve[kind].less(mauve[other]).shown),
                    f"accuracy_less_{name}": shown(less[:, 0]),
                    f"balanced_less_{name}": shown(less[:, 1]),
                }
            mine = [row for cell, row in own if cell.kind == kind]
            yield {
                "model": own[0][0].model, "data": data, "system": kind[0], "allocation": kind[1],
                "releases": len(made), "texts": own[0][0].samples,
                "units": len(private), "unread": len(unread),
                "clip_norm": mine[0]["clip_norm"] if mine else None,
                "variation": [round(total_variation(counts(data, side.labels), shares), 4) for side in made],
                "mauve": rounded(mauve[kind].shown),
                "accuracy": shown(learned[kind][:, 0]),
                "balanced": shown(learned[kind][:, 1]),
                **differences,
                "seconds": [row["seconds"] for row in mine],
            }  # fmt: skip


def accuracies(
    releases: Sequence[Labelled],
    labels: Sequence[str],
    compared: Sequence[str],
    order: Sequence[str],
    embed: Callable[[Sequence[str]], Points],
) -> Floats:
    """Return what is learned from releases, the mean over them: float64 [1 + ROUNDS, 2], plain and balanced accuracy.

    The first row is the figure; then texts of each release are drawn with replacement within each label, and so are
    tested texts, which are the same in a round for all kinds.
    """
    classes = {name: number for number, name in enumerate(order)}
    features, true = embed(compared), np.array([classes[label] for label in labels])
    sides = [(embed(made.texts), np.array([classes[label] for label in made.labels])) for made in releases]
    return np.array([_round(number, sides, features, true) for number in range(1 + ROUNDS)])


def _round(number: int, sides: Sequence[tuple[Points, Classes]], features: Points, true: Classes) -> Floats:
    tests = resampled(true, np.random.default_rng(number)) if number else np.arange(len(true))
    scores = []
    for place, (points, own) in enumerate(sides):
        picks = resampled(own, np.random.default_rng((number, place))) if number else np.arange(len(own))
        right = fit(points[picks], own[picks], int(true.max()) + 1)(features)[tests] == true[tests]
        scores.append((right.mean(), np.mean([right[true[tests] == label].mean() for label in np.unique(true)])))
    return np.asarray(np.mean(scores, axis=0), np.float64)


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, one line a kind of release."""
    heads = "model | data | texts of | allocation | n | variation | MAUVE | less equal's | less public's"
    scores = "accuracy | less equal's | less public's | balanced accuracy | less equal's"
    yield f"| {heads} | {scores} | CPU s |"
    yield "|" + 15 * " --- |"
    for line in lines:
        cells = [line["model"], line["data"], line["system"].replace("_", " "), line["allocation"], str(line["texts"])]
        cells.append(", ".join(f"{value:.3f}" for value in line["variation"]))
        cells.extend(_shown(line, name) for name in ("mauve", "mauve_less_equal", "mauve_less_public"))
        cells.extend(_shown(line, name) for name in ("accuracy", "accuracy_less_equal", "accuracy_less_public"))
        cells.extend(_shown(line, name) for name in ("balanced", "balanced_less_equal"))
        cells.append(", ".join(f"{each:.0f}" for each in line["seconds"]))
        yield f"| {' | '.join(cells)} |"


def _shown(line: Mapping[str, Any], name: str) -> str:
    return written(line[name], 2) if name in line else ""


if __name__ == "__main__":
    main()
