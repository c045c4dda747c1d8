"""How often `almoner insights compare` calls something a change in two releases of one corpus, where nothing changed.

    F="--levels low --methods anchored --readings matched --trials 10 --keywords tfidf public"
    python -m benchmarks.insights.cells --version COMMIT --corpus chats --counts 23 64 $F --out CHATS
    python -m benchmarks.insights.cells --version COMMIT --corpus synthetic --units 10000 --counts 32 64 $F --out MADE
    python -m benchmarks.insights.compare --cells CHATS MADE   # writes docs/figures/insights_compare.jsonl
    python -m benchmarks.insights.compare                      # the table of docs/insights-compare.md

Every two releases of the same configuration are compared: clusters alone, descriptions in their plain form. A line of
the file is one comparison. Releases take part in several comparisons, so these are not independent: intervals of shares
come from a bootstrap over releases, and the share of comparisons with a verdict has one over comparisons that have no
release in common (`disjoint`): those of the first release with the second, of the third with the fourth and so on.
"""

import argparse
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.insights.cells import cells_in
from tasks.insights.cluster_descriptions import plain_topic
from tasks.insights.compare import ALPHA, ReleasedTopics, compare
from tasks.values.insight import Insight

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "insights_compare.jsonl"
COMPARED: Mapping[str, str] = {
    "system": "urania", "text": "plain", "level": "low", "method": "anchored", "reading": "matched", "evidence": "",
}  # fmt: skip
KEYWORDS = ("public", "tfidf")
COLUMNS = (
    "corpus", "k", "keyword set", "releases", "pairs matched", "pairs beyond noise", "comparisons with any",
    "comparisons with `grew` or `shrank`", "usual factor",
)  # fmt: skip

Line = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, nargs="+", help="folders that cells.py wrote")
    parser.add_argument("--to", type=Path, default=OUT)
    arguments = parser.parse_args()
    if arguments.cells:
        write_lines(arguments.to, [line for folder in arguments.cells for line in comparisons(cells_in(folder))])
    print("\n".join(table(read_lines(arguments.to))))


def comparisons(cells: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield a line for every two releases of each configuration."""
    by_configuration = defaultdict(list)
    for line in cells:
        cell = line["cell"]
        if COMPARED.items() <= cell.items() and cell["keywords"] in KEYWORDS:
            by_configuration[cell["corpus"], line["units"], cell["count"], cell["keywords"]].append(line)
    for (corpus, units, count, keywords), own in sorted(by_configuration.items()):
        releases = sorted(own, key=lambda line: int(line["cell"]["trial"]))
        for old, new in combinations(releases, 2):
            places = [old["cell"]["trial"], new["cell"]["trial"]]
            head = {"version": new["version"], "corpus": corpus, "units": units, "count": count, "keywords": keywords}
            yield {**head, "releases": places, **outcome(released(old), released(new))}


def outcome(old: ReleasedTopics, new: ReleasedTopics) -> dict[str, Any]:
    """Return the figures of one comparison."""
    result = compare(old, new)
    return {
        "pairs": len(result.changes),
        "new": len(result.new),
        "beyond": sum(change.p_value is not None and change.p_value <= ALPHA for change in result.changes),
        "verdicts": sum(change.verdict is not None and change.verdict.is_change for change in result.changes),
        "spread": None if result.spread is None else round(result.spread, 4),
    }


def released(line: Line) -> ReleasedTopics:
    """Return the clusters of a cell with the noise of their sizes; names in the plain form."""
    rows = (
        Insight(
            number,
            None,
            0,
            plain_topic(row["keywords"]),
            tuple(row["keywords"]),
            row["size"],
            clusters=row.get("clusters", 1),
        )
        for number, row in enumerate(line["insights"], 1)
    )
    return ReleasedTopics(tuple(rows), line["noise"]["size"])


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the page's table, Markdown, a row for each configuration."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    by_configuration = defaultdict(list)
    for line in lines:
        by_configuration[line["corpus"], line["units"], line["count"], line["keywords"]].append(line)
    for (corpus, units, count, keywords), own in by_configuration.items():
        releases = len({place for line in own for place in line["releases"]})
        cells = (f"{corpus}, {units:,} units", str(count), f"`{keywords}`", str(releases), *_figures(own))
        yield f"| {' | '.join(cells)} |"


def _figures(lines: Sequence[Line]) -> Iterator[str]:
    for part, whole in (("pairs", ("pairs", "new")), ("beyond", ("pairs",))):
        yield written([100 * value for value in share(lines, part, whole)], 0, " %")
    for name in ("beyond", "verdicts"):
        yield f"{sum(line[name] > 0 for line in lines)} of {len(lines)}"
    spreads = [line["spread"] for line in lines if line["spread"] is not None]
    yield f"{math.exp(statistics.median(spreads)):.2f}" if spreads else "-"


def share(lines: Sequence[Line], part: str, whole: Sequence[str], rounds: int = 2000) -> list[float]:
    """Return the share of a figure in the sum of others, with a 95 % percentile interval over releases.

    Releases are drawn with replacement, two different ones or more; a comparison counts as often as both of its
    releases together were drawn.
    """
    releases = sorted({place for line in lines for place in line["releases"]})
    source, drawn = random.Random(0), []
    for number in range(rounds + 1):
        often = Counter(releases)
        while number and len(often := Counter(source.choices(releases, k=len(releases)))) < 2:
            pass
        weights = [often[line["releases"][0]] * often[line["releases"][1]] for line in lines]
        parts = sum(weight * line[part] for weight, line in zip(weights, lines, strict=True))
        all_of_it = sum(weight * line[name] for weight, line in zip(weights, lines, strict=True) for name in whole)
        drawn.append(parts / max(1, all_of_it))
    value, again = drawn[0], sorted(drawn[1:])
    return [value, again[round(0.025 * rounds)], again[round(0.975 * rounds) - 1]]


def disjoint(lines: Sequence[Line]) -> list[Line]:
    """Return the comparisons of which no two have a release in common."""
    return [line for line in lines if line["releases"][0] % 2 == 0 and line["releases"][1] == line["releases"][0] + 1]


if __name__ == "__main__":
    main()
