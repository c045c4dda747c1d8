"""The figure of docs/utility.md from docs/figures/utility.jsonl; `python -m benchmarks.results` draws it.

Lines are means over texts, bands are 95 % bootstrap intervals over texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from benchmarks.common.plotting import band, plt
from benchmarks.utility.next_tokens import EPSILONS, NAMES, TITLES, USUAL_ROWS, Measured, interval
from benchmarks.utility.systems import AMIN, ICL, INK, MEAN, PAPER, PRIVATE_SYSTEMS, PUBLIC, SINGLE, Setting

COLOURS = {INK: "#0b5fa5", PAPER: "#d1730a", AMIN: "#7a3e9d", ICL: "#3b8a3a"}
UNPROTECTED = {PUBLIC: ("#444444", (0, (6, 2))), SINGLE: ("#999999", (0, (2, 2))), MEAN: ("#000000", (0, (1, 1)))}
MARKERS = {INK: "o", PAPER: "s", AMIN: "^", ICL: "D"}
FIGURES = {
    "kl": "KL from the unclipped mean (nats)",
    "loss": "loss of the real next token\nless public only's (nats)",
}


Results = Mapping[tuple[str, Setting], Measured]


def draw(results: Results) -> Any:
    """Both figures of merit against epsilon, a row of panels for each and a column for each data set."""
    figure, axes = plt.subplots(
        len(FIGURES), len(NAMES), figsize=(3.1 * len(NAMES) + 0.4, 5.6), squeeze=False, sharey="row"
    )
    for column, data in enumerate(NAMES):
        for row, name in enumerate(FIGURES):
            panel = axes[row][column]
            draw_panel(panel, {s: found for (d, s), found in results.items() if d == data}, name)
            panel.set_title(f"{NAMES[data]}, B = {USUAL_ROWS}" if row == 0 else "", fontsize=9)
            panel.set_xlabel("epsilon (delta 1e-5, 200 tokens)" if row == len(FIGURES) - 1 else "")
            panel.set_ylabel(FIGURES[name] if column == 0 else "")
    handles, labels = axes[-1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.01), ncol=4, fontsize=8.5)
    figure.tight_layout()
    return figure


def draw_panel(panel: Axes, mine: Mapping[Setting, Measured], name: str) -> None:
    """Every system's line with its band, and the lines of what is not protected."""
    for system in (*PRIVATE_SYSTEMS, *UNPROTECTED):
        if system == MEAN and name == "kl":
            continue
        settings = {each: Setting(system, None if system in UNPROTECTED else each, USUAL_ROWS) for each in EPSILONS}
        points = [(float(each), *shown(setting, mine, name)) for each, setting in settings.items() if setting in mine]
        if points:
            draw_line(panel, system, points)
    panel.set_xscale("log")
    if name == "kl":
        panel.set_yscale("log")
    else:
        panel.set_yscale("symlog", linthresh=0.4, linscale=2)
        panel.yaxis.set_major_locator(FixedLocator([-0.4, -0.2, 0, 0.2, 0.4, 1, 3]))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_locator(FixedLocator([float(each) for each in EPSILONS]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticklabels(EPSILONS)


def draw_line(panel: Axes, system: str, points: Sequence[tuple[float, float, float, float]]) -> None:
    if system in UNPROTECTED:
        colour, dashes = UNPROTECTED[system]
        x, middle, *_ = zip(*points, strict=True)
        panel.plot(x, middle, color=colour, linestyle=dashes, linewidth=1.4, label=TITLES[system])
        return
    looks = {"color": COLOURS[system], "marker": MARKERS[system], "label": TITLES[system]}
    band(panel, points, alpha=0.15, linewidth=1.5, **looks)


def shown(setting: Setting, mine: Mapping[Setting, Measured], name: str) -> tuple[float, float, float]:
    """Mean and interval; a loss is paired, text by text, with public only at the same k and temperature 1."""
    values = mine[setting].figures[name]
    if name == "kl":
        middle, low, high = (max(value, 1e-5) for value in interval(values))  # below it, the axis ends
        return middle, low, high
    public = Setting(PUBLIC, None, setting.references, top_k=setting.top_k)
    return interval([own - other for own, other in zip(values, mine[public].figures[name], strict=True)])
