"""Amounts of privacy loss, as exact integers.

The one currency is zCDP (PRIVACY §2): `rho` in units of 1e-12 and, for mechanisms that fail with a small
probability, `delta` in units of 1e-18. Rounding a real number into an amount is accounting's business
(`tasks.accounting.rounding`: charges up, caps down); here amounts only add and compare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

RHO_UNIT = 10**12
DELTA_UNIT = 10**18


@dataclass(frozen=True)
class Amount:
    """A non-negative amount of loss: `rho` x 1e-12 zCDP and `delta` x 1e-18 of failure probability."""

    rho: int = 0
    delta: int = 0

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("delta", self.delta)):
            if type(value) is not int:
                raise TypeError(f"{name} must be an int, not {value!r}")
            if value < 0:
                raise ValueError(f"{name} must not be negative: {value}")

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.rho + other.rho, self.delta + other.delta)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.rho - other.rho, self.delta - other.delta)

    def __mul__(self, times: int) -> "Amount":
        return Amount(self.rho * times, self.delta * times)

    def fits(self, limit: "Amount") -> bool:
        """Return whether this amount is affordable out of `limit`."""
        return self.rho <= limit.rho and self.delta <= limit.delta

    def count_in(self, limit: "Amount") -> int | None:
        """Return how often this amount is affordable out of `limit`; None if it is nothing."""
        fits = [whole // cost for whole, cost in ((limit.rho, self.rho), (limit.delta, self.delta)) if cost]
        return min(fits) if fits else None

    @property
    def rho_text(self) -> str:
        """Rho as an exact decimal string, such as '0.266313968610'."""
        return format(Decimal(self.rho) / RHO_UNIT, "f")

    @property
    def delta_text(self) -> str:
        """Delta as an exact decimal string."""
        return format(Decimal(self.delta) / DELTA_UNIT, "f")


def total_amount(amounts: "list[Amount]") -> Amount:
    """Return the sum of `amounts`."""
    return Amount(sum(a.rho for a in amounts), sum(a.delta for a in amounts))


RENYI_ORDERS = (3, 4, 6, 8, 12, 16, 32, 64)
"""Orders of the account in Rényi divergences: fixed, because each has columns of its own in the ledger."""


@dataclass(frozen=True)
class RenyiCurve:
    """Upper bounds on the Rényi divergences between a release with and without a unit, at `RENYI_ORDERS`.

    Divergences add up at each order. An integer r at order a says that the divergence is at most a r 1e-12: r is what
    a mechanism of zCDP r would cost there, so a mechanism without a bound of its own has its rho at every order.

    Attributes:
        remove: with the unit against without, in units of 1e-12 of rho.
        add: without the unit against with it.
    """

    remove: tuple[int, ...]
    add: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, values in (("remove", self.remove), ("add", self.add)):
            if len(values) != len(RENYI_ORDERS):
                raise ValueError(f"{name} has {len(values)} values for {len(RENYI_ORDERS)} orders")
            for value in values:
                Amount(value)  # refuse what is no integer, or negative

    @classmethod
    def of_rho(cls, rho: int) -> "RenyiCurve":
        """Return the curve of a mechanism of which only zCDP is known."""
        return cls((rho,) * len(RENYI_ORDERS), (rho,) * len(RENYI_ORDERS))

    @classmethod
    def of_values(cls, values: Sequence[int]) -> "RenyiCurve":
        """Return the curve of these `values`."""
        half = len(RENYI_ORDERS)
        return cls(tuple(values[:half]), tuple(values[half:]))

    @property
    def values(self) -> tuple[int, ...]:
        """`remove` and `add`, one behind the other."""
        return self.remove + self.add

    def __add__(self, other: "RenyiCurve") -> "RenyiCurve":
        return RenyiCurve.of_values([a + b for a, b in zip(self.values, other.values, strict=True)])

    def fits(self, limits: Sequence[int]) -> bool:
        """Return whether each direction is within the limit of some order.

        The limits are those of one claim, whose delta is divided among the orders (`tasks.accounting.renyi_account`).
        """
        return all(
            any(value <= limit for value, limit in zip(values, limits, strict=True))
            for values in (self.remove, self.add)
        )
