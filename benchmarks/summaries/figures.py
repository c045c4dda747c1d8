"""The figure and the table of the summaries benchmark, made again from the results beside them.

    python -m benchmarks.summaries.cells                        # docs/figures/summaries.jsonl
    python -m benchmarks.summaries.figures                # docs/figures/summaries_*.svg
    python -m benchmarks.summaries.figures --rescore      # with every score worked out anew, where the data are

Points are means over products and trials; bands and brackets are 95 % bootstrap intervals over products, each product
with the mean of its trials. A cell that is missing has no point.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.common.json_lines import DATA, read_lines
from benchmarks.common.plotting import STYLE, band, plt, save
from benchmarks.summaries.data import products
from benchmarks.summaries.scores import SCORES, KeepingPieces, scores
from benchmarks.summaries.systems import BY_NAME, EPSILONS, NO_NOISE, SYSTEMS_COMPARED
from benchmarks.utility.next_tokens import interval
from tasks.inference.embeddings.encoder import load_embedder

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
TITLES = {
    "rouge_1": "ROUGE-1 F1",
    "rouge_l": "ROUGE-L F1",
    "bert_score": "BERTScore F1",
    "leak": "texts with a placeholder",
}
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "a noisy mean or a draw for each token": ("token_level_paper", "token_level", "ink"),
    "the same, held to a form": ("token_level_form", "ink_form"),
    "one noisy mean": ("one_shot_paper", "one_shot", "one_shot_centres", "one_shot_4"),
}
LOOKS: Mapping[str, tuple[str, str]] = {
    "token_level_paper": ("#d1730a", "s"),
    "token_level": ("#0b5fa5", "o"),
    "token_level_form": ("#0b5fa5", "o"),
    "ink": ("#3b8a3a", "D"),
    "ink_form": ("#3b8a3a", "D"),
    "one_shot_paper": ("#d1730a", "s"),
    "one_shot": ("#0b5fa5", "o"),
    "one_shot_centres": ("#7a3e9d", "^"),
    "one_shot_4": ("#b03060", "v"),
}
LEVELS: Mapping[str, tuple[str, Any]] = {
    "public_only": ("#444444", (0, (6, 2))),
    "public_only_form": ("#999999", (0, (2, 2))),
    "non_private": ("#000000", (0, (1, 1))),
}
Place = tuple[str, str | None]
Results = Mapping[Place, Mapping[str, Mapping[str, float]]]
"""(system, epsilon) -> product -> score -> its mean over trials."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER / "summaries.jsonl")
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--format", default="svg")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rescore", action="store_true", help="work out every score anew and write it down")
    arguments = parser.parse_args()
    if arguments.rescore:
        rescore(arguments.results, arguments.data)
    with plt.rc_context(STYLE):
        save(draw(gathered(read_lines(arguments.results))), arguments.to / f"summaries_epsilon.{arguments.format}")


def short_table(results: Results) -> Iterator[str]:
    """Yield the table of docs/summaries-results.md: ROUGE-L / BERTScore, without their intervals."""
    columns = ("2", "10", "50", "120", NO_NOISE)
    yield from _head("system", [*(f"epsilon {each}" for each in columns[:-1]), "no noise"])
    for system in SYSTEMS_COMPARED:
        epsilons = (None,) if system.epsilons == (None,) else columns
        found = [[shown(results, (system.name, each), name) for name in ("rouge_l", "bert_score")] for each in epsilons]
        cells = [" / ".join(f"{score[0]:.3f}" for score in pair if score) for pair in found]
        yield f"| {system.title} | {' | '.join([*cells, *[''] * (len(columns) - len(cells))])} |"


def rescore(path: Path, data: Path) -> None:
    """Write the results again with scores that are worked out from their texts."""
    embed = KeepingPieces(load_embedder())
    people = {product.id: product.summaries for product in products(data, "test")}
    lines = read_lines(path)
    for line in lines:
        for text in (each for each in line["texts"] if "text" in each):
            text |= scores(text["text"], people[text["group"]], embed)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def gathered(lines: Sequence[Mapping[str, Any]]) -> Results:
    """The mean score of each product over the trials of each system and epsilon."""
    found: dict[Place, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cell = line["cell"]
        for text in line["texts"]:
            found[cell["system"], cell["epsilon"]][text["group"]].append(text)
    return {
        place: {group: {name: _mean([text[name] for text in texts]) for name in SCORES} for group, texts in by.items()}
        for place, by in found.items()
    }


def shown(results: Results, place: Place, name: str) -> tuple[float, float, float] | None:
    """Mean over products, and its interval; None where the cell is missing."""
    if place not in results:
        return None
    return interval([by[name] for _, by in sorted(results[place].items())])


def draw(results: Results) -> Any:
    """A row of panels for each score, a column for each family."""
    figure, axes = plt.subplots(
        len(SCORES), len(COLUMNS), figsize=(3.4 * len(COLUMNS) + 0.4, 2.5 * len(SCORES)), squeeze=False, sharey="row"
    )
    for column, (title, systems) in enumerate(COLUMNS.items()):
        for row, name in enumerate(SCORES):
            panel = axes[row][column]
            draw_panel(panel, results, systems, name)
            panel.set_title(title if row == 0 else "", fontsize=9)
            panel.set_xlabel("epsilon (delta 1e-6, one summary a product)" if row == len(SCORES) - 1 else "")
            panel.set_ylabel(TITLES[name] if column == 0 else "")
        axes[-1][column].legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), fontsize=8)
    figure.tight_layout()
    return figure


def draw_panel(panel: Axes, results: Results, systems: Sequence[str], name: str) -> None:
    """Every system's line with its band, and what is not private as level lines."""
    for system in systems:
        points = [(float(each), *found) for each in EPSILONS if (found := shown(results, (system, each), name))]
        colour, marker = LOOKS[system]
        band(panel, points, alpha=0.15, color=colour, marker=marker, linewidth=1.5, label=BY_NAME[system].title)
    for system, (colour, dashes) in LEVELS.items():
        if found := shown(results, (system, None), name):
            panel.axhline(found[0], color=colour, linestyle=dashes, linewidth=1.2, label=BY_NAME[system].title)
    if name == "leak":
        panel.set_ylim(-0.05, 1.05)  # a share
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(FixedLocator([float(each) for each in EPSILONS]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticklabels(EPSILONS)


def _head(first: str, columns: Sequence[str]) -> Iterator[str]:
    yield f"| {first} | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
