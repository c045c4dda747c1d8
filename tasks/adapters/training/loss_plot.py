"""Loss curve of a training: one SVG without scripts or embedded fonts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from tasks.common.svg_axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis

_HEIGHT: Final = 320
_FONT: Final = 'font-family="sans-serif" font-size="12"'
LINES: Final = {
    "training": ("#8a8f98", "training"),
    "clean": ("#1f5fa8", "held out, without noise"),
    "noisy": ("#b5541c", "held out, with noise"),
}
"""Losses in a line of losses.jsonl, with colour and name."""


def curve(course: Sequence[Mapping[str, Any]], best_step: int, title: str) -> str:
    """Draw losses in nats per token against steps; the dashed line marks the step of the kept weights.

    Args:
        course: lines of losses.jsonl, each with `step` and some of LINES; at least one.
    """
    series = {name: [(each["step"], each[name]) for each in course if name in each] for name in LINES}
    values = [value for points in series.values() for _, value in points]
    base, end = _HEIGHT - BOTTOM, WIDTH - RIGHT
    across = Axis.over([0.0, max(float(each["step"]) for each in course)], LEFT, end, margin=0)
    up = Axis.over(values, base, TOP + 20)
    last_losses = "; ".join(f"{LINES[name][1]}: {points[-1][1]:.3f}" for name, points in series.items() if points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f"<desc>Losses in nats per token against steps; the last ones are {escape(last_losses)}.</desc>",
        f'<rect width="{WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(across, up, base, end),
        f'<path d="M{across.place(best_step)} {TOP + 20}V{base}" stroke="#444444" stroke-dasharray="4 3"/>',
    ]
    for number, (name, points) in enumerate(series.items()):
        if points:
            parts.extend(_curve(points, *LINES[name], across, up, LEFT + 190 * number))
    return "\n".join([*parts, "</svg>", ""])


def _grid(across: Axis, up: Axis, base: int, end: int) -> list[str]:
    lines = [
        f'<line x1="{LEFT}" x2="{end}" y1="{tick["at"]}" y2="{tick["at"]}" stroke="#dddddd"/>'
        f'<text x="{LEFT - 8}" y="{tick["at"] + 4}" text-anchor="end">{tick["text"]}</text>'
        for tick in up.ticks()
    ]
    return (
        lines
        + [
            f'<text x="{tick["at"]}" y="{base + 18}" text-anchor="middle">{tick["text"]}</text>'
            for tick in across.ticks()
        ]
        + [
            f'<text x="{end}" y="{base + 36}" text-anchor="end">steps</text>',
            f'<text x="{LEFT}" y="{TOP + 14}" text-anchor="start">nats per token</text>',
        ]
    )


def _curve(
    points: Sequence[tuple[int, float]], colour: str, name: str, across: Axis, up: Axis, legend: int
) -> list[str]:
    places = " ".join(f"{across.place(step)},{up.place(value)}" for step, value in points)
    return [
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<rect x="{legend}" y="8" width="12" height="12" fill="{colour}"/>',
        f'<text x="{legend + 18}" y="18">{escape(name)}</text>',
    ]
