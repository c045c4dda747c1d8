"""Controls of the summaries: is a text nearer to its own product than to others, and what does an adapter write alone?

    python -m benchmarks.summaries.controls --no-data     # the adapter with and without reviews, its texts and scores
    python -m benchmarks.summaries.controls               # docs/figures/summaries_controls.jsonl, from all texts

A text is scored with people's summaries of its own product, and with those of the other products of its category,
whose public metadata are the same: by ROUGE-L, and by closeness, the mean cosine of points (all-MiniLM-L6-v2). Who has
nothing of the product scores alike with both. `people` are the summaries themselves, each against the two others of
its product: the ceiling. `no data` is `one_shot` with the same adapter and noise, on a corpus in which nobody wrote
about any product of the request. Texts of `non_private` are not kept, so it is drawn again here, and only scored.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.controls import OwnAndOthers, own_and_others
from benchmarks.common.json_lines import DATA, read_lines, write_lines
from benchmarks.summaries.cells import (
    MODEL,
    OUT,
    PRECISION,
    Cell,
    adapter,
    append,
    documents_read_once,
    generate,
)
from benchmarks.summaries.data import Product, products, store
from benchmarks.summaries.scores import KeepingPieces, rouge_f1, scores
from benchmarks.summaries.systems import BY_NAME, NO_NOISE, SYSTEMS_COMPARED
from benchmarks.utility.next_tokens import interval
from tasks.corpus.store import Corpus
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.text.public_models import Embedder

FIGURES = OUT.parent
CONTROLS, NO_DATA_TEXTS = FIGURES / "summaries_controls.jsonl", FIGURES / "summaries_no_data.jsonl"
PEOPLE, NO_DATA, WITH_DATA, ALL_REVIEWS = "people", "no data", "the same adapter, with data", "non_private"
SHOWN = ("2", "10", "50", "120", NO_NOISE)
DRAWN = {"2": 3, "10": 3, "120": 3, NO_NOISE: 1}
"""Epsilons of the control, and how often it is drawn."""

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-data", action="store_true", help="draw the control; trains its adapter if it is missing")
    arguments = parser.parse_args()
    tested = products(arguments.data, "test")
    if arguments.no_data:
        draw_controls(arguments, tested)
        return
    judge, known = Judge(tested), read_lines(CONTROLS) if CONTROLS.exists() else []
    there = {(line["system"], line["epsilon"], line["trial"]) for line in known}
    missing = [cell for cell in (*read_lines(OUT), *read_lines(NO_DATA_TEXTS)) if _place(cell["cell"]) not in there]
    found = [*known, *([] if (PEOPLE, None, 0) in there else judge.of_people()), *judge.of_texts(missing)]
    write_lines(CONTROLS, found)


def _place(cell: Line) -> tuple[str, str | None, int]:
    return cell["system"], cell["epsilon"], cell["trial"]


@dataclass(frozen=True)
class Judge:
    """Scores texts with the summaries of all products."""

    products: Sequence[Product]
    embed: Embedder = field(default_factory=load_embedder)
    _points: dict[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> Mapping[str, str]:
        """The category of each product."""
        return {product.id: product.about for product in self.products}

    def points(self, texts: Sequence[str]) -> Any:
        """Return a row for each text, made once."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._points]
        if missing:
            self._points.update(zip(missing, points_of(self.embed, missing), strict=True))
        return np.array([self._points[text] for text in texts])

    def line(self, text: str, group: str, summaries: Mapping[str, Sequence[str]]) -> Line:
        """The scores of one text with its own product and with each other of its category."""
        (point,) = self.points([text])

        def rouge(other: str) -> float:
            return float(np.mean([rouge_f1(text, summary)[1] for summary in summaries[other]]))

        def closeness(other: str) -> float:
            return float((self.points(summaries[other]) @ point).mean())

        by_score = {"rouge_l": rouge, "closeness": closeness}
        found = {name: _kept(own_and_others(score, group, self.kinds)) for name, score in by_score.items()}
        return {"group": group, **found}

    def of_people(self) -> Iterator[Line]:
        """Each summary by people as if a system had written it."""
        every = {product.id: product.summaries for product in self.products}
        for product in self.products:
            for number, text in enumerate(product.summaries):
                rest = product.summaries[:number] + product.summaries[number + 1 :]
                yield {"system": PEOPLE, "epsilon": None, "trial": number} | self.line(
                    text, product.id, every | {product.id: rest}
                )

    def of_texts(self, cells: Sequence[Line]) -> Iterator[Line]:
        """Every kept text of cells."""
        every = {product.id: product.summaries for product in self.products}
        self.points([text["text"] for cell in cells for text in cell["texts"] if "text" in text])
        for cell in cells:
            head = {name: cell["cell"][name] for name in ("system", "epsilon", "trial")}
            for text in (text for text in cell["texts"] if "text" in text):
                yield head | self.line(text["text"], text["group"], every)


