"""Tables and the map of `benchmarks.keyphrases`: means over trials, differences paired within a trial."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from benchmarks.common.intervals import interval_of_mean
from benchmarks.common.plotting import STYLE, plt, save
from benchmarks.keyphrases.correlations import CLOSE, EPSILONS, LENGTH, STRENGTHS, TRUE, UNITS, lines_of
from benchmarks.keyphrases.data import World
from benchmarks.keyphrases.systems import (
    BANDWIDTH,
    INDEPENDENT,
    INDEPENDENT_MEDIAN,
    ITERATIVE,
    MEDIAN,
    PRODUCT,
    SYSTEMS,
)

Line = Mapping[str, Any]
Told = tuple[float, float, float]
"""Mean, low end and high end."""

TITLES = {
    TRUE: "true units",
    INDEPENDENT: "independent",
    ITERATIVE: "iterative",
    MEDIAN: "iterative, `background: median`",
    PRODUCT: "product (not built)",
    INDEPENDENT_MEDIAN: "independent, `background: median`",
}
FIGURES = {
    "single": "TV singles",
    "pair": "TV pairs",
    "together": "pairs of one topic",
    "own": "phrases of the label",
    "label": "label told",
    "hidden": "theme told",
}
ERRORS = ("single", "pair")
"""Figures of which less is better."""

NOISE_BORNE = {ITERATIVE: 0.2, MEDIAN: 0.2, PRODUCT: 0.05}
"""The noise of a score, in relation to what a theme's phrase scores, up to which the strength alone decides."""

_MOST, _DARK = 0.6, 0.35
"""Where colours end, and where they are so dark that numbers are white."""


@dataclass(frozen=True)
class Row:
    """One row of the map: a population, a number of units and a figure."""

    world: World
    units: int
    figure: str
    title: str


ROWS = (
    *(Row(World(), units, "pair", f"topics, near 0.6, n = {units:,}") for units in UNITS),
    Row(World(near=CLOSE), UNITS[1], "pair", f"topics, near {CLOSE}, n = {UNITS[1]}"),
    Row(World("pairings", near=CLOSE), UNITS[1], "pair", f"pairings, near {CLOSE}, n = {UNITS[1]}"),
    Row(World("pairings", near=CLOSE), UNITS[1], "hidden", "the same: theme told"),
)


def told(out: Path) -> None:
    """Print all tables, and draw the map beside the results."""
    lines = lines_of(out)
    planted = [line for line in lines if "cell" in line]
    print("\n".join([*tables(lines), *rules(planted)]))
    with plt.rc_context(STYLE):
        save(draw_map(planted), out.with_suffix(".svg"))


def better(lines: Sequence[Line], system: str, figure: str) -> Told:
    """By how much a system is better than independent sequences of the same trial."""
    sign = -1 if figure in ERRORS else 1
    return interval_of_mean(
        [sign * (line["figures"][system][figure] - line["figures"][INDEPENDENT][figure]) for line in lines]
    )


def of_setting(lines: Sequence[Line], world: World, units: int, epsilon: str) -> list[Line]:
    """The trials of one setting with texts of the usual length."""
    wanted = {"kind": world.kind, "strength": world.strength, "topics": world.topics, "near": world.near}
    return [
        line
        for line in lines
        if line["cell"]["world"] == wanted
        and (line["cell"]["units"], line["cell"]["epsilon"], line["cell"]["length"]) == (units, epsilon, LENGTH)
    ]


def tables(lines: Sequence[Line]) -> Iterator[str]:
    """Markdown: what is planted, by everything that varies; then corpora."""
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        if "cell" in line:
            cell = line["cell"]
            world = cell["world"]
            key = (world["kind"], world["near"], world["topics"], cell["length"], cell["units"])
            groups[key].append(line)
    for (kind, near, topics, length, units), own in sorted(groups.items()):
        yield f"### {kind}, near {near}, {topics} topics a label, {length} phrases a text, n = {units:,}\n"
        yield from table(own, "c, epsilon", lambda line: (line["cell"]["world"]["strength"], line["cell"]["epsilon"]))
    for name in sorted({line["corpus"]["name"] for line in lines if "corpus" in line}):
        own = [line for line in lines if "corpus" in line and line["corpus"]["name"] == name]
        strength, near = mean(line["strength"] for line in own), own[0]["near"]
        yield f"### {name}: {own[0]['units']:,} units, {own[0]['vocabulary']} phrases\n"
        yield f"c = {strength:.3f}; cosine of two phrases of one text {near['text']:.3f}, of two texts of a label"
        yield f"{near['label']:.3f}, of two labels {near['others']:.3f}.\n"
        yield from table(own, "epsilon", lambda line: (line["corpus"]["epsilon"],))


