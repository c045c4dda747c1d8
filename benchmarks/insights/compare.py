"""How often `almoner insights compare` calls something a change in two releases of one corpus, where nothing changed.

    python -m benchmarks.insights.cells --version COMMIT --corpus chats --levels low --methods anchored \
        --readings matched --trials 10 --keywords tfidf public --out FOLDER
    python -m benchmarks.insights.compare --cells FOLDER

Every two releases of the same configuration are compared: clusters alone, descriptions in their plain form. A line of
the table is one configuration; releases take part in several comparisons, so these are not independent.
"""

import argparse
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.insights.cells import OUT, cells_in
from tasks.insights.cluster_descriptions import plain_topic
from tasks.insights.compare import ALPHA, ReleasedTopics, Verdict, compare
from tasks.values.insight import Insight

COLUMNS = (
    "corpus", "k", "keyword set", "comparisons", "pairs matched", "new", "beyond noise", "any beyond noise",
    "any verdict", "usual factor",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=OUT, help="folder that insights.py wrote")
    arguments = parser.parse_args()
    print("\n".join(table(cells_in(arguments.cells))))


def table(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table, Markdown; a configuration with one release has no line."""
    by_configuration = defaultdict(list)
    for line in cells:
        cell = line["cell"]
        if cell["system"] == "urania" and cell["level"] != "infinity":
            by_configuration[tuple((name, cell[name]) for name in sorted(cell) if name != "trial")].append(line)
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for configuration, lines in sorted(by_configuration.items()):
        if len(lines) > 1:
            cell = dict(configuration)
            figures = (str(cell[name]) for name in ("corpus", "count", "keywords"))
            yield f"| {' | '.join((*figures, *outcome(list(map(released, lines)))))} |"


def outcome(releases: Sequence[ReleasedTopics]) -> Iterator[str]:
    """Yield the figures of all comparisons of these releases."""
    counts, spreads = Counter[str](), []
    for old, new in combinations(releases, 2):
        result = compare(old, new)
        beyond = [change for change in result.changes if change.p_value is not None and change.p_value <= ALPHA]
        verdicts = [change for change in result.changes if change.verdict and change.verdict is not Verdict.UNCHANGED]
        counts += Counter(
            comparisons=1,
            pairs=len(result.changes),
            new=len(result.new),
            beyond=len(beyond),
            any_beyond=bool(beyond),
            any_verdict=any(change.verdict is not Verdict.REDRAWN for change in verdicts),
        )
        spreads += [] if result.spread is None else [result.spread]
    yield str(counts["comparisons"])
    topics = counts["pairs"] + counts["new"]
    for name, whole in (("pairs", topics), ("new", topics), ("beyond", counts["pairs"])):
        yield f"{counts[name] / max(1, whole):.0%}"
    for name in ("any_beyond", "any_verdict"):
        yield f"{counts[name] / max(1, counts['comparisons']):.0%}"
    yield f"{math.exp(statistics.median(spreads)):.2f}" if spreads else ""


def released(line: Mapping[str, Any]) -> ReleasedTopics:
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


if __name__ == "__main__":
    main()
