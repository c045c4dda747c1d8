"""Frame and axes of an SVG chart: from values to coordinates, with round ticks."""

import math
from collections.abc import Sequence
from typing import Any, Final

WIDTH: Final = 640
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 18, 56


class Axis:
    """A linear axis with a handful of round ticks.

    Attributes:
        start, step, count: the first tick, their distance, and how many follow the first.
        begin, end: the places of the first and last tick.
    """

    def __init__(self, start: float, step: float, count: int, begin: float, end: float) -> None:
        self.start, self.step, self.count, self.begin, self.end = start, step, count, begin, end

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float, margin: float = 0.05) -> "Axis":
        """Return an axis that holds all `values`, with room on both sides for that share of their spread."""
        low, high = min(values), max(values)
        spread = (high - low) or abs(high) or 1.0
        power = 10.0 ** math.floor(math.log10(spread / 4))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= spread / 4)
        start = math.floor((low - spread * margin) / step)
        last = math.ceil((high + spread * margin) / step)
        return cls(start * step, step, last - start, begin, end)

    def place(self, value: object) -> float:
        """Return where a figure goes."""
        share = (float(str(value)) - self.start) / (self.step * self.count)
        return tenth(self.begin + (self.end - self.begin) * share)

    def ticks(self) -> list[dict[str, Any]]:
        """Return places and texts of the ticks."""
        positions = [self.start + number * self.step for number in range(self.count + 1)]
        return [{"at": self.place(value), "text": f"{value:.6g}"} for value in positions]


def tenth(value: float) -> float:
    """Format a place, rounded, so that a page is the same on every machine."""
    return round(value, 1)