def _kept(found: OwnAndOthers) -> dict[str, float]:
    mean = sum(found.others) / len(found.others)
    return {"own": round(found.own, 5), "others": round(mean, 5), "preference": round(found.preference, 5)}


def draw_controls(arguments: argparse.Namespace, tested: Sequence[Product]) -> None:
    """Append `one_shot` with one adapter, without and with reviews, and score texts of `non_private`."""
    one_shot = BY_NAME["one_shot"]
    adapter(one_shot.adapter or "", arguments)
    engine, embed = Engine(load(arguments.model, arguments.device, PRECISION)), KeepingPieces(load_embedder())
    judge, every = Judge(tested), {product.id: product.summaries for product in tested}
    with tempfile.TemporaryDirectory() as folder, documents_read_once():
        nobody = [replace(tested[0], id="nobody")]
        corpora = {NO_DATA: _stored(nobody, Path(folder) / "none"), WITH_DATA: _stored(tested, Path(folder) / "all")}
        for (name, corpus), (epsilon, trials) in ((one, two) for one in corpora.items() for two in DRAWN.items()):
            for trial in range(trials):
                cell = Cell(one_shot, epsilon, trial)
                texts = [
                    {
                        "group": text.label,
                        "text": text.text,
                        **scores(text.text, every[text.label or ""], embed),
                    }
                    for text in generate(engine, corpus, tested, cell).texts
                ]
                append(NO_DATA_TEXTS, {"cell": cell.key | {"system": name}, "texts": texts})
                print(name, epsilon, trial, flush=True)
        for text in generate(engine, corpora[WITH_DATA], tested, Cell(BY_NAME[ALL_REVIEWS], None, 0)).texts:
            head = {"system": ALL_REVIEWS, "epsilon": None, "trial": 0}
            append(CONTROLS, head | judge.line(text.text, text.label or "", every))


def _stored(some: Sequence[Product], folder: Path) -> Corpus:
    folder.mkdir()
    return store(list(some), folder)


def by_product(lines: Sequence[Line], system: str, epsilon: str | None, score: str, figure: str) -> list[float]:
    """One figure of each product, as the mean of its trials; in the order of the products' ids."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if (line["system"], line["epsilon"]) == (system, epsilon):
            of = line[score]
            found[line["group"]].append(of["own"] - of["others"] if figure == "difference" else of[figure])
    return [sum(values) / len(values) for _, values in sorted(found.items())]


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the rows of the page: own less others by ROUGE-L, and preference by closeness, with intervals."""
    names = {PEOPLE: "people's own summaries", NO_DATA: "one-shot, a new adapter, **no data**",
             WITH_DATA: "one-shot, the same new adapter, with data"}  # fmt: skip
    names |= {system.name: system.title for system in SYSTEMS_COMPARED}
    yield "| system | epsilon | ROUGE-L, own | ROUGE-L, others | own less others | own preferred, by closeness |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for system, title in names.items():
        there = {line["epsilon"] for line in lines if line["system"] == system}
        for epsilon in (None, *SHOWN):
            if epsilon not in there:
                continue
            own, others = (by_product(lines, system, epsilon, "rouge_l", side) for side in ("own", "others"))
            gap = interval(by_product(lines, system, epsilon, "rouge_l", "difference"))
            nearer = interval(by_product(lines, system, epsilon, "closeness", "preference"))
            at = {None: "-", NO_NOISE: "no noise"}.get(epsilon, epsilon)
            yield (
                f"| {title} | {at} | {np.mean(own):.3f} | {np.mean(others):.3f}"
                f" | {gap[0]:.3f} [{gap[1]:.3f}, {gap[2]:.3f}] | {nearer[0]:.2f} [{nearer[1]:.2f}, {nearer[2]:.2f}] |"
            )


if __name__ == "__main__":
    main()
