"""How the benchmarks' plots look, and the band that trials or texts leave about a line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tasks.evaluation.intervals import over_seeds

__all__ = ["STYLE", "around", "band", "plt", "save", "spread"]

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "svg.hashsalt": "almoner",
    "legend.frameon": False,
}


def save(figure: Any, path: Path) -> None:
    """Without a date, so that the same results give the same file."""
    figure.savefig(path, bbox_inches="tight", dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def band(panel: Axes, points: Sequence[tuple[float, float, float, float]], alpha: float, **looks: Any) -> None:
    """A line with its band, if there are points of it.

    Args:
        points: x, the middle, the low and the high end of each.
        alpha: of the band.
        looks: of the line, its colour among them.
    """
    if points:
        x, middle, low, high = zip(*points, strict=True)
        panel.fill_between(x, low, high, color=looks["color"], alpha=alpha, linewidth=0)
        panel.plot(x, middle, markersize=4, **looks)


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's interval of the mean; of two trials, of which it says nothing, both; None of one."""
    return over_seeds(values) if len(values) != 2 else (min(values), max(values))


def around(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its spread; of one trial, itself."""
    return sum(values) / len(values), *(spread(values) or (min(values), max(values)))
