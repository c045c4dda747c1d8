"""Conversion between zCDP and (epsilon, delta): claims, caps and release targets (PRIVACY §2).

The bound is Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", arXiv 2004.00010,
Proposition 12: a rho-zCDP mechanism is (epsilon, delta)-DP for every order alpha > 1 and

    delta = exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1 - 1/alpha)^alpha.

Every alpha gives a valid bound, so the search for the best one need not be trusted: it runs in doubles and
returns a *witness*; the figure itself is computed from the witness in interval arithmetic and rounded
outward, and what was solved for is then put back into the bound and checked. Since the derivative vanishes at
the optimum, an error of 1e-15 in the witness costs about 1e-30 of the result.

The logarithm of the bound is strictly convex in alpha (second derivative 2 rho + 1/(alpha (alpha-1))), so its
only stationary point, (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha) = 0, is the minimum. With x = alpha - 1
and the bound set to delta, that equation becomes x^2 rho + ln(1+x) = ln(1/delta), which two of the searches
solve.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from models_db.errors import UsageError
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount
from tasks.accounting.rounding import (
    Exact,
    Interval,
    cap_rounded_down,
    decimal_above,
    enclose,
    exact,
    iv,
    lower,
    terminating,
    upper,
)

EPSILON_PLACES = 12
DELTA_PLACES = 30
DEFAULT_FAIL_SHARE = Fraction(1, 10)
LARGEST_EPSILON = 10**6


@dataclass(frozen=True)
class LifetimeCap:
    """Lifetime budget of a dataset for a claim of (epsilon, delta).

    Attributes:
        epsilon, delta: the claim, exact.
        delta_conv: the share of delta that pays for converting rho, exact.
        amount: the two caps of the account: the largest rho with delta(rho, epsilon) <= delta_conv, and
            delta - delta_conv for mechanisms that fail with a small probability.
    """

    epsilon: Decimal
    delta: Decimal
    delta_conv: Decimal
    amount: Amount


def lifetime_cap(epsilon: Exact, delta: Exact, fail_share: Exact = DEFAULT_FAIL_SHARE) -> LifetimeCap:
    """Return the caps of a dataset's account for a lifetime (epsilon, delta) claim.

    Args:
        fail_share: the part of delta, in [0, 1), kept for mechanisms with a failure probability.

    Raises:
        InvalidTarget: epsilon, delta or the share is out of range, or buys less than one unit of rho.
    """
    share = exact(fail_share)
    if not 0 <= share < 1:
        raise InvalidTarget(f"The failure share of delta must be in [0, 1), not {share}.")
    claim_epsilon, claim_delta = _target(epsilon, delta)
    fail = cap_rounded_down(Fraction(0), claim_delta * share).delta
    delta_conv = claim_delta - Fraction(fail, DELTA_UNIT)
    if delta_conv < Fraction(1, DELTA_UNIT):
        raise InvalidTarget(f"A lifetime delta of {delta} is below what the ledger can count, 1e-18.")
    rho = _affordable(claim_epsilon, delta_conv)
    return LifetimeCap(
        epsilon=terminating(claim_epsilon),
        delta=terminating(claim_delta),
        delta_conv=terminating(delta_conv),
        amount=Amount(rho, fail),
    )


def release_amount(epsilon: Exact, delta: Exact, fail_share: Exact = 0) -> Amount:
    """Return the amount that one release may charge under an (epsilon, delta) claim.

    Args:
        fail_share: the part of delta, in [0, 1), that its mechanisms need for failing; the rest is for the conversion.

    Raises:
        InvalidTarget: epsilon, delta or the share is out of range, or buys less than one unit of rho.

    >>> release_amount("4", "1e-7")
    Amount(rho=266313968646, delta=0)
    """
    share, (claim, whole) = exact(fail_share), _target(epsilon, delta)
    if not 0 <= share < 1:
        raise InvalidTarget(f"The failure share of delta must be in [0, 1), not {share}.")
    fail = cap_rounded_down(Fraction(0), whole * share).delta
    return Amount(_affordable(claim, whole - Fraction(fail, DELTA_UNIT)), fail)


def spent_epsilon(amount: Amount, delta_conv: Exact) -> Decimal:
    """Return the epsilon that `amount.rho` has cost at `delta_conv`, rounded up: for display beside rho.

    The claim it belongs to has delta = delta_conv + amount.delta.
    """
    return epsilon_of(amount.rho, delta_conv)


def epsilon_of(rho: int, delta: Exact) -> Decimal:
    """Return the smallest epsilon for which `rho` (units of 1e-12) is (epsilon, delta)-DP, rounded up to 12 places.

    Raises:
        InvalidTarget: delta is not in (0, 1).

    >>> epsilon_of(266313968646, "1e-7")
    Decimal('3.999999999994')
    """
    loss, target = _rho(rho), _delta(delta)
    if not loss:
        return Decimal(0)
    r, log_delta = float(loss), _log(target)
    x = _witness(lambda x: x * x * r + math.log1p(x) + log_delta)
    order, log_target = enclose(x), iv.log(enclose(target))
    alpha = 1 + order
    # Proposition 12 solved for epsilon at the witness.
    epsilon = alpha * enclose(loss) + iv.log(order / alpha) - (log_target + iv.log(alpha)) / order
    rounded = decimal_above(max(upper(epsilon), Fraction(0)), EPSILON_PLACES)
    _verify(x, loss, Fraction(rounded), target)
    return rounded


def rho_of(epsilon: Exact, delta: Exact) -> int:
    """Return the largest rho, in whole units of 1e-12, for which delta(rho, epsilon) <= delta.

    Raises:
        InvalidTarget: epsilon or delta is out of range.

    >>> rho_of("1", "1e-5")
    30556595197
    """
    target, delta_target = _target(epsilon, delta)
    e, log_delta = float(target), _log(delta_target)

    def excess(x: float) -> float:
        # The epsilon of the rho at which x is the best order, minus the target: falls as x grows.
        rho = -(log_delta + math.log1p(x)) / (x * x)
        return e - (2 * x + 1) * rho - math.log(x) + math.log1p(x)

    x = _witness(excess)
    order, log_target = enclose(x), iv.log(enclose(delta_target))
    alpha = 1 + order
    # Proposition 12 solved for rho at the witness.
    rho = enclose(target) / alpha + (log_target + alpha * iv.log(alpha) - order * iv.log(order)) / (alpha * order)
    units = max(cap_rounded_down(rho).rho, 0) if lower(rho) > 0 else 0
    _verify(x, Fraction(units, RHO_UNIT), target, delta_target)
    return units


def _log_delta(x: Fraction, rho: Fraction, epsilon: Fraction) -> Interval:
    """Encloses ln of Proposition 12's bound at order alpha = 1 + x."""
    order = enclose(x)
    alpha = 1 + order
    return order * (alpha * enclose(rho) - enclose(epsilon)) + order * iv.log(order) - alpha * iv.log(alpha)


