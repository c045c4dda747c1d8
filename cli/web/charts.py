"""Positions of the marks in the dashboard's charts; templates draw them as SVG, in the style of reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from flows.dashboard.burn_down import BalanceFigures, BurnDown, BurnPoint
from tasks.common.svg_axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from tasks.reporting.html_report import percent_bar

CHART_HEIGHT = 280
MOST_ROWS = 12
"""Rows of the table beside a burn-down."""

MOST_LINES = 5
"""Largest number of cohorts in one chart: the number of distinct dash patterns."""

NAME_WIDTH, NAME_SPACING = 130, 26
"""Room for names to the right of lines, and between two names."""


@dataclass(frozen=True)
class BurnRow:
    """The remaining share of each cohort of a chart at the end of a day; None before the cohort was opened."""

    day: str
    left_percent: tuple[str | None, ...]


def budget_bar(figures: BalanceFigures) -> Mapping[str, Any]:
    """Return a lifetime budget as one bar: spent, held by runs, left."""
    shares = [("this", figures.spent_percent), ("held", figures.held_percent)]
    desc = f"{figures.spent_percent} % spent, {figures.held_percent} % held, {figures.left_percent} % left"
    return percent_bar(shares, 20, desc)


@dataclass(frozen=True)
class _Axes:
    """The axes of a chart: days from left to right, percent upwards."""

    first: date
    last: date
    end: int

    @property
    def days(self) -> int:
        """Return the number of days between the ends of the axis."""
        return max((self.last - self.first).days, 1)

    def x(self, day: date) -> float:
        """Return the horizontal position of a day."""
        return round(LEFT + (self.end - LEFT) * (day - self.first).days / self.days, 1)

    def y(self, percent: float) -> float:
        """Return the vertical position of a share in percent."""
        return round(TOP + (CHART_HEIGHT - BOTTOM - TOP) * (1 - percent / 100), 1)

    def line(self, points: Sequence[BurnPoint]) -> str:
        """Return the points as a step path: the remaining share is constant between two spendings."""
        at = [(self.x(date.fromisoformat(one.day)), self.y(float(one.left_percent))) for one in points]
        return f"M{at[0][0]} {at[0][1]} " + " ".join(f"H{x} V{y}" for x, y in at[1:])


def burn_chart(burns: Sequence[BurnDown]) -> Mapping[str, Any]:
    """Return the chart of the remaining budget by day.

    One cohort has an area below its line and a dashed line for its recent pace; several cohorts have one line each.
    Lines differ by dashes as well as by colour, and end at the name of their cohort.
    """
    shown = visible_series(burns)
    alone = shown[0] if len(burns) == 1 else None
    first = min(date.fromisoformat(one.points[0].day) for one in shown)
    today = date.fromisoformat(shown[-1].points[-1].day)
    last = _axis_end(first, today, alone.gone_on if alone else None)
    axes = _Axes(first, last, WIDTH - (RIGHT if alone else NAME_WIDTH))
    ticks = [(first, "start"), (last, "end")]
    if axes.days > 2 and WIDTH / 4 < axes.x(today) < WIDTH * 3 / 4:
        ticks.insert(1, (today, "middle"))
    base = CHART_HEIGHT - BOTTOM
    return {
        "width": WIDTH,
        "height": CHART_HEIGHT,
        "left": LEFT,
        "end": axes.end,
        "base": base,
        "lines": [_series_line(axes, one, today) for one in shown],
        "names": [] if alone else _series_names(axes, shown, today),
        "area": f"{axes.line(alone.points)} L{axes.x(today)} {base} L{axes.x(first)} {base} Z" if alone else None,
        "ahead": _forecast_line(alone, today, axes) if alone else None,
        "up": [{"at": axes.y(each), "text": f"{each} %"} for each in (0, 25, 50, 75, 100)],
        "across": [{"at": axes.x(day), "text": day.isoformat(), "anchor": anchor} for day, anchor in ticks],
        "desc": _series_description(alone)
        if alone
        else " ".join(f"Cohort {one.cohort}: {_series_description(one)}" for one in shown),
    }


def visible_series(burns: Sequence[BurnDown]) -> Sequence[BurnDown]:
    """Return the newest cohorts, which have a line in the chart and a column in its table."""
    return burns[-MOST_LINES:]


def _series_line(axes: _Axes, burn: BurnDown, today: date) -> Mapping[str, Any]:
    """Return the line of a cohort; a cohort keeps its dash pattern when others are opened."""
    at = axes.y(float(burn.points[-1].left_percent))
    return {"path": axes.line(burn.points), "dashes": (burn.cohort - 1) % MOST_LINES, "x": axes.x(today), "y": at}


def _series_names(axes: _Axes, shown: Sequence[BurnDown], today: date) -> list[Mapping[str, Any]]:
    """Return the names beside the ends of lines, in their order, moved apart where they would overlap."""
    ends = sorted((axes.y(float(one.points[-1].left_percent)), one.cohort) for one in shown)
    at, places = float(TOP - NAME_SPACING), list[float]()
    for y, _ in ends:
        at = max(y, at + NAME_SPACING)
        places.append(at)
    lowest = float(CHART_HEIGHT - BOTTOM)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], lowest)
        lowest = places[number] - NAME_SPACING
    return [
        {
            "text": f"cohort {cohort}",
            "x": axes.x(today) + 24,
            "y": round(place, 1),
            "from_x": axes.x(today),
            "from_y": y,
        }
        for (y, cohort), place in zip(ends, places, strict=True)
    ]


def _axis_end(first: date, today: date, gone_on: str | None) -> date:
    """Return the end of the axis: the forecast's day, unless it is so far away that the past would become a sliver."""
    if gone_on is None:
        return max(today, first + timedelta(days=1))
    most = today + 2 * max(today - first, timedelta(days=30))
    return max(min(date.fromisoformat(gone_on), most), first + timedelta(days=1))


def _forecast_line(burn: BurnDown, today: date, axes: _Axes) -> Mapping[str, Any] | None:
    if burn.gone_on is None or axes.last <= today:
        return None
    gone, percent = date.fromisoformat(burn.gone_on), float(burn.points[-1].left_percent)
    at_last = percent * (1 - (axes.last - today).days / max((gone - today).days, 1))
    return {"x1": axes.x(today), "y1": axes.y(percent), "x2": axes.x(axes.last), "y2": axes.y(max(at_last, 0.0))}


def _series_description(burn: BurnDown) -> str:
    first, last = burn.points[0], burn.points[-1]
    ends = f" At the pace of the last {burn.recent_days} days nothing would be left on {burn.gone_on}." * bool(
        burn.gone_on
    )
    return f"From 100 % left on {first.day} to {last.left_percent} % left on {last.day}.{ends}"


def burn_rows(burns: Sequence[BurnDown]) -> list[BurnRow]:
    """Return the chart as a table, newest first: the days of all points, or the last days of months or of years."""
    shown = visible_series(burns)
    days = sorted({point.day for one in shown for point in one.points})
    for length in (10, 7, 4):
        latest = {day[:length]: day for day in days}
        if len(latest) <= MOST_ROWS:
            break
    return [
        BurnRow(day, tuple(_remaining_on(one, day) for one in shown)) for day in list(latest.values())[::-1][:MOST_ROWS]
    ]


def _remaining_on(burn: BurnDown, day: str) -> str | None:
    until = [point.left_percent for point in burn.points if point.day <= day]
    return until[-1] if until else None
