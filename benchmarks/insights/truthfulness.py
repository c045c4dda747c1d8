"""Truthfulness of insights: the share of a topic's units to which its name applies, on public data.

    python -m benchmarks.insights.truthfulness --version NAME --trials 3  # appends to docs/figures/insights_truth.jsonl
    python -m benchmarks.insights.truthfulness --version NAME --corpus yelp  # on which the rule was not developed
    python -m benchmarks.insights.truthfulness --table                       # the table of docs/insights-results.md

A trial is one release by the request of docs/insights.md (epsilon 8, delta 1e-6, 32 clusters, TF-IDF, two levels, names
by the model) over a corpus, stage by stage without a ledger (`insights/systems.py`). The figure is internal: it
reads all units, so it is for public corpora, and no release has it.

A name applies to a unit by its words if the unit's text has one of the name's words (without stop words and vague
words; plurals count as the word), and by its embedding if the cosine of the name and the unit's summary is at least
CLOSE, which `keyword_choice` calibrates on other public sets. Beside each name stands the mean of the names of all
other topics of its level for the same units: what a name at random gets.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from numpy.typing import NDArray

from benchmarks.common.intervals import interval_of_difference, written
from benchmarks.common.json_lines import read_lines
from benchmarks.common.open_bench import open_bench
from benchmarks.insights.cells import MODEL
from benchmarks.insights.data import CHATS, YELP, corpus
from benchmarks.insights.systems import Clock, InMemoryBench, KeepingPoints, Material
from tasks.accounting.zcdp import release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.analysis.keywords.keyword_set import KEEP_SCHEMA
from tasks.decoding.structured_output import Writer
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.insights.cluster_descriptions import SCHEMAS
from tasks.systems.insights.hierarchy import Node, numbered_nodes
from tasks.systems.insights.private_units import Tools
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.systems.simple_clio.run import ClioRun
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import Stages, UraniaParameters
from tasks.text.words import VAGUE_WORDS, roots
from tasks.values.results import MIXED, UNNAMED, Insight

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "insights_truth.jsonl"
CLOSE = 0.4
"""The cosine from which on a name applies to a summary: `keyword_choice`, precision 0.75 for one subject in 200."""
CLUSTERS = 32
REQUEST: dict[str, Any] = {"clusters": {"count": CLUSTERS}, "keywords": {"method": "tfidf", "size": 200}}
"""`parameters:` of docs/insights.md."""
VAGUE_ROOTS = frozenset().union(*map(roots, VAGUE_WORDS))


@dataclass(frozen=True)
class Units:
    """What names are judged against.

    Attributes:
        roots: the words of each unit's whole text.
        points: float64 [n, d], of the summaries.
    """

    roots: Sequence[frozenset[str]]
    points: NDArray[np.float64]

    def by_words(self, words: frozenset[str], places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which units one of the words occurs."""
        return np.array([bool(words & self.roots[place]) for place in places], bool)

    def by_embedding(self, point: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which summaries are close."""
        return np.nan_to_num(self.points[places] @ point, nan=-1.0) >= CLOSE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--version", help="of the program, as the lines say it")
    parser.add_argument("--corpus", default=CHATS, choices=(CHATS, YELP))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--clio", action="store_true", help="SIMPLE-CLIO, the reference without privacy, as well")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments)
    lines = read_lines(arguments.out)
    print("\n".join([*table(lines), "", *differences(lines)]))
    if others := [line for line in lines if line.get("corpus") == YELP]:
        print(f"{YELP}, more than a random name: {written(more_than_chance(others), 2)}")


def measure(arguments: argparse.Namespace) -> None:
    """Append the lines of some trials."""
    embed = KeepingPoints(load_embedder())
    units = corpus(arguments.corpus)
    material = Material.of(units, extractor_for(FacetSettings()), load_embedder(), Clock())
    judged = Units([roots(unit.text) for unit in units], material.points.astype(np.float64))
    engine = Engine(load(MODEL, "auto"))
    write = Writer.of(open_bench(engine, None, PromptSpec("insights")), (*SCHEMAS, KEEP_SCHEMA), 160, "0.3", 1)  # type: ignore[arg-type]  # it reads no corpus
    tools = Tools(embed, write, material)  # type: ignore[arg-type]  # they have what is asked of them
    for trial in range(arguments.trials):
        started = time.monotonic()
        nodes = list(members_of_urania(urania_run(tools)))
        _append(arguments.out, judge(nodes, judged, embed), arguments, "urania", trial)
        print(f"trial {trial}: {time.monotonic() - started:.0f} s", flush=True)
    if arguments.clio:
        run = ClioRun(ClioParameters(count=CLUSTERS), InMemoryBench(Clock()), tools)  # type: ignore[arg-type]  # it has what is asked of it
        _append(arguments.out, judge(list(members_of_clio(run)), judged, embed), arguments, "simple_clio", 0)


def urania_run(tools: Tools) -> UraniaRun:
    """Return a release by the documented request, drawn."""
    parameters = UraniaParameters.model_validate(REQUEST)
    stages = Stages.of(parameters, release_amount("8", "1e-6", "0.1"))
    run = UraniaRun(parameters, stages, None, InMemoryBench(Clock()), tools, IndexKeywordAssigner())  # type: ignore[arg-type]  # as there
    _ = run.keywords, run.centres, run.sizes, run.chosen
    return run


def members_of_urania(run: UraniaRun) -> Iterator[tuple[Insight, NDArray[np.int64]]]:
    """Yield each insight with the units of its clusters."""
    members = [np.flatnonzero(run.clusters == number) for number in run.kept]
    rule = run.stages.support(run.parameters)
    return _members(numbered_nodes(run.cluster_nodes(), run.tools.embed, run.parameters.hierarchy, rule), members)


def members_of_clio(run: ClioRun) -> Iterator[tuple[Insight, NDArray[np.int64]]]:
    """Yield each insight with the units of its clusters."""
    members = [run._units_with_point[cluster.inside] for cluster in run.clusters]
    embed = partial(points_of, run.tools.embed)
    return _members(numbered_nodes(run.cluster_nodes(), embed, run.parameters.hierarchy), members)


def _members(
    nodes: Sequence[tuple[Insight, Node]], members: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[Insight, NDArray[np.int64]]]:
    for insight, node in nodes:
        yield insight, np.sort(np.concatenate([members[number] for number in node.clusters]))


def judge(
    nodes: Sequence[tuple[Insight, NDArray[np.int64]]], units: Units, embed: KeepingPoints
) -> Iterator[dict[str, Any]]:
    """Return a line for each topic: what it says, and for which share of its units its name is true."""
    points = points_of(embed, [insight.topic.name for insight, _ in nodes]).astype(np.float64)
    words = [roots(insight.topic.name) - VAGUE_ROOTS for insight, _ in nodes]
    for number, (insight, places) in enumerate(nodes):
        named = _is_named(insight)
        others = [n for n, (other, _) in enumerate(nodes)
                  if n != number and other.level == insight.level and _is_named(other)]  # fmt: skip
        applied = _shares(units, words[number], points[number], places) if named and len(places) else None
        by_chance = [_shares(units, words[n], points[n], places)["either"] for n in others] if len(places) else []
        yield {
            "level": insight.level,
            "name": insight.topic.name,
            "named": named,
            "size": insight.size,
            "units": len(places),
            **(applied or {"words": None, "embedding": None, "either": None}),
            "random_name": round(float(np.mean(by_chance)), 4) if by_chance and named else None,
            "support": _supports(insight, units, places, embed),
        }


def _shares(
    units: Units, words: frozenset[str], point: NDArray[np.float64], places: NDArray[np.int64]
) -> dict[str, float]:
    by_words, by_embedding = units.by_words(words, places), units.by_embedding(point, places)
    found = {"words": by_words, "embedding": by_embedding, "either": by_words | by_embedding}
    return {name: round(float(marks.mean()), 4) for name, marks in found.items()}


def _is_named(insight: Insight) -> bool:
    return bool(insight.keywords) and insight.topic.name not in (UNNAMED, MIXED)


def _supports(
    insight: Insight, units: Units, places: NDArray[np.int64], embed: KeepingPoints
) -> list[dict[str, Any]] | None:
    """Return for each keyword of the name what the release says, and how many of the units have it.

    A unit has a keyword if all its words are in its text, and one of several words if it is close to it, too.
    """
    if insight.support is None:
        return None
    name, lines = roots(insight.topic.name), []
    for keyword, count in zip(insight.keywords, insight.support, strict=True):
        if not roots(keyword) <= name:
            continue
        own = roots(keyword)
        occurs = np.array([own <= units.roots[place] for place in places], bool)
        close = units.by_embedding(points_of(embed, [keyword])[0].astype(np.float64), places) & (len(own) > 1)
        lines.append({"keyword": keyword, "said": count, "true": int((occurs | close).sum())})
    return lines


def _append(
    path: Path, lines: Iterator[dict[str, Any]], arguments: argparse.Namespace, system: str, trial: int
) -> None:
    corpus_named = {} if arguments.corpus == CHATS else {"corpus": arguments.corpus}
    with path.open("a", encoding="utf-8") as file:
        for line in lines:
            head = {"version": arguments.version, **corpus_named, "system": system, "trial": trial}
            file.write(json.dumps(head | line, ensure_ascii=False) + "\n")


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the rows of the page's table, a row for each corpus, version, system and kind of node."""
    yield (
        "| corpus | version | system | nodes | named | median truthfulness | by words alone | a random name"
        " | of all units | overstated |"
    )
    yield "|" + 10 * " --- |"
    keys = dict.fromkeys(map(_row_of, lines))
    for corpus_name, version, system, group in keys:
        own = [line for line in lines if _row_of(line) == (corpus_name, version, system, group)]
        named = [line for line in own if line["named"] and line["either"] is not None]
        units = sum(line["units"] for line in own)
        right = sum(line["units"] * line["either"] for line in named)
        yield " | ".join([
            f"| {corpus_name}", version, f"{system}, {'groups' if group else 'topics'}", str(len(own)), str(len(named)),
            *(_median(named, figure) for figure in ("either", "words", "random_name")),
            f"{right / units:.3f}", f"{sum(map(is_overstated, named))} |",
        ])  # fmt: skip


def _row_of(line: dict[str, Any]) -> tuple[str, str, str, bool]:
    return line.get("corpus", CHATS), line["version"], line["system"], bool(line["level"])


def more_than_chance(lines: Sequence[dict[str, Any]]) -> list[float]:
    """Return by how much the names of topics of URANIA are truer than random ones, paired: median, bootstrap."""
    more = [
        line["either"] - line["random_name"]
        for line in lines
        if line["system"] == "urania"
        and not line["level"]
        and line["either"] is not None
        and line["random_name"] is not None
    ]
    return interval_of_difference(more, [0.0], lambda own, none: statistics.median(own) - none[0], 0)


def differences(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield by how much names of topics of URANIA are truer in a later version: medians, bootstrap over topics."""
    shares: dict[str, list[float]] = {}
    for line in lines:
        usual = "corpus" not in line and line["system"] == "urania" and not line["level"]
        if usual and line["named"] and line["either"] is not None:
            shares.setdefault(line["version"], []).append(line["either"])
    for earlier, later in combinations(shares, 2):
        both = shares[later], shares[earlier]
        more = interval_of_difference(*both, lambda new, old: statistics.median(new) - statistics.median(old), 0)
        times = interval_of_difference(*both, lambda new, old: statistics.median(new) / statistics.median(old), 0)
        yield f"{later} less {earlier}: {written(more, 2)}, {written(times, 1)} times"


def is_overstated(line: dict[str, Any]) -> bool:
    """Return whether fewer units have what the name says than half of what the release says.

    Without support lines a release says that all of a topic's noisy size is about its name.
    """
    if line["support"] is None:
        return bool(line["either"] * line["units"] < line["size"] / 2)
    return any(one["true"] < one["said"] / 2 for one in line["support"])


def _median(lines: Sequence[dict[str, Any]], figure: str) -> str:
    values = [line[figure] for line in lines if line[figure] is not None]
    return f"{statistics.median(values):.3f}" if values else "-"


if __name__ == "__main__":
    main()
