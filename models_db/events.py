"""What a mechanism did, as a frozen value (after dp-accounting's `dp_event`).

Evolution rules, because rows and published bundles outlive the code: a mechanism name is never removed and never
changes its meaning; new parameters are optional; a reader that meets an unknown name refuses, it never guesses.
The arithmetic from a mechanism's parameters to its loss lives beside its draw in `tasks.mechanisms`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from models_db.budgets import Amount
from models_db.canonical import Json


@dataclass(frozen=True)
class PrivacyEvent:
    """`count` equal invocations of one mechanism on the same units.

    Attributes:
        mechanism: the stable name, such as `token_draw` or `noisy_count`.
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
        """The stable stored form."""
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
        parameters, count = stored["parameters"], stored["count"]
        if not isinstance(parameters, Mapping) or not isinstance(count, int):
            raise TypeError("a stored event needs integer count and object parameters")
        if unknown := set(stored) - {
            "mechanism",
            "count",
            "parameters",
            "rho",
            "delta",
            "dp_event",
            "relation",
        }:
            raise ValueError(f"unknown fields in a stored event: {sorted(unknown)}")
        return cls(
            mechanism=str(stored["mechanism"]),
            count=count,
            parameters={key: value for key, value in parameters.items() if isinstance(value, str | int)},
            loss=Amount(int(str(stored["rho"])), int(str(stored["delta"]))),
            dp_event=stored["dp_event"],
            relation=str(stored["relation"]),
        )
