"""Release report as one HTML page: no network, no script, no time of day; all text from people or models is escaped.

The parts of a report become plain coordinates, which templates draw as SVG. A chart is a mapping of numbers rounded to
a tenth and of texts, so the same report gives the same page to the byte. Every chart also describes its content in a
sentence (`desc`), for readers who cannot see it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from tasks.common.published_values import format_number, number
from tasks.common.svg_axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis, tenth
from tasks.release.sections import Section, sections_to_json
from tasks.reporting.report_parts import AudienceFact, Version, contents
from tasks.text.doubts import NOT_CHECKED, describe_doubts

if TYPE_CHECKING:
    from jinja2 import Environment


def report_html(facts: Iterable[AudienceFact], version: Version = "public") -> str:
    """Return the page of a version; a function of `facts` alone, the same to the byte on every machine.

    Args:
        facts: of the release and, except for the public version, of the ledger; the version filters them.
    """
    return page(contents(version, facts))


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report's JSON."""
    return environment("tasks.reporting").get_template("page.html").render(report=report, charts=_charts(report))


def sections_html(title: str, sections: Iterable[Section]) -> str:
    """Return sections below a title as a fragment of HTML without scripts, which loads nothing from elsewhere."""
    template = environment("tasks.reporting").get_template("fragment.html")
    return template.render(title=title, sections=sections_to_json(sections))


def _charts(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "budget": budget_bar(report["budget"]) if report["budget"] else None,
        "guess": guess_scale(report["claim"]) if report["claim"] else None,
        "lengths": histogram(report["lengths"]) if report["lengths"] else None,
        "tradeoffs": tradeoffs(report["tradeoff"]),
        "map": scatter(report["map"], _numbers_in_full(report)) if report["map"] else None,
        "attacks": forest(report["attacks"]),
    }


def _numbers_in_full(report: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(text["number"] for page in report["text_pages"] for text in page["texts"])


@cache
def environment(*packages: str) -> "Environment":
    """Return the Jinja environment with the templates of `packages`; every inserted value is escaped as text."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    jinja_environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_text,
    )
    jinja_environment.globals |= {"describe_doubts": describe_doubts, "NOT_CHECKED": NOT_CHECKED}
    jinja_environment.filters |= {"spelt": format_number, "breakable": _breakable}
    return jinja_environment


def _breakable(name: str) -> Markup:
    """Return a name that may wrap after its dots and underscores, so that it fits a phone."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", escape_text(name)))


