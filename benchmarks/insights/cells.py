"""Insights under the paper's privacy levels: every cell of its tables 1 and 2, with its texts and what it took.

    python -m benchmarks.insights.cells --version COMMIT --corpus chats          # 3,470 units, plain descriptions
    python -m benchmarks.insights.cells --version COMMIT --corpus chats --text model   # by the model: minutes a cell
    python -m benchmarks.insights.cells --version COMMIT --corpus synthetic      # 50,000 units with known topics
    python -m benchmarks.insights.cells --version COMMIT --leakage     # 200 runs with and without one conversation
    python -m benchmarks.insights.cells --version COMMIT --judge                 # whether the model can judge at all
    python -m benchmarks.insights.tables                               # docs/figures/insights_*.svg

A cell is one release of a public corpus, stage by stage, without a ledger (`insights/systems.py`); it is a JSON file in
the folder `--out`, and one that is there is not made again. There are no seeds: randomness is the operating system's,
and trials are independent. Facets and points of a corpus are worked out once and kept beside the cells. Facets are
RAKE's, or with `--facets model` those of the model; it takes seconds a unit, so `--units` says how many.

A description is `plain`, the keywords that were released as a list, or the model's.
"""

import argparse
import itertools
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.open_bench import open_bench
from benchmarks.insights.data import CHATS, SYNTHETIC, corpus, leakage_runs, public_texts
from benchmarks.insights.metrics import leakage
from benchmarks.insights.systems import (
    INFINITY,
    LEVELS,
    Asked,
    Clock,
    KeepingPoints,
    Material,
    simple_clio,
    urania,
)
from benchmarks.insights.topics import SENSITIVE
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.build_public_set import build
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.decoding.structured_output import Writer
from tasks.evaluation.evaluation_input import points
from tasks.evaluation.in_context.learner import ModelJudge
from tasks.evaluation.model_based import preference_trial, rating_trial
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.insights.cluster_descriptions import SCHEMAS
from tasks.text.public_models import load_tagger
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.values.results import Facets

OUT = Path(tempfile.gettempdir()) / "almoner-insights"
MODEL = "smollm2-135m-instruct"
COUNTS = {CHATS: (23, 64), SYNTHETIC: (128,)}
"""k, of URANIA and of SIMPLE-CLIO alike: for chats the paper's one cluster for about 150 units, and many more."""
LEAKAGE_CLUSTERS = 8
OURS, PAPERS = "anchored", "lsh_tree"
KEYWORD_SETS = ("tfidf", "model", "public", "hybrid")
COVERAGE = "tfidf-coverage"
"""The first of them, cut so that the rest is well represented, not by counts; at every level where it is asked for."""
_LEAKING = ("very low", "high", INFINITY)


