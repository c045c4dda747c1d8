"""zCDP: what an invocation of a mechanism is charged, and what rho and (epsilon, delta) say of each other (PRIVACY §2).

*Charges.* Every function from a mechanism's facts to its charge returns the smallest `Amount` that covers the loss of
ONE invocation under add/remove-one. A rho is the supremum over alpha > 1 of D_alpha / alpha, D_alpha the Renyi
divergence of the worst neighbouring pair (Bun and Steinke, arXiv 1605.02065, Definition 1.1); the tests compute that
supremum on its own.

*Events* in dp-accounting's vocabulary are the JSON stored beside every charge. The form is dp-accounting's own
`DpEvent.to_named_tuple` (0.6), nested: `module_name`, `class_name`, then the fields. Canonical JSON has no floats, so a
float field is its `repr` as a string, which reads back to the same double. Written by hand here, because importing
dp-accounting takes a second; `tasks.accounting.dp_accounting_check` reads it back through the library, and a test holds
the two together.

*Claims, caps and release targets* convert between zCDP and (epsilon, delta). The bound is Canonne, Kamath, Steinke,
"The Discrete Gaussian for Differential Privacy", arXiv 2004.00010, Proposition 12: a rho-zCDP mechanism is
(epsilon, delta)-DP for every order alpha > 1 and

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
from models_db.values.canonical_json import Json
from tasks.accounting.rounding import (
    Exact,
    Interval,
    cap_rounded_down,
    charge_rounded_up,
    decimal_above,
    enclose,
    exact,
    float_above,
    iv,
    lower,
    terminating,
    upper,
)


def gaussian(sensitivity: Exact, sigma: Exact) -> Amount:
    """Discretised Gaussian noise on a query that lies on the noise's grid: s^2 / (2 sigma^2).

    Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 4 (the continuous one: Bun and Steinke, Proposition
    1.6).

    Args:
        sensitivity: L2 sensitivity, in the query's units.
        sigma: the noise's scale parameter, in the same units.
    """
    return charge_rounded_up((_positive(sensitivity) / _positive(sigma)) ** 2 / 2)


def gaussian_coordinates(coordinates: int, sigma: Exact) -> Amount:
    """Discretised Gaussian noise where k coordinates move by 1 each, k = `coordinates`: k / (2 sigma^2).

    The `gaussian` row with sensitivity sqrt(k) (Canonne, Kamath, Steinke, arXiv 2004.00010, Theorem 14), without taking
    the root.
    """
    if coordinates < 1:
        raise ValueError(f"a mechanism has at least one coordinate, not {coordinates}")
    return charge_rounded_up(coordinates / (2 * _positive(sigma) ** 2))


def pure_dp(epsilon: Exact) -> Amount:
    """Any epsilon-DP mechanism: epsilon tanh(epsilon/2), attained by randomised response as alpha -> 1.

    Every epsilon-DP pair is a post-processing of randomised response (Kairouz, Oh, Viswanath, "The
    Composition Theorem for Differential Privacy", ICML 2015), whose tight rho is its KL divergence (Harrison
    and Manurangsi, arXiv 2510.25746). Never above Bun and Steinke's epsilon^2 / 2.
    """
    return independent_coordinates(epsilon, 1)


def independent_coordinates(epsilon: Exact, coordinates: int) -> Amount:
    """k independent mechanisms, each (epsilon/k)-DP, k = `coordinates`: epsilon tanh(epsilon/(2k)).

    The `pure_dp` row once per coordinate: zCDP adds up (Bun and Steinke, Lemma 1.7).
    """
    if coordinates < 1:
        raise ValueError(f"a mechanism has at least one coordinate, not {coordinates}")
    loss = _positive(epsilon)
    return charge_rounded_up(enclose(loss) * _tanh(enclose(loss / (2 * coordinates))))


def bounded_range(eta: Exact) -> Amount:
    """Return the charge of a mechanism of bounded range eta, such as the exponential mechanism: eta^2 / 8.

    Cesar and Rogers, "Bounding, Concentrating, and Truncating", arXiv 2004.07223. A score that moves either
    way by at most s and is drawn with exp(score / tau) has eta = 2 s / tau.
    """
    return charge_rounded_up(_positive(eta) ** 2 / 8)


def replace_one(amount: Amount, *, one_hot: bool = False) -> Amount:
    """Return the replace-one figure of a rho stated for add/remove-one (PRIVACY §1), for display beside it.

    Replacing is removing and adding: twice the sensitivity, four times rho (Bun and Steinke, Proposition
    1.9). On one-hot statistics with Gaussian noise two entries change by one each: sqrt(2) times, so twice.

    Raises:
        ValueError: the amount has a failure probability; its (epsilon, delta) is re-converted.
    """
    if amount.delta:
        raise ValueError("a charge with a failure probability is re-converted from its epsilon and delta")
    return amount * (2 if one_hot else 4)


def _tanh(x: Interval) -> Interval:
    """Encloses tanh; 1 - 2/(e^(2x) + 1) names x once, which keeps the interval tight."""
    return 1 - 2 / (iv.exp(2 * x) + 1)


def _positive(value: Exact) -> Fraction:
    number = exact(value)
    if number <= 0:
        raise ValueError(f"a privacy parameter must be positive, not {number}")
    return number


DP_EVENT_MODULE = "dp_accounting.dp_event"


def zcdp_event(rho: int, count: int) -> Json:
    """`count` mechanisms of `rho` (units of 1e-12) each: `ZCDpEvent`, its rho the next double above ours."""
    return _repeated({"class_name": "ZCDpEvent", "rho": repr(float_above(Fraction(rho, RHO_UNIT))), "xi": "0.0"}, count)


def gaussian_event(noise_multiplier: float, count: int) -> Json:
    """`count` Gaussian mechanisms of one noise multiplier (sigma over L2 sensitivity): `GaussianDpEvent`."""
    return _repeated({"class_name": "GaussianDpEvent", "noise_multiplier": repr(noise_multiplier)}, count)


def discrete_laplace_event(noise_parameter: float, count: int) -> Json:
    """`count` discrete Laplace mechanisms of one parameter and sensitivity 1: `DiscreteLaplaceDpEvent`.

    At sensitivity 1 its loss is +-a, a the parameter, as often as randomised response's: it dominates every a-DP
    mechanism (Kairouz, Oh, Viswanath, ICML 2015), so it stands for any of them.
    """
    event: dict[str, Json] = {
        "class_name": "DiscreteLaplaceDpEvent",
        "noise_parameter": repr(noise_parameter),
        "sensitivity": 1,
    }
    return _repeated(event, count)


def _repeated(event: dict[str, Json], count: int) -> Json:
    return {
        "module_name": DP_EVENT_MODULE,
        "class_name": "SelfComposedDpEvent",
        "event": {"module_name": DP_EVENT_MODULE, **event},
        "count": count,
    }


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