def _verify(x: Fraction, rho: Fraction, epsilon: Fraction, delta: Fraction) -> None:
    """Puts a solved figure back into Proposition 12; a failure would be a fault of this module."""
    if rho and upper(_log_delta(x, rho, epsilon)) > lower(iv.log(enclose(delta))):
        raise ArithmeticError(f"rho {rho} is not ({epsilon}, {delta})-DP at order {float(1 + x)}")


def _witness(rising: Callable[[float], float]) -> Fraction:
    """Return the x > 0 at which a rising function crosses zero, to double precision: bisection in ln x."""
    low, high = -300.0, 300.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(math.exp(middle)) < 0 else (low, middle)
    return Fraction(math.exp(high))


def _log(value: Fraction) -> float:
    """ln of a fraction that may be too small for a double."""
    return math.log(value.numerator) - math.log(value.denominator)


def _affordable(epsilon: Fraction, delta: Fraction) -> int:
    """`rho_of`, where nothing at all is refused."""
    rho = rho_of(epsilon, delta)
    if not rho:
        raise InvalidTarget(f"Epsilon {float(epsilon)} at delta {float(delta)} buys less than 1e-12 zCDP.")
    return rho


def _rho(units: int) -> Fraction:
    return Fraction(Amount(units).rho, RHO_UNIT)


def _target(epsilon: Exact, delta: Exact) -> tuple[Fraction, Fraction]:
    target = exact(epsilon)
    if not 0 < target <= LARGEST_EPSILON:
        raise InvalidTarget(f"Epsilon must be above 0 and at most {LARGEST_EPSILON}, not {epsilon}.")
    return target, _delta(delta)


def _delta(delta: Exact) -> Fraction:
    target = exact(delta)
    if not 0 < target < 1:
        raise InvalidTarget(f"Delta must be above 0 and below 1, not {delta}.")
    return target


class InvalidTarget(UsageError):
    """An epsilon, delta or share that no claim can be made from."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Ask for an epsilon such as 4.0 with a delta such as 1e-7.")