def table(lines: Sequence[Line], what: str, key: Any) -> Iterator[str]:
    """A row for each setting and system."""
    shown = {name: title for name, title in FIGURES.items() if lines[0]["figures"][INDEPENDENT][name] is not None}
    head = [what, "sequences", "trials", *shown.values()]
    yield "| " + " | ".join(head) + " |\n|" + " --- |" * len(head)
    settings: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        settings[key(line)].append(line)
    order = sorted(settings, key=lambda own: (own[:-1], EPSILONS.index(own[-1])))
    for setting in order:
        named = ", ".join(str(part) if part != "" else "no noise" for part in setting)
        for system in settings[setting][0]["figures"]:
            cells = [_cell([line["figures"][system][name] for line in settings[setting]]) for name in shown]
            yield "| " + " | ".join([named, title(system), str(len(settings[setting])), *cells]) + " |"
    yield ""


def title(system: str) -> str:
    """As people read it, also of shuffled texts."""
    base, comma, shuffled = system.partition(", ")
    return TITLES[base] + comma + shuffled


def rules(lines: Sequence[Line]) -> Iterator[str]:
    """From which strength on a system is nearer to the truth in pairs, without noise; and how well that foretells.

    b is its error at c = 0 less that of independent sequences, k the part by which theirs grows faster with c.
    """
    yield "| population | sequences | b | k | nearer from c | noise borne | foretold |\n|" + " --- |" * 7
    for row in ROWS:
        if row.figure != "pair":
            continue
        own = [line for line in lines if of_row(line, row)]
        for system in NOISE_BORNE:
            first, second = (error(own, name) for name in (INDEPENDENT, system))
            least = crossing(first, second)
            right, all_of_them = foretold(own, system, least)
            shown = [f"{second[0] - first[0]:.2f}", f"{1 - second[1] / first[1]:.2f}"]
            start = f"{least:.2f}" if least < 1 else "never"
            cells = [row.title, title(system), *shown, start, str(NOISE_BORNE[system]), f"{right} of {all_of_them}"]
            yield "| " + " | ".join(cells) + " |"


def rule_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the rule of docs/keyphrases.md, of iterative sequences with the median; all n of near 0.6 in one row."""
    yield "| with `background: median` | b | k | nearer from c on | foretold |"
    yield "| --- | --- | --- | --- | --- |"
    pairs = [row for row in ROWS if row.figure == "pair"]
    for some in (pairs[: len(UNITS)], *([row] for row in pairs[len(UNITS) :])):
        found = []
        for row in some:
            own = [line for line in lines if of_row(line, row)]
            first, second = (error(own, name) for name in (INDEPENDENT, MEDIAN))
            least = crossing(first, second)
            found.append((second[0] - first[0], 1 - second[1] / first[1], least, *foretold(own, MEDIAN, least)))
        base, kept, least_c, right, decided = zip(*found, strict=True)
        counts = ", ".join(f"{row.units:,}" for row in some)
        name = f"{some[0].world.kind}, near {some[0].world.near}, n = {counts}"
        yield f"| {name} | {_range(base)} | {_range(kept)} | {_range(least_c)} | {sum(right)} of {sum(decided)} |"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def corpora_table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what a classifier learns of real phrases, by corpus and epsilon: means with intervals over trials.

    The control shuffles the phrases of iterative sequences among the texts of a label.
    """
    systems = (INDEPENDENT, INDEPENDENT_MEDIAN, ITERATIVE, MEDIAN)
    heads = ("corpus", "epsilon", "independent", "independent, `median`", "iterative", "iterative, `median`")
    yield f"| {' | '.join(heads)} | the same, shuffled |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, shown in (("agnews", "AG News, 4 labels"), ("dbpedia14", "DBpedia, 14 labels")):
        mine = [line for line in lines if "corpus" in line and line["corpus"]["name"] == name]
        for epsilon in ("1", "3", "6", "15"):
            own = [line for line in mine if line["corpus"]["epsilon"] == epsilon]
            cells = [_accuracy(own, system) for system in (*systems, f"{MEDIAN}, shuffled")]
            yield f"| {shown} | {epsilon} | {' | '.join(cells)} |"


