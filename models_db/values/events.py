"""Events: frozen descriptions of one invocation of a mechanism (after dp-accounting's `dp_event`).

Evolution rules, because rows and published bundles outlive the code: a mechanism name is never removed and never
changes its meaning; new parameters are optional; a reader that meets an unknown name refuses, it never guesses.
The arithmetic from a mechanism's parameters to its loss lives beside its draw in `tasks.mechanisms`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json


@dataclass(frozen=True)
class PrivacyEvent:
    """`count` equal invocations of one mechanism on the same units.

    Attributes:
        mechanism: the stable name, such as `integer_draw` or `noisy_count`.
        count: how many times it is invoked in a row on the same data (adaptively chosen queries are fine).
        parameters: everything the loss depends on; reals as exact decimal or fraction strings, never floats.
        loss: the charge for all `count` invocations together, rounded up.
        dp_event: the same in dp-accounting's vocabulary (its `DpEvent` as nested JSON), for independent accountants.
        relation: the neighbouring relation the loss is stated for.
    """

    mechanism: str
    count: int
    parameters: Mapping[str, str | int]
    loss: Amount
    dp_event: Json
    relation: str = "add_or_remove_one"

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form."""
        return {
            "mechanism": self.mechanism,
            "count": self.count,
            "parameters": dict(self.parameters),
            "rho": str(self.loss.rho),
            "delta": str(self.loss.delta),
            "dp_event": self.dp_event,
            "relation": self.relation,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> "PrivacyEvent":
        """Read the stored form back.

        Raises:
            KeyError, TypeError, ValueError: the stored form is not one of ours.
        """
        if unknown := set(stored) - _FIELDS:
            raise ValueError(f"unknown fields in a stored event: {sorted(unknown)}")
        parameters, count = stored["parameters"], stored["count"]
        if not isinstance(parameters, Mapping) or type(count) is not int:
            raise TypeError("a stored event needs an integer count and object parameters")
        return cls(
            mechanism=_required_text(stored, "mechanism"),
            count=count,
            parameters={name: _checked_parameter(name, value) for name, value in parameters.items()},
            loss=Amount(_required_integer(stored, "rho"), _required_integer(stored, "delta")),
            dp_event=stored["dp_event"],
            relation=_required_text(stored, "relation"),
        )


_FIELDS = frozenset({"mechanism", "count", "parameters", "rho", "delta", "dp_event", "relation"})


def _required_text(stored: Mapping[str, Json], name: str) -> str:
    value = stored[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} of a stored event must be text")
    return value


def _required_integer(stored: Mapping[str, Json], name: str) -> int:
    value = _required_text(stored, name)
    if not re.fullmatch("0|[1-9][0-9]*", value):
        raise ValueError(f"{name} of a stored event must be a whole number")
    return int(value)


def _checked_parameter(name: str, value: Json) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"parameter {name} of a stored event must be text or an integer")
    return value
