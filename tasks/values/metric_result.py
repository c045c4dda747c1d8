"""Result of a metric: a frozen value that states who may see it (PRIVACY §7)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias, get_args

from models_db.values.canonical_json import Json

Exposure: TypeAlias = Literal["public", "charged", "internal"]
"""`public`: from public or released data alone. `charged`: private data, through a charged mechanism.
`internal`: private data, unprotected; a decision that has seen one is not differentially private."""

Value: TypeAlias = "str | int | None"


@dataclass(frozen=True)
class MetricResult:
    """One metric of one release.

    Attributes:
        name: the metric's stable name, as requests use it.
        exposure: the audience of the result, and the time from which they may see it.
        values: the figures: counts as integers, reals as decimal strings, null if nothing could be measured.
        source: where the metric is defined.
        method: how this figure was computed.
        line: the result in one line, for people.
    """

    name: str
    exposure: Exposure
    values: Mapping[str, Value]
    source: str
    method: str
    line: str

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form, without floats."""
        return {
            "name": self.name,
            "exposure": self.exposure,
            "values": dict(self.values),
            "source": self.source,
            "method": self.method,
            "line": self.line,
        }

    @classmethod
    def from_json(cls, stored: Json) -> "MetricResult":
        """Read the stored form back.

        Raises:
            ValueError: it is not one of ours.
        """
        texts = ("name", "exposure", "source", "method", "line")
        if not isinstance(stored, Mapping) or set(stored) != {*texts, "values"}:
            raise ValueError("a metric has exactly name, exposure, values, source, method and line")
        values = stored["values"]
        if not all(isinstance(stored[key], str) for key in texts) or stored["exposure"] not in get_args(Exposure):
            raise ValueError("a metric's name, source, method and line are text, its exposure one of three words")
        if not isinstance(values, Mapping) or not all(isinstance(v, str | int | None) for v in values.values()):
            raise ValueError("a metric's values are integers, text or null")
        return cls(**{**stored, "values": dict(values)})  # type: ignore[arg-type]  # just checked, field by field


def rounded(value: float | None, places: int) -> str | None:
    """`value` as a decimal string of that many places; None if there is none or it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return format(Decimal(value), f".{places}f")
