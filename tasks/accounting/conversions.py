"""Conversions of a mechanism's facts to its zCDP charge (PRIVACY §2) and to dp-accounting's vocabulary.

Every function returns the smallest `Amount` that covers the loss of ONE invocation under add/remove-one. A
rho is the supremum over alpha > 1 of D_alpha / alpha, D_alpha the Renyi divergence of the worst neighbouring
pair (Bun and Steinke, arXiv 1605.02065, Definition 1.1); the tests compute that supremum on its own.

Mechanisms in dp-accounting's vocabulary, as the JSON stored beside every charge. The form is dp-accounting's own
`DpEvent.to_named_tuple` (0.6), nested: `module_name`, `class_name`, then the fields. Canonical JSON has no floats, so a
float field is its `repr` as a string, which reads back to the same double. Written by hand here, because importing
dp-accounting takes a second; `tasks.accounting.dp_accounting_check` reads it back through the library, and a test holds
the two together.
"""

from fractions import Fraction

from models_db.values.amounts import RHO_UNIT, Amount
from models_db.values.canonical_json import Json
from tasks.accounting.rounding import Exact, Interval, charge_rounded_up, enclose, exact, float_above, iv


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


MODULE = "dp_accounting.dp_event"


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
        "module_name": MODULE,
        "class_name": "SelfComposedDpEvent",
        "event": {"module_name": MODULE, **event},
        "count": count,
    }