def escape_text(value: Any) -> Any:
    """Return text with control characters spelt out: those that change the reading order or are invisible."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(map(_spell_out_control, value))
    return value


def _spell_out_control(sign: str) -> str:
    is_control = unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if not is_control or sign in "\n\t\u200c\u200d":  # joiners belong to words of several scripts
        return sign
    return "\n" if sign == "\r" else sign.encode("unicode_escape", "surrogatepass").decode()


Chart = Mapping[str, Any]


def budget_bar(budget: Mapping[str, Any]) -> Chart:
    """Return the lifetime budget as one bar, in percent of the cap."""
    kinds = (("before", "others"), ("release", "this"), ("held", "held"))
    desc = (
        f"Of the lifetime budget, other releases have spent {budget['before_percent']} %, this one"
        f" {budget['release_percent']} %, running ones hold {budget['held_percent']} %;"
        f" {budget['left_percent']} % is left."
    )
    return percent_bar([(kind, budget[f"{key}_percent"]) for key, kind in kinds], 34, desc)


def percent_bar(shares: Sequence[tuple[str, str]], height: int, desc: str) -> Chart:
    """Return one bar with a part for each (kind, percent of the width); a part above 0 stays visible."""
    parts, at = [], 0.0
    for kind, percent in shares:
        width = float(percent) / 100 * WIDTH
        width = min(max(width, 3.0) if width else 0.0, WIDTH - at)
        if width:
            parts.append({"kind": kind, "x": tenth(at), "width": tenth(width)})
        at += width
    return {"width": WIDTH, "height": height, "parts": parts, "desc": desc}


def guess_scale(claim: Mapping[str, Any]) -> Chart | None:
    """Return the scale from a coin toss (50 %) to certainty (100 %), with the best rate of right guesses."""
    if claim["right"] is None:
        return None
    at = (float(claim["right"]) - 50) / 50 * WIDTH
    desc = (
        "On a scale from 50 % (a coin toss) to 100 % (certainty), a guess whether a unit is in the data is right"
        f" {claim['guesses']}."
    )
    return {"width": WIDTH, "height": 26, "at": tenth(min(max(at, 2.0), WIDTH)), "desc": desc}


def histogram(lengths: Mapping[str, Any]) -> Chart:
    """Return bars of one width, the tallest as high as the chart; the axis counts texts."""
    edges, counts, height = lengths["edges"], lengths["counts"], 230
    most, room = max(counts), WIDTH - LEFT - RIGHT
    step, plot_height = room / len(counts), height - TOP - BOTTOM
    bars: list[dict[str, Any]] = [
        {
            "x": tenth(LEFT + place * step + 1),
            "width": tenth(step - 2),
            "y": tenth(TOP + plot_height * (1 - count / most)),
            "height": tenth(plot_height * count / most),
            "said": f"{_span(edges[place], edges[place + 1])}: {count} {'text' if count == 1 else 'texts'}",
        }
        for place, count in enumerate(counts)
    ]
    tick_distance = -(-len(edges) // 7)
    ticks = [{"x": tenth(LEFT + place * step), "text": edges[place]} for place in range(0, len(edges), tick_distance)]
    desc = (
        f"Histogram of words per text, {lengths['texts']} texts: median {lengths['median']}, longest"
        f" {lengths['longest']}, {lengths['empty']} empty. " + "; ".join(bar["said"] for bar in bars) + "."
    )
    return {"width": WIDTH, "height": height, "left": LEFT, "base": height - BOTTOM, "top": TOP, "most": most,
            "bars": bars, "ticks": ticks, "end": WIDTH - RIGHT, "desc": desc}  # fmt: skip


def tradeoffs(points: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return one chart for each figure that two or more releases have: epsilon to the right, the figure upwards."""

    def of(point: Mapping[str, Any]) -> tuple[str, str]:
        return point["metric"], point["figure"]

    groups = [list(group) for _, group in groupby(sorted(points, key=of), key=of)]
    return [_tradeoff(group) for group in groups if len(group) > 1]


def _tradeoff(points: Sequence[Mapping[str, Any]]) -> Chart:
    height, name = 260, f"{points[0]['metric']}: {points[0]['figure']}"
    across = Axis.over([float(p["epsilon"]) for p in points], LEFT, WIDTH - RIGHT)
    ends = [float(p[key]) for p in points for key in ("value", "low", "high") if p[key] is not None]
    up = Axis.over(ends, height - BOTTOM, TOP)
    marks = [
        {
            "x": across.place(point["epsilon"]),
            "y": up.place(point["value"]),
            "low": None if point["low"] is None else up.place(point["low"]),
            "high": None if point["high"] is None else up.place(point["high"]),
            "this": point["this"],
            "release": point["release"],
            "said": f"release {point['release']}: epsilon {point['epsilon']}, {point['figure']} {point['value']}",
        }
        for point in points
    ]
    desc = f"{name} against epsilon. " + "; ".join(mark["said"] for mark in marks) + "."
    return {"name": name, "width": WIDTH, "height": height, "left": LEFT, "end": WIDTH - RIGHT, "top": TOP,
            "base": height - BOTTOM, "marks": marks, "across": across.ticks(), "up": up.ticks(), "desc": desc,
            "points": points}  # fmt: skip


LINE_HEIGHT: Final = 24
"""Distance of the names of clusters, in units of the picture."""


