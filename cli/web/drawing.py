"""Where the marks of the dashboard's charts go; templates draw them as SVG, in the style of reports."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from flows.pages.burn_down import BurnDown, Point
from flows.pages.figures import Figures
from tasks.reporting.charts import BOTTOM, LEFT, RIGHT, TOP, WIDTH

HEIGHT = 280
ROWS = 12
"""Rows of the table beside a burn-down."""


def bar(figures: Figures) -> Mapping[str, Any]:
    """A lifetime budget as one bar: spent, held by runs, kept in envelopes, left."""
    parts, at = [], 0.0
    for kind, share in (
        ("this", figures.spent_percent),
        ("held", figures.held_percent),
        ("others", figures.envelopes_percent),
    ):
        width = float(share) / 100 * WIDTH
        width = min(max(width, 3.0) if width else 0.0, WIDTH - at)  # a sliver stays visible
        if width:
            parts.append({"kind": kind, "x": round(at, 1), "width": round(width, 1)})
        at += width
    desc = f"{figures.spent_percent} % spent, {figures.held_percent} % held, {figures.left_percent} % left"
    return {"width": WIDTH, "height": 20, "parts": parts, "desc": desc}


def burn_chart(burn: BurnDown) -> Mapping[str, Any]:
    """What was left, day by day, as a line of steps; dashed, where it goes at the pace of late."""
    days = [date.fromisoformat(point.day) for point in burn.points]
    first, today = days[0], days[-1]
    last = _last(first, today, burn.gone_on)
    spread = max((last - first).days, 1)

    def x(day: date) -> float:
        return round(LEFT + (WIDTH - RIGHT - LEFT) * (day - first).days / spread, 1)

    def y(percent: float) -> float:
        return round(TOP + (HEIGHT - BOTTOM - TOP) * (1 - percent / 100), 1)

    heights = [y(float(point.left_percent)) for point in burn.points]
    steps = " ".join(f"H{x(day)} V{height}" for day, height in zip(days[1:], heights[1:], strict=True))
    line = f"M{x(first)} {heights[0]} {steps}"
    ahead = _ahead(burn, today, last, x, y, heights[-1])
    ticks = [(first, "start"), (last, "end")]
    if spread > 2 and WIDTH / 4 < x(today) < WIDTH * 3 / 4:
        ticks.insert(1, (today, "middle"))
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "end": WIDTH - RIGHT,
        "base": HEIGHT - BOTTOM,
        "line": line,
        "area": f"{line} L{x(today)} {HEIGHT - BOTTOM} L{x(first)} {HEIGHT - BOTTOM} Z",
        "ahead": ahead,
        "today": {"x": x(today), "y": heights[-1]},
        "up": [{"at": y(each), "text": f"{each} %"} for each in (0, 25, 50, 75, 100)],
        "across": [{"at": x(day), "text": day.isoformat(), "anchor": anchor} for day, anchor in ticks],
        "desc": _desc(burn),
    }


def _last(first: date, today: date, gone_on: str | None) -> date:
    """Where the axis ends: the forecast's day, if it is not so far that the past would become a sliver."""
    if gone_on is None:
        return max(today, first + timedelta(days=1))
    most = today + 2 * max(today - first, timedelta(days=30))
    return max(min(date.fromisoformat(gone_on), most), first + timedelta(days=1))


def _ahead(burn: BurnDown, today: date, last: date, x: Any, y: Any, height: float) -> Mapping[str, Any] | None:
    if burn.gone_on is None or last <= today:
        return None
    gone = date.fromisoformat(burn.gone_on)
    left = float(burn.points[-1].left_percent)
    at_last = left * (1 - (last - today).days / max((gone - today).days, 1))
    return {"x1": x(today), "y1": height, "x2": x(last), "y2": y(max(at_last, 0.0))}


def _desc(burn: BurnDown) -> str:
    first, last = burn.points[0], burn.points[-1]
    ends = f" At the pace of the last {burn.recent_days} days nothing would be left on {burn.gone_on}." * bool(
        burn.gone_on
    )
    return f"From 100 % left on {first.day} to {last.left_percent} % left on {last.day}.{ends}"


def burn_rows(burn: BurnDown) -> list[Point]:
    """The chart as a table, newest first: every point, or the last ones of months, or the last ones of years."""
    for length in (10, 7, 4):
        latest = {point.day[:length]: point for point in burn.points}
        if len(latest) <= ROWS:
            break
    return list(latest.values())[::-1][:ROWS]