def _accuracy(lines: Sequence[Line], system: str) -> str:
    middle, low, high = interval_of_mean([line["figures"][system]["label"] for line in lines])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def of_row(line: Line, row: Row) -> bool:
    """Whether a cell is of a row of the map, whatever its strength and epsilon."""
    cell, world = line["cell"], line["cell"]["world"]
    return (world["kind"], world["near"], world["topics"], cell["length"], cell["units"]) == (
        row.world.kind,
        row.world.near,
        row.world.topics,
        LENGTH,
        row.units,
    )


def error(lines: Sequence[Line], system: str) -> tuple[float, float]:
    """The error of pairs without noise, as a line: at c = 0, and by how much it grows to c = 1."""
    found = [
        (line["cell"]["world"]["strength"], line["figures"][system]["pair"])
        for line in lines
        if not line["cell"]["epsilon"]
    ]
    slope, base = np.polyfit(*zip(*found, strict=True), 1)
    return float(base), float(slope)


def crossing(independent: tuple[float, float], other: tuple[float, float]) -> float:
    """The strength from which on the other's error is less."""
    saved = independent[1] - other[1]
    return (other[0] - independent[0]) / saved if saved > 0 else float("inf")


def foretold(lines: Sequence[Line], system: str, least: float) -> tuple[int, int]:
    """Settings with noise in which the rule says rightly who is nearer, of those in which trials agree."""
    settings: dict[tuple[float, float], list[Line]] = defaultdict(list)
    for line in lines:
        if line["cell"]["epsilon"]:
            settings[line["cell"]["world"]["strength"], relative(line)].append(line)
    right = decided = 0
    for (strength, noise), own in settings.items():
        _, low, high = better(own, system, "pair")
        if low > 0 or high < 0:
            decided += 1
            right += (low > 0) == (strength > least and noise <= NOISE_BORNE[system])
    return right, decided


def relative(line: Line) -> float:
    """The noise of a score in iterative sequences, over what a phrase scores of which a theme's units are near."""
    world, cell = line["cell"]["world"], line["cell"]
    kernel = float(np.exp(-(1 - world["near"]) / float(BANDWIDTH) ** 2))
    return float(line["noise"] * cell["length"] ** 0.5 * world["topics"] / kernel)


def _cell(values: Sequence[float]) -> str:
    middle, low, high = interval_of_mean(values)
    return f"{middle:.3f}" if low == high else f"{middle:.3f} ({low:.2f} to {high:.2f})"


def draw_map(lines: Sequence[Line]) -> Any:
    """A column for each iterative system; colour and number: by how much it is better than independent sequences."""
    systems = [system for system in SYSTEMS if system != INDEPENDENT]
    figure, axes = plt.subplots(
        len(ROWS), len(systems), figsize=(9.2, 1.75 * len(ROWS)), squeeze=False, sharex=True, sharey=True
    )
    norm = TwoSlopeNorm(0, -_MOST, _MOST)
    for place, row in enumerate(ROWS):
        for panel, system in zip(axes[place], systems, strict=True):
            _panel(panel, lines, row, system, norm)
            panel.set_title(f"{TITLES[system].replace('`', '')}\n{row.title}", fontsize=8)
        axes[place][0].set_ylabel("strength c")
    for panel in axes[-1]:
        panel.set_xlabel("epsilon (delta 1e-5)")
        panel.set_xticks(range(len(EPSILONS)), [epsilon or "no noise" for epsilon in EPSILONS])
    figure.tight_layout()
    return figure


def _panel(panel: Axes, lines: Sequence[Line], row: Row, system: str, norm: TwoSlopeNorm) -> None:
    """Numbers in hundredths; bold where the interval over trials leaves zero out."""
    values = []
    for place, strength in enumerate(STRENGTHS):
        world = World(row.world.kind, strength, row.world.topics, row.world.near)
        values.append([])
        for column, epsilon in enumerate(EPSILONS):
            some = of_setting(lines, world, row.units, epsilon)
            middle, low, high = better(some, system, row.figure) if some else (float("nan"),) * 3
            values[-1].append(middle)
            looks = {"fontweight": "bold" if low > 0 or high < 0 else "normal", "fontsize": 6.5}
            looks |= {"color": "white" if abs(middle) > _DARK else "black", "ha": "center", "va": "center"}
            panel.text(column, place, f"{100 * middle:+.0f}", **looks)
    panel.imshow(values, cmap="RdBu", norm=norm, aspect="auto", origin="lower")
    panel.set_yticks(range(len(STRENGTHS)), [str(strength) for strength in STRENGTHS])
    panel.grid(visible=False)
