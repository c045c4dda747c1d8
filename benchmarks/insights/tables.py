"""Scores and tables of the insights benchmark, from the cells that `insights/cells.py` has made.

    python -m benchmarks.insights.tables --cells FOLDER     # scores cells: docs/figures/insights.jsonl

A line of insights.jsonl is a cell with its scores and without its texts. Figures are means over trials; brackets are
Student's 95 % interval of the mean over trials, whose randomness is that of the mechanisms, or of two the smaller and
the larger.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import interval_of_mean
from benchmarks.common.plotting import spread
from benchmarks.insights.cells import OUT, cells_in
from benchmarks.insights.data import SYNTHETIC
from benchmarks.insights.metrics import compared, coverage, detected
from benchmarks.insights.systems import INFINITY, LEVELS, KeepingPoints
from tasks.evaluation.evaluation_input import points
from tasks.inference.embeddings.encoder import load_embedder
from tasks.text.public_models import load_tagger

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
Line = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, required=True, help=f"the folder that insights.py wrote, such as {OUT}")
    parser.add_argument("--to", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    made = [*scored(arguments.cells), *others(arguments.cells)]
    results = arguments.to / "insights.jsonl"
    results.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in made), encoding="utf-8")


def scored(folder: Path) -> Iterator[Line]:
    """Each cell held against SIMPLE-CLIO's insights of the same corpus, number of clusters and way of describing."""
    embed, tag = KeepingPoints(load_embedder()), KeepingChunks(load_tagger())
    lines = cells_in(folder)
    public = {_place(line): _texts(line) for line in lines if line["cell"]["system"] == "simple_clio"}
    for line in lines:
        reference, texts = public[_place(line)], _texts(line)
        found = compared(texts, reference, embed, tag)
        drawn = line.get("by_chance", [])
        chance = coverage(points(embed, drawn), points(embed, reference)) if drawn else None
        kept = {
            name: line[name] for name in ("cell", "units", "machine", "clusters", "cost", "known", "work", "peak_mib")
        }
        released = line["keywords"]["released"] if "keywords" in line else None
        figures = {**{name: _short(value) for name, value in found.items()}, "topics_by_chance": _short(chance)}
        # What SIMPLE-CLIO says may repeat a text.
        examples = texts[:3] if line["cell"]["system"] == "urania" else []
        more = {"figures": figures, "keywords_released": released, "examples": examples, "noise": line.get("noise")}
        yield {"version": line["version"], **kept, "seconds": line["seconds"], "rho": line.get("rho"), **more}


@dataclass
class KeepingChunks:
    """A tagger that reads each text once."""

    tag: Any
    known: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.tag.name)

    def __call__(self, texts: Sequence[str]) -> Any:
        return self.tag(texts)

    def noun_chunks(self, texts: Sequence[str]) -> list[Any]:
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(missing, self.tag.noun_chunks(missing), strict=True))
        return [self.known[text] for text in texts]


def others(folder: Path) -> Iterator[Line]:
    """Leakage with its scores, and whether the model can judge."""
    for path in sorted(folder.glob("leakage_*.json")):
        line = json.loads(path.read_text())
        line["scores"] = [_short(score) for score in line["scores"]]
        yield {"leakage": path.stem, **line, "values": detected(line["scores"], line["there"]).values()}
    if (folder / "judge.json").exists():
        yield {"judge": json.loads((folder / "judge.json").read_text())}


def _place(line: Line) -> tuple[Any, ...]:
    cell = line["cell"]
    return cell["corpus"], cell["count"], cell["text"], cell["facets"]


def _texts(line: Line) -> list[str]:
    return [row["text"] for row in line["insights"]]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


