"""Plots of the insights benchmark, drawn by `insights/tables.py` from docs/figures/insights.jsonl."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from benchmarks.common.plotting import STYLE, band, plt, save, spread
from benchmarks.insights.metrics import curve
from benchmarks.insights.systems import INFINITY, LEVELS

Line = Mapping[str, Any]
LOOKS = {
    "anchored": ("#0b5fa5", "o", "anchored means, the default"),
    "lsh_tree": ("#d1730a", "s", "LSH tree, the paper's"),
}
COLUMNS = (
    ("chats", 23, "chats: 3,470 units, k = 23"),
    ("chats", 64, "chats: k = 64"),
    ("synthetic", 128, "synthetic: 50,000 units, k = 128"),
)
READINGS = {"matched": "-", "paper": (0, (4, 2))}
_CHANCE = "#999999"


def draw_all(lines: Sequence[Line], folder: Path) -> None:
    """Save every plot for which there are results."""
    with plt.rc_context(STYLE):
        for name, figure in drawings(lines):
            save(figure, folder / f"{name}.svg")


def drawings(lines: Sequence[Line]) -> Iterator[tuple[str, Any]]:
    """Yield every plot for which there are results, with its name."""
    cells = [line for line in lines if "cell" in line and line["cell"]["text"] == "plain"]
    cells = [line for line in cells if line["cell"].get("evidence") != "counts"]
    if cells:
        yield "insights_levels", draw_levels(cells)
    if leaking := [line for line in lines if "leakage" in line]:
        yield "insights_leakage", draw_leakage(leaking)


def draw_levels(cells: Sequence[Line]) -> Any:
    """Rows: clusters kept, coverage of public topics, known topics found; columns: corpora."""
    rows = (("kept", "clusters kept"), ("topics", "topic coverage"), ("found", "known topics found"))
    figure, axes = plt.subplots(len(rows), len(COLUMNS), figsize=(10.2, 7.6), squeeze=False)
    for column, (corpus, count, title) in enumerate(COLUMNS):
        some = [line for line in cells if (line["cell"]["corpus"], line["cell"]["count"]) == (corpus, count)]
        for row, (name, label) in enumerate(rows):
            panel = axes[row][column]
            if name == "found" and corpus != "synthetic":
                panel.set_visible(False)
                continue
            _panel(panel, some, name)
            panel.set_title(title if row == 0 else "", fontsize=9)
            panel.set_ylabel(label if column == 0 or name == "found" else "")
            panel.set_ylim(bottom=0)
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.05, 0.08), fontsize=8)
    figure.tight_layout()
    return figure


def _panel(panel: Axes, cells: Sequence[Line], name: str) -> None:
    levels = [*LEVELS, INFINITY]
    for method, (colour, marker, title) in LOOKS.items():
        for reading, dashes in READINGS.items():
            mine = [line for line in cells if line["cell"]["method"] == method and line["cell"]["keywords"] == "tfidf"]
            mine = [line for line in mine if line["cell"]["reading"] == reading or line["cell"]["level"] == INFINITY]
            label = f"{title}; {reading} reading"
            _draw_line(
                panel, levels, mine, name, {"color": colour, "marker": marker, "linestyle": dashes, "label": label}
            )
    if name == "topics":
        chance = [
            line for line in cells if line["cell"]["method"] == "anchored" and line["cell"]["reading"] == "matched"
        ]
        chance = [line for line in chance if line["cell"]["keywords"] == "tfidf"]
        looks = {"color": _CHANCE, "marker": "", "linestyle": ":", "label": "keywords at random, matched reading"}
        _draw_line(panel, levels, chance, "topics_by_chance", looks)
    panel.set_xticks(range(len(levels)))
    panel.set_xticklabels(
        [f"{level}\n({', '.join(LEVELS[level])})" if level in LEVELS else "no noise" for level in levels]
    )


def _draw_line(panel: Axes, levels: Sequence[str], cells: Sequence[Line], name: str, looks: Mapping[str, Any]) -> None:
    points = []
    for place, level in enumerate(levels):
        found = [_value(line, name) for line in cells if line["cell"]["level"] == level]
        there = [value for value in found if value is not None]
        if there:
            mean = sum(there) / len(there)
            low, high = (spread(there) if name != "kept" else None) or (min(there), max(there))
            points.append((place, mean, low, high))
    band(panel, points, alpha=0.12, linewidth=1.4, **looks)


def _value(line: Line, name: str) -> float | None:
    for part in ("figures", "clusters", "known"):
        if line.get(part) and name in line[part]:
            found: float | None = line[part][name]
            return found
    return None


def draw_leakage(lines: Sequence[Line]) -> Any:
    """ROC curves of the detector, as the paper's figure 2."""
    figure, panel = plt.subplots(figsize=(4.6, 4.4))
    colours = ("#444444", "#d1730a", "#0b5fa5", "#3b8a3a")
    for line, colour in zip(lines, colours, strict=False):
        false, true = curve(line["scores"], line["there"])
        values, title = line["values"], f"{line['system']} {line['level']}".strip()
        label = f"{title}: AUC {values['auc']} ({values['auc_low']} to {values['auc_high']})"
        panel.plot(false, true, color=colour, linewidth=1.4, label=label)
    panel.plot([0, 1], [0, 1], color=_CHANCE, linestyle=":", linewidth=1)
    panel.set_xlabel("false-positive rate")
    panel.set_ylabel("true-positive rate")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8)
    figure.tight_layout()
    return figure