def scatter(text_map: Mapping[str, Any], in_full: Collection[int] = ()) -> Chart:
    """Return the map of texts, as wide as high; its axes have no unit.

    Args:
        in_full: the numbers of the texts that the page shows in full; their points lead to them.
    """
    size, edge = 420, 14
    xs = [float(x) for x, _ in text_map["points"]]
    ys = [float(y) for _, y in text_map["points"]]
    middle = ((max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2)
    reach = max(max(xs) - min(xs), max(ys) - min(ys)) / 2 or 1.0
    scale = (size / 2 - edge) / reach
    kinds = list(dict.fromkeys(text_map["labels"]))
    labels = text_map["labels"] or [None] * len(xs)
    marks = [
        {
            "x": tenth(size / 2 + (x - middle[0]) * scale),
            "y": tenth(size / 2 - (y - middle[1]) * scale),
            "kind": kinds.index(label) % 6 if label is not None else 0,
            "said": f"Text {number}" if label is None else f"Text {number}, {label}",
            "target": number if number in in_full else None,
        }
        for number, (x, y, label) in enumerate(zip(xs, ys, labels, strict=True), 1)
    ]
    clusters: list[dict[str, Any]] = [
        {
            "x": tenth(size / 2 + (float(one["x"]) - middle[0]) * scale),
            "y": size / 2 - (float(one["y"]) - middle[1]) * scale,
            "words": " · ".join(one["words"]),
            "texts": one["texts"],
        }
        for one in text_map["clusters"]
    ]
    downwards = sorted(clusters, key=lambda one: float(one["y"]))
    heights = _apart([float(one["y"]) for one in downwards], LINE_HEIGHT, size - edge)
    for one, height in zip(downwards, heights, strict=True):
        one["y"], one["anchor"] = tenth(height), _anchor(float(one["x"]) / size)
    legend = [{"kind": place % 6, "name": name} for place, name in enumerate(kinds)]
    desc = (
        f"Map of {len(xs)} released texts by meaning ({text_map['embedder']}); the two axes show"
        f" {text_map['explained']} % of the differences. Texts that are close to each other have similar content."
    )
    return {
        "size": size,
        "marks": marks,
        "clusters": clusters,
        "legend": legend,
        "desc": desc,
        "linked": bool(in_full),
    }


def _apart(heights: Sequence[float], least: float, lowest: float) -> list[float]:
    """Return increasing heights with at least that distance between neighbours, none below `lowest`."""
    apart = list(heights)
    for place in range(1, len(apart)):
        apart[place] = max(apart[place], apart[place - 1] + least)
    limit = lowest
    for place in reversed(range(len(apart))):
        apart[place] = min(apart[place], limit)
        limit = apart[place] - least
    return apart


def _anchor(share: float) -> str:
    """Return which end of a name stands at its point, so that it stays inside the picture."""
    return "start" if share < 1 / 3 else "end" if share > 2 / 3 else "middle"


def forest(attacks: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Return the areas under the curve with intervals (0.5 is chance) of attacks that have one as released."""
    rows: list[dict[str, Any]] = [
        {"name": attack["name"], "run": run["run"], "first": place == 0, **_interval(run)}
        for attack in attacks
        if number(attack["runs"][0]["auc"]) is not None  # else the other runs have nothing to be compared with
        for place, run in enumerate(attack["runs"])
        if number(run["auc"]) is not None
    ]
    if not rows:
        return None
    for place, row in enumerate(rows):
        row["y"] = 20 + place * 28
    lines = [f"{row['name']}, {row['run']}: {row['auc']}" for row in rows]
    return {"width": WIDTH, "height": 20 + len(rows) * 28 + 18, "chance": _on_unit(0.5), "rows": rows,
            "ticks": [{"x": _on_unit(tick / 4), "text": f"{tick / 4:g}"} for tick in range(5)],
            "desc": "Area under the curve of each attack; 0.5 is chance. " + "; ".join(lines) + "."}  # fmt: skip


def _interval(run: Mapping[str, Any]) -> dict[str, Any]:
    at = number(run["auc"])
    low, high = (at if number(run[end]) is None else number(run[end]) for end in ("auc_low", "auc_high"))
    return {"auc": run["auc"], "x": _on_unit(at), "low": _on_unit(low), "high": _on_unit(high)}


def _on_unit(value: float | None) -> float:
    """Return the x coordinate of a value from 0 to 1, to the right of the names."""
    return tenth(260 + (WIDTH - 260 - RIGHT) * min(max(value or 0.0, 0.0), 1.0))


def _span(low: int, high: int) -> str:
    return f"{low} words" if high - low == 1 else f"{low} to {high - 1} words"