Place = tuple[str, int]
CHATS_23: Place = ("chats", 23)
SYNTHETIC_128: Place = (SYNTHETIC, 128)
OF_LEVELS: Mapping[str, tuple[str, Sequence[Place]]] = {
    "kept": ("clusters kept", (CHATS_23, SYNTHETIC_128)),
    "above_chance": ("topic coverage, less that of keywords at random", (CHATS_23,)),
    "found": ("known topics found", (SYNTHETIC_128,)),
    "named": ("known topics named", (SYNTHETIC_128,)),
    "named_by_chance": ("the same by keywords at random", (SYNTHETIC_128,)),
}
INTERVALS = ("found", "named", "named_by_chance")
"""Figures between 0 and 1 that have an interval; of counts there are the smallest and the largest."""


def levels_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the table of docs/insights-results.md: TF-IDF, plain descriptions, the matched reading.

    Means; brackets are Student's 95 % interval over trials, of two trials both.
    """
    levels = {**{name: f"{name} ({', '.join(own)})" for name, own in LEVELS.items()}, INFINITY: "no noise"}
    yield f"| figure | corpus | clusterer | {' | '.join(levels.values())} |"
    yield "| --- | --- | --- |" + " --- |" * len(levels)
    wanted = {"system": "urania", "keywords": "tfidf", "text": "plain", "reading": "matched", "facets": "rake"}
    mine = [line for line in lines if "cell" in line and wanted.items() <= line["cell"].items()]
    mine = [line for line in mine if line["cell"].get("evidence") != "counts"]
    for figure, (title, places) in OF_LEVELS.items():
        for corpus, count in places:
            here = [line for line in mine if (line["cell"]["corpus"], line["cell"]["count"]) == (corpus, count)]
            for method in sorted({str(line["cell"]["method"]) for line in here}):
                own = [line for line in here if line["cell"]["method"] == method]
                trials = ([line for line in own if line["cell"]["level"] == level] for level in levels)
                cells = [told([value_of(line, figure) for line in some], figure) for some in trials]
                yield f"| {title} | {corpus}, k = {count} | {method} | {' | '.join(cells)} |"


def value_of(line: Line, name: str) -> float | None:
    """A figure of a cell, wherever it stands; `above_chance` is paired, of one release and its random keywords."""
    if name == "above_chance":
        both = line["figures"]["topics"], line["figures"]["topics_by_chance"]
        return None if None in both else both[0] - both[1]
    for part in ("figures", "clusters", "known"):
        if line.get(part) and name in line[part]:
            found: float | None = line[part][name]
            return found
    return None


def told(values: Sequence[float | None], name: str) -> str:
    """Mean and interval; counts with the smallest and the largest."""
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    mean = sum(there) / len(there)
    if name == "kept":
        return f"{mean:.0f}" if min(there) == max(there) else f"{mean:.0f} ({min(there):.0f} to {max(there):.0f})"
    if name == "above_chance" and len(there) > 2:
        return "{:.3f} ({:.2f} to {:.2f})".format(*interval_of_mean(there))
    ends = spread(there) if name in (*INTERVALS, "above_chance") else None
    return f"{mean:.3f}" if ends is None else f"{mean:.3f} ({ends[0]:.2f} to {ends[1]:.2f})"


def leakage_rows(lines: Sequence[Line]) -> list[str]:
    """AUC of the detector with its interval."""
    made = ["| system | level | runs | insights a run | AUC | TPR at 1 % FPR |", "|" + " --- |" * 6]
    for line in lines:
        values, runs = line["values"], len(line["scores"])
        mean = sum(line["insights"]) / runs
        auc = f"{values['auc']} ({values['auc_low']} to {values['auc_high']})"
        made.append(
            f"| {line['system']} | {line['level'] or '-'} | {runs} | {mean:.1f} | {auc} | {told_rate(values)} |"
        )
    return made


def told_rate(values: Mapping[str, Any]) -> str:
    """The true-positive rate where false alarms are rare, with its interval."""
    rate, low, high = (values.get(f"tpr_at_1_percent{end}") for end in ("", "_low", "_high"))
    return f"{rate} ({low} to {high})" if rate is not None else "-"


if __name__ == "__main__":
    main()
