"""Library of learnt curves: how far texts come from the public model to no privacy, by the clip norm, by rehearsals.

The figures are those of `benchmarks/rehearsals.py`, in `rehearsed_shares.jsonl` beside this module: rehearsals on
public corpora at several clip norms. Between two of them a share is interpolated in the logarithm of the norm; outside
of them, and for other models and mechanisms, nothing was measured and nothing is said.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models_db.values.canonical_json import Json

FIGURES = Path(__file__).with_name("rehearsed_shares.jsonl")
METRICS = ("mauve", "coverage", "perplexity_gap")
WIDEST = 200
"""Percent of the way: an interval that is wider says nothing, and is not shown."""


@dataclass(frozen=True)
class MeasuredShare:
    """One rehearsal's share of the way, by one metric; percent, with a 95 % interval.

    Attributes:
        way: share, low and high; None where the rehearsal gave none (`tasks.rehearsal.measures`).
    """

    corpus: str
    model: str
    mechanism: str
    metric: str
    clip_norm: float
    texts: int
    way: tuple[float, float, float] | None


@dataclass(frozen=True)
class ExpectedShare:
    """The share of the way that a clip norm gave in rehearsals.

    Attributes:
        share: percent, the mean over corpora.
        low, high: the ends of all corpora's intervals.
        corpora: names of the public corpora that give a share at this clip norm.
        without_share: names of those on which no rehearsal gives one.
        texts: texts of each rehearsal.
    """

    metric: str
    model: str
    share: int
    low: int
    high: int
    corpora: tuple[str, ...]
    texts: int
    without_share: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the figure for programs."""
        return {
            "metric": self.metric, "share": self.share, "low": self.low, "high": self.high,
            "corpora": list(self.corpora), "without_share": list(self.without_share),
            "model": self.model, "texts": self.texts,
        }  # fmt: skip


@cache
def measured_shares() -> tuple[MeasuredShare, ...]:
    """Return the shares of all rehearsals of the library, by each metric."""
    lines = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
    return tuple(
        MeasuredShare(
            corpus=line["corpus"],
            model=line["model"],
            mechanism=line["mechanism"],
            metric=one["metric"],
            clip_norm=float(line["clip_norm"]),
            texts=line["texts"],
            way=(one["share"], one["low"], one["high"]) if "share" in one else None,
        )
        for line in lines
        for one in line["metrics"]
    )


def expected_shares(
    clip_norm: float, model: str, mechanism: str, clipping: str | None, measured: Sequence[MeasuredShare] | None = None
) -> tuple[ExpectedShare, ...]:
    """Return the share of the way by each metric that was measured around this clip norm.

    Args:
        clip_norm: the clip norm, times the part of the rows that is filled.
        clipping: of `invisible_ink`; curves are of its default.
        measured: the library; by default the one in the package.
    """
    library = measured_shares() if measured is None else measured
    known = [one for one in library if (one.model, one.mechanism) == (model, mechanism)]
    if clipping not in (None, "log_probability"):
        return ()
    expected = (_expected([one for one in known if one.metric == metric], clip_norm) for metric in METRICS)
    return tuple(one for one in expected if one is not None)


def _expected(known: Sequence[MeasuredShare], clip_norm: float) -> ExpectedShare | None:
    """Return the share by one metric, over the corpora that were measured on both sides of the clip norm."""
    corpora = sorted({one.corpus for one in known})
    curves = {corpus: [one for one in known if one.corpus == corpus] for corpus in corpora}
    points = {corpus: point for corpus, curve in curves.items() if (point := _interpolated(curve, clip_norm))}
    if not points:
        return None
    shares, lows, highs = zip(*points.values(), strict=True)
    if max(highs) - min(lows) > WIDEST:
        return None
    return ExpectedShare(
        known[0].metric,
        known[0].model,
        round(sum(shares) / len(shares)),
        round(min(lows)),
        round(max(highs)),
        tuple(points),
        min(one.texts for one in known),
        tuple(corpus for corpus, curve in curves.items() if all(one.way is None for one in curve)),
    )


def _interpolated(curve: Sequence[MeasuredShare], clip_norm: float) -> tuple[float, float, float] | None:
    """Return share, low and high between the two nearest clip norms; None outside the measured range."""
    points = {one.clip_norm: one.way for one in curve if one.way is not None}
    below = max((norm for norm in points if norm <= clip_norm), default=None)
    above = min((norm for norm in points if norm >= clip_norm), default=None)
    if below is None or above is None:
        return None
    if below == above:
        return points[below]
    part = math.log(clip_norm / below) / math.log(above / below)
    share, low, high = (
        first + part * (second - first) for first, second in zip(points[below], points[above], strict=True)
    )
    return share, low, high
