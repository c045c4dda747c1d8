"""Amounts of privacy loss, as exact integers.

The one currency is zCDP (PRIVACY §2): `rho` in units of 1e-12 and, for mechanisms that fail with a small
probability, `delta` in units of 1e-18. Rounding a real number into an amount is accounting's business
(`tasks.accounting.rounding`: charges up, caps down); here amounts only add and compare.
"""

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


@dataclass(frozen=True)
class Envelope:
    """Amount that is reserved for the requests that name it (`scope`)."""

    name: str
    cap: Amount
    spent: Amount
    left: Amount

    @property
    def held(self) -> Amount:
        """Amount that running releases have reserved in it."""
        return self.cap - self.spent - self.left
