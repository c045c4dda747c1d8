"""The plot of the benchmark of systems that show a model no private text; `python -m benchmarks.results` draws it.

Lines are means over trials, bands Student's 95 % intervals of the mean; of two trials, both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from benchmarks.common.plotting import around, band, plt

Line = Mapping[str, Any]
EPSILONS = ("1", "3", "6", "10", "15")
NAMES = {"agnews": "AG News, 4 labels", "dbpedia14": "DBpedia, 14 labels", "mts_dialog": "mts_dialog, 9 sections"}
LOOKS = {
    "seeding_independent": ("#0b5fa5", "o", "-", "keyphrase seeding, independent"),
    "seeding_iterative": ("#6aa6d6", "o", "--", "keyphrase seeding, iterative"),
    "seeding_selected": ("#083a66", "P", "-.", "keyphrase seeding, selected vocabulary"),
    "phrases_independent": ("#3b8a3a", "D", "-", "its phrases alone, independent"),
    "phrases_iterative": ("#8fc08e", "D", "--", "its phrases alone, iterative"),
    "phrases_selected": ("#777777", "v", "-", "phrases alone, selected vocabulary"),
    "evolution_1x": ("#f0b46a", "s", "--", "private evolution, as many prompts"),
    "evolution_10x": ("#d1730a", "s", "-", "private evolution, ten times the prompts"),
    "evolution_votes_at_random": ("#8c564b", "3", ":", "control: evolution, votes at random"),
    "invisible_ink": ("#7a3e9d", "^", "-", "InvisibleInk"),
    "public_only": ("#444444", "x", ":", "public only"),
    "names": ("#b03060", "1", ":", "control: label names, no data"),
    "phrases_named": ("#d98aa5", "2", ":", "control: phrases near label names, no data"),
    "real": ("#000000", "*", "-.", "real texts, no privacy"),
}
FREE = ("public_only", "names", "phrases_named", "real")
ROWS = {"accuracy": "accuracy", "coral": "accuracy with CORAL"}


def draw(lines: Sequence[Line]) -> Any:
    """Rows: plainly, and after CORAL; columns: corpora."""
    corpora = [name for name in NAMES if any(line["cell"]["corpus"] == name for line in lines)]
    figure, axes = plt.subplots(len(ROWS), len(corpora), figsize=(10.2, 6.8), sharex=True, squeeze=False)
    for column, corpus in enumerate(corpora):
        for row, (name, label) in enumerate(ROWS.items()):
            panel = axes[row][column]
            _levels(panel, [line for line in lines if line["cell"]["corpus"] == corpus], name)
            panel.set_title(NAMES[corpus] if row == 0 else "", fontsize=9)
            panel.set_ylabel(label if column == 0 else "")
            panel.set_xlabel("epsilon" if row else "")
    _legend(figure, axes)
    return figure


def _levels(panel: Axes, lines: Sequence[Line], name: str) -> None:
    for system, (colour, marker, dashes, title) in LOOKS.items():
        mine = [line for line in lines if line["cell"]["system"] == system]
        points = []
        for place, epsilon in enumerate(EPSILONS):
            there = values(mine, "" if system in FREE else epsilon, name)
            if there:
                points.append((place, *around(there)))
        looks = {"color": colour, "marker": "" if system in FREE else marker, "linestyle": dashes, "label": title}
        band(panel, points, alpha=0.1, linewidth=1.4, **looks)
    panel.set_xticks(range(len(EPSILONS)))
    panel.set_xticklabels(EPSILONS)


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=8)


def values(lines: Sequence[Line], epsilon: str, name: str) -> list[float]:
    """One figure of all trials that have it."""
    return [line[name] for line in lines if line["cell"]["epsilon"] == epsilon and line[name] is not None]