@dataclass(frozen=True)
class Cell:
    """One release. `level` and what follows belong to URANIA alone."""

    corpus: str
    count: int
    system: str
    text: str
    facets: str
    trial: int
    level: str = ""
    method: str = ""
    keywords: str = ""
    reading: str = ""
    evidence: str = ""

    @property
    def name(self) -> str:
        """Of its file."""
        parts = [str(value).replace(" ", "-") for value in vars(self).values() if value != ""]
        return "_".join(parts) + ".json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT, help="folder of results; not in the repository")
    parser.add_argument("--version", required=True, help="of the program, as the lines say it: its commit")
    parser.add_argument("--corpus", choices=[CHATS, SYNTHETIC], default=CHATS)
    parser.add_argument("--units", type=int, help="so many of them, for trials and for facets of the model")
    parser.add_argument("--text", choices=["plain", "model"], default="plain")
    parser.add_argument("--facets", choices=["rake", "model"], default="rake")
    parser.add_argument("--counts", type=int, nargs="+", help="numbers of clusters")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--levels", nargs="+", default=[*LEVELS, INFINITY])
    parser.add_argument("--methods", nargs="+", default=[OURS, PAPERS])
    parser.add_argument("--readings", nargs="+", default=["matched", "paper"])
    parser.add_argument("--keywords", nargs="+", default=[*KEYWORD_SETS], help="at the level `low`")
    parser.add_argument(
        "--evidence", nargs="+", default=["believed"], help="counts: keywords by counts alone, as in the paper"
    )
    parser.add_argument("--leakage", action="store_true")
    parser.add_argument("--runs", type=int, default=200, help="of the leakage test, half of them with the conversation")
    parser.add_argument("--judge", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    place = Workplace(arguments)
    if arguments.judge:
        keep(arguments.out / "judge.json", {"version": arguments.version, **place.judged()})
    elif arguments.leakage:
        for name, line in place.leaking():
            keep(arguments.out / f"leakage_{name}.json", {**line, "version": arguments.version})
    else:
        for cell in cells(arguments):
            if not (arguments.out / cell.name).exists():
                keep(arguments.out / cell.name, place.made(cell))


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """Trial by trial, so that any first part of them is of use; without noise one trial is enough."""
    for count in arguments.counts or COUNTS[arguments.corpus]:
        yield from _cells_of(arguments, count)


def _cells_of(arguments: argparse.Namespace, count: int) -> Iterator[Cell]:
    common = {"corpus": arguments.corpus, "count": count, "text": arguments.text, "facets": arguments.facets}
    yield Cell(system="simple_clio", trial=0, **common)
    sets = [(level, "tfidf") for level in arguments.levels]
    sets += [("low", name) for name in arguments.keywords if name in KEYWORD_SETS[1:] and "low" in arguments.levels]
    sets += [(level, COVERAGE) for level in arguments.levels if COVERAGE in arguments.keywords]
    every = itertools.product(range(arguments.trials), arguments.readings, sets, arguments.methods, arguments.evidence)
    for trial, reading, (level, keywords), method, evidence in every:
        if level == INFINITY and (trial or reading != "matched"):
            continue
        if keywords != "tfidf" and method != OURS:
            continue
        yield Cell(
            system="urania",
            trial=trial,
            level=level,
            method=method,
            keywords=keywords,
            reading=reading,
            evidence="" if evidence == "believed" else evidence,
            **common,
        )


def keep(path: Path, line: dict[str, Any]) -> None:
    """Whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(line, ensure_ascii=False), encoding="utf-8")
    partial.rename(path)
    told = {name: line[name] for name in ("clusters", "known", "auc", "rating", "work") if line.get(name)}
    print(path.stem, json.dumps(told), flush=True)


class Workplace:
    """What all cells of a process share."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments

    def made(self, cell: Cell) -> dict[str, Any]:
        """One cell as it is kept."""
        write, count = self.write if cell.text == "model" else None, cell.count
        _ = self.material, self.public_points  # not part of what is timed
        if cell.system == "simple_clio":
            found = simple_clio(count, self.material, self.keeping, write)
        else:
            asked = Asked(
                cell.level, cell.method, self.keywords(cell.keywords), count, cell.reading, cell.evidence or "believed"
            )
            found = urania(asked, self.material, self.keeping, write)
        machine = f"{platform.machine()}, {platform.processor() or 'CPU'}, Python {platform.python_version()}"
        head = {"version": self.arguments.version, "cell": vars(cell), "units": len(self.material.units)}
        return {**head, "machine": machine, **found}

    @cached_property
    def embed(self) -> Any:
        return load_embedder(progress=_quoted("points"))

    @cached_property
    def keeping(self) -> KeepingPoints:
        return KeepingPoints(self.embed)

    @cached_property
    def public_points(self) -> Any:
        return self.keeping(list(PUBLIC_TOPICS))

    @cached_property
    def engine(self) -> Engine:
        return Engine(load(MODEL, "auto"))

    @cached_property
    def write(self) -> Writer:
        bench = open_bench(self.engine, None, PromptSpec("insights"))  # type: ignore[arg-type]  # it reads no corpus
        return Writer.of(bench, SCHEMAS, 160, "0.3")

    @cached_property
    def material(self) -> Material:
        """Facets and points, from the folder where they are there."""
        asked = self.arguments
        units = corpus(asked.corpus, asked.units)
        digest = sha256("\0".join(unit.text for unit in units).encode()).hexdigest()[:16]
        path = asked.out / f"material_{asked.corpus}_{asked.facets}_{digest}"
        facets, rows = path.with_suffix(".json"), path.with_suffix(".npy")
        if not rows.exists():
            clock = Clock()
            engine = self.engine if asked.facets == "model" else None
            extract = extractor_for(FacetSettings(extractor=asked.facets), engine, _quoted("facets"))
            made = Material.of(units, extract, self.embed, clock)
            facets.write_text(json.dumps([dict(each.values) for each in made.facets]))
            np.save(rows, made.points)  # last: whoever finds it finds both
            print(f"{path.stem}: {clock}", flush=True)
        kept = [Facets({name: tuple(of) for name, of in each.items()}) for each in json.loads(facets.read_text())]
        return Material(units, kept, np.load(rows))

    def keywords(self, method: str) -> KeywordSettings:
        """A set of the paper's four; words of public sets where it has some."""
        if method == COVERAGE:
            return KeywordSettings(method="tfidf", ranking="coverage")
        words = self.public_words if method in ("public", "hybrid") else ()
        return KeywordSettings(method=method, words=words)

    @cached_property
    def public_words(self) -> tuple[str, ...]:
        """Built from public texts by rules, without a model."""
        path = self.arguments.out / "public_words.json"
        if not path.exists():
            built = build(public_texts(), 200, load_tagger(), self.keeping)
            path.write_text(json.dumps([each.keyword for each in built.keywords]))
        return tuple(json.loads(path.read_text()))

    def leaking(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The scores of every run, for SIMPLE-CLIO and for URANIA at some levels."""
        conversation = points(self.keeping, [SENSITIVE])
        names = [("simple_clio", "")] + [("urania", level) for level in _LEAKING]
        extract = extractor_for(FacetSettings())
        runs = [(Material.of(units, extract, self.keeping, Clock()), there)
                for units, there in leakage_runs(self.arguments.runs)]  # fmt: skip
        for system, level in names:
            started, texts = time.monotonic(), [self._sentences(system, level, material) for material, _ in runs]
            rows = [points(self.keeping, some) if some else points(self.keeping, []) for some in texts]
            yield (
                f"{system}_{level.replace(' ', '-')}" if level else system,
                {
                    "system": system,
                    "level": level,
                    "scores": leakage(conversation, rows),
                    "there": [there for _, there in runs],
                    "insights": [len(some) for some in texts],
                    "seconds": time.monotonic() - started,
                },
            )

    def _sentences(self, system: str, level: str, material: Material) -> list[str]:
        if system == "simple_clio":
            found = simple_clio(LEAKAGE_CLUSTERS, material, self.keeping, None)
        else:
            asked = Asked(level, OURS, KeywordSettings(), LEAKAGE_CLUSTERS, "paper")
            found = urania(asked, material, self.keeping, None)
        return [row["text"] for row in found["insights"]]

    def judged(self) -> dict[str, Any]:
        """Whether the model can judge: on planted pairs, as a judge of releases is tried."""
        judge = ModelJudge(self.engine.model)
        trials = {"rating": rating_trial(judge), "preference": preference_trial(judge)}
        return {name: {**trial.figures(), "able": trial.passed} for name, trial in trials.items()}


def _quoted(what: str) -> Any:
    """Progress on one line in ten."""
    said = [-1]

    def told(done: int, of: int) -> None:
        if of and done * 10 // of > said[0]:
            said[0] = done * 10 // of
            print(f"{what}: {done} of {of}", flush=True)

    return told


def cells_in(folder: Path) -> Sequence[dict[str, Any]]:
    """Every cell that is there, in the order of their names."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [line for line in found if isinstance(line, dict) and "cell" in line]


if __name__ == "__main__":
    main()
