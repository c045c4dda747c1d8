"""Figures of docs/utility.md from docs/figures/utility.jsonl; `python -m benchmarks.results` draws them.

Lines are means over texts, bands are 95 % bootstrap intervals over texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from benchmarks.common.plotting import band, plt
from benchmarks.utility.next_tokens import (
    CANDIDATES,
    CLIPS,
    EPSILONS,
    NAMES,
    ROWS,
    TEMPERATURES,
    TITLES,
    USUAL_ROWS,
    Measured,
    interval,
)
from benchmarks.utility.systems import (
    AMIN,
    AMIN_PRIVATE,
    ICL,
    INK,
    MEAN,
    PAPER,
    PRIVATE_SYSTEMS,
    PUBLIC,
    SINGLE,
    Setting,
)

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
COLOURS = {INK: "#0b5fa5", PAPER: "#d1730a", AMIN: "#7a3e9d", AMIN_PRIVATE: "#b58bd0", ICL: "#3b8a3a"}
UNPROTECTED = {PUBLIC: ("#444444", (0, (6, 2))), SINGLE: ("#999999", (0, (2, 2))), MEAN: ("#000000", (0, (1, 1)))}
MARKERS = {INK: "o", PAPER: "s", AMIN: "^", AMIN_PRIVATE: "v", ICL: "D"}
FIGURES = {
    "kl": "KL from the unclipped mean (nats)",
    "loss": "loss of the real next token\nless public only's (nats)",
}


@dataclass(frozen=True)
class Sweep:
    """One figure: what its x-axis goes through, for one column of panels each.

    Attributes:
        columns: title of a column -> the setting that its points vary.
        vary: a point's setting for a value of the x-axis.
    """

    name: str
    label: str
    values: Sequence[str]
    columns: Mapping[str, Setting]
    vary: Callable[[Setting, str], Setting]
    systems: Sequence[str]
    logarithmic: bool = True


def sweeps() -> list[Sweep]:
    """Every figure but the histograms, whose script is gone."""
    usual = Setting(INK, "3", USUAL_ROWS)
    both = {f"epsilon {epsilon}": replace(usual, epsilon=epsilon) for epsilon in ("3", "10")}
    systems = tuple(PRIVATE_SYSTEMS)

    def rows(setting: Setting, value: str) -> Setting:
        return replace(setting, references=int(value))

    def width(setting: Setting, value: str) -> Setting:
        return replace(setting, top_k=int(value))

    return [
        Sweep("epsilon", "epsilon (delta 1e-5, 200 tokens)", EPSILONS, {f"B = {USUAL_ROWS}": usual},
              lambda setting, value: replace(setting, epsilon=value), systems),
        Sweep("batch", "private rows B", [str(count) for count in ROWS], both, rows, systems),
        Sweep("temperature", "temperature", TEMPERATURES, both,
              lambda setting, value: replace(setting, temperature=value), systems, logarithmic=False),
        Sweep("top_k", "candidates k", [str(count) for count in CANDIDATES], both, width, systems),
        Sweep("clip_norm", "clip norm (logits)", CLIPS, {f"B = {USUAL_ROWS}": replace(usual, epsilon=None)},
              lambda setting, value: replace(setting, clip=value), (INK, PAPER, AMIN_PRIVATE, ICL)),
    ]  # fmt: skip


Results = Mapping[tuple[str, Setting], Measured]


def draw_sweep(sweep: Sweep, results: Results) -> Any:
    """A row of panels for each figure of merit, a column for each data set and fixed setting."""
    columns = [(data, title, setting) for data in NAMES for title, setting in sweep.columns.items()]
    figure, axes = plt.subplots(
        len(FIGURES), len(columns), figsize=(3.1 * len(columns) + 0.4, 5.6), squeeze=False, sharey="row"
    )
    for column, (data, title, setting) in enumerate(columns):
        for row, name in enumerate(FIGURES):
            panel = axes[row][column]
            draw_panel(panel, sweep, {s: found for (d, s), found in results.items() if d == data}, setting, name)
            panel.set_title(f"{NAMES[data]}, {title}" if row == 0 else "", fontsize=9)
            panel.set_xlabel(sweep.label if row == len(FIGURES) - 1 else "")
            panel.set_ylabel(FIGURES[name] if column == 0 else "")
    handles, labels = axes[-1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.01), ncol=4, fontsize=8.5)
    figure.tight_layout()
    return figure


def draw_panel(panel: Axes, sweep: Sweep, mine: Mapping[Setting, Measured], fixed: Setting, name: str) -> None:
    """Every system's line with its band, and the lines of what is not protected."""
    places = dict(zip(sweep.values, positions(sweep), strict=True))
    for system in (*sweep.systems, *UNPROTECTED):
        points = []
        for value in sweep.values:
            setting = sweep.vary(replace(fixed, system=system), value)
            if system in UNPROTECTED:
                setting = replace(setting, epsilon=None, clip=None)
            if setting in mine and not (system == MEAN and name == "kl"):
                points.append((places[value], *shown(setting, mine, name)))
        if points:
            draw_line(panel, system, points)
    if sweep.logarithmic:
        panel.set_xscale("log")
    if name == "kl":
        panel.set_yscale("log")
    else:
        panel.set_yscale("symlog", linthresh=0.4, linscale=2)
        panel.yaxis.set_major_locator(FixedLocator([-0.4, -0.2, 0, 0.2, 0.4, 1, 3]))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_locator(FixedLocator(list(places.values())))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xticklabels(["all" if value == "0" else value for value in sweep.values])


def positions(sweep: Sweep) -> list[float]:
    """Where values stand; the whole vocabulary, written 0, stands after the others at its size."""
    return [float(value) or 49152.0 for value in sweep.values]


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
