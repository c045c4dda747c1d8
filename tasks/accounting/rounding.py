"""Rounding of real numbers to ledger integers, always towards privacy: charges up, caps down (PRIVACY §2).

A real number reaches this module in one of two forms: exact (`Fraction`), or enclosed between two bounds (an
mpmath interval computed with outward rounding). A charge takes the ceiling of the upper bound, a cap the
floor of the lower one, so no rounding of ours can ever under-charge. Binary floats are refused on the way in:
the number a person wrote is `0.1`, not 0.1000000000000000055.
"""

import math
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import to_rational

from models_db.errors import UsageError
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount

Exact: TypeAlias = "int | str | Decimal | Fraction"
Interval: TypeAlias = Any  # mpmath ships no types
Real: TypeAlias = "Fraction | Interval"

# Our own context: mpmath's global one is shared mutable state. 300 bits leave 60 digits after any
# cancellation met here (the largest is the 1 + x of an order within 1e-30 of one).
iv = MPIntervalContext()
iv.prec = 300

_LARGEST_EXPONENT = 400


def exact(value: Exact) -> Fraction:
    """Return the number `value` denotes, exactly.

    Args:
        value: an int, a Fraction, a Decimal, or text such as "4.0", "1e-7" or "9/10".

    Raises:
        InexactNumber: a float, or anything that is not a finite number of moderate size.
    """
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal | Fraction):
        raise InexactNumber(value)
    if isinstance(value, int | Fraction):
        return Fraction(value)
    text = str(value).strip()
    try:
        parts = [Decimal(part) for part in text.split("/")]
    except InvalidOperation:
        raise InexactNumber(value) from None
    if len(parts) > 2 or not all(part.is_finite() and _moderate(part) for part in parts):
        raise InexactNumber(value)
    if len(parts) == 2 and parts[1] == 0:
        raise InexactNumber(value)
    return Fraction(parts[0]) / (Fraction(parts[1]) if len(parts) == 2 else 1)


def charge_rounded_up(rho: Real, delta: Real = Fraction(0)) -> Amount:
    """Return the smallest amount that covers `rho` (zCDP) and `delta` (failure probability): both rounded up."""
    return Amount(math.ceil(upper(rho) * RHO_UNIT), math.ceil(upper(delta) * DELTA_UNIT))


def cap_rounded_down(rho: Real, delta: Real = Fraction(0)) -> Amount:
    """Return the largest amount that stays within `rho` and `delta`: both rounded down."""
    return Amount(math.floor(lower(rho) * RHO_UNIT), math.floor(lower(delta) * DELTA_UNIT))


def enclose(value: Fraction) -> Interval:
    """Return the tightest interval of this precision around an exact number."""
    return iv.mpf(value.numerator) / iv.mpf(value.denominator)


def upper(value: Real) -> Fraction:
    """Return the upper bound of an enclosed number, or an exact number itself."""
    return value if isinstance(value, Fraction) else Fraction(*to_rational(value._mpi_[1]))


def lower(value: Real) -> Fraction:
    """Return the lower bound of an enclosed number, or an exact number itself."""
    return value if isinstance(value, Fraction) else Fraction(*to_rational(value._mpi_[0]))


def float_above(value: Fraction) -> float:
    """Return the smallest double that is at least `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_below(value: Fraction) -> float:
    """Return the largest double that is at most `value`."""
    return -float_above(-value)


def decimal_above(value: Fraction, places: int) -> Decimal:
    """`value` as a decimal of that many places, rounded up."""
    return Decimal(f"{math.ceil(value * 10**places)}e-{places}")  # the constructor is exact, scaleb is not


def terminating(value: Fraction) -> Decimal:
    """`value` as the decimal that equals it.

    Raises:
        InexactNumber: no finite decimal does (1/3).
    """
    places = max(_multiplicity(value.denominator, 2), _multiplicity(value.denominator, 5))
    scaled = value * 10**places
    if scaled.denominator != 1:
        raise InexactNumber(value)
    return Decimal(f"{scaled.numerator}e-{places}")


def _multiplicity(number: int, prime: int) -> int:
    """Return how often `prime` divides `number`."""
    times = 0
    while number % prime == 0:
        number, times = number // prime, times + 1
    return times


def _moderate(number: Decimal) -> bool:
    """Return whether turning `number` into a fraction is cheap: "1e-999999999" would fill the memory."""
    return abs(number.adjusted()) <= _LARGEST_EXPONENT and len(number.as_tuple().digits) <= _LARGEST_EXPONENT


class InexactNumber(UsageError):
    """A privacy figure that is not an exact, finite number."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{value!r} is not an exact number.",
            "Write privacy figures as decimals in quotes, such as '4.0' or '1e-7'.",
        )
