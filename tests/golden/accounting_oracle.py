"""An independent oracle for the accounting, and the golden values it gives.

`python -m tests.golden.accounting_oracle` rewrites accounting.json. Nothing of the project is imported: plain mpmath
at 50 digits, searches by golden section and bisection instead of stationary points, no interval arithmetic.
"""

import json
from collections.abc import Callable
from pathlib import Path

from mpmath import exp, floor, log, mp, mpf, sqrt, tanh

GOLDEN = Path(__file__).with_name("accounting.json")
mp.dps = 50


def log_delta(alpha: mpf, rho: mpf, epsilon: mpf) -> mpf:
    """ln of Canonne, Kamath, Steinke, arXiv 2004.00010, Proposition 12, at one order."""
    return (alpha - 1) * (alpha * rho - epsilon) - log(alpha - 1) + alpha * log(1 - 1 / alpha)


def least(function: Callable[[mpf], mpf], low: mpf, high: mpf, steps: int = 140) -> mpf:
    """The minimum of a unimodal function, by golden section."""
    ratio = (sqrt(mpf(5)) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return min(at_left, at_right)


def delta_at(rho: mpf, epsilon: mpf) -> mpf:
    """The delta of rho-zCDP at epsilon: the minimum over orders 1 + e^t."""
    return exp(least(lambda t: log_delta(1 + exp(t), rho, epsilon), mpf(-30), mpf(30)))


def rho_at(epsilon: mpf, delta: mpf) -> mpf:
    """The largest rho with delta_at(rho, epsilon) <= delta, by bisection to 1e-16."""
    low, high = mpf(0), epsilon + 1
    while high - low > mpf("1e-16"):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle, epsilon) <= delta else (low, middle)
    return low


def units(rho: mpf) -> int:
    """Rounded down to units of 1e-12."""
    return int(floor(rho * 10**12))


def golden() -> list[dict[str, object]]:
    """Every golden value with the formula it comes from."""
    cap = (
        "largest rho, in units of 1e-12, with min over alpha > 1 of "
        "exp((alpha-1)(alpha rho - epsilon))/(alpha-1) (1-1/alpha)^alpha <= delta"
    )
    targets = [("10", "1e-5"), ("4", "1e-7"), ("8", "1e-6"), ("1", "1e-5"), ("0.1", "1e-6"), ("30", "1e-9")]
    values: list[dict[str, object]] = [
        {"function": "rho_of", "arguments": [e, d], "value": units(rho_at(mpf(e), mpf(d))), "formula": cap}
        for e, d in targets
    ]
    conversions = {
        "pure_dp": (["1"], mpf(1) * tanh(mpf(1) / 2), "epsilon tanh(epsilon/2)"),
        "independent_coordinates": (["1", 4], tanh(mpf(1) / 8), "epsilon tanh(epsilon/(2k))"),
        "bounded_range": (["0.5"], mpf("0.5") ** 2 / 8, "eta^2/8"),
        "gaussian": (["3", "7"], mpf(9) / 98, "s^2/(2 sigma^2)"),
        "gaussian_coordinates": ([5, "7"], mpf(5) / 98, "k/(2 sigma^2)"),
    }
    values += [
        {
            "function": name,
            "arguments": arguments,
            "value": -units(-rho),
            "formula": f"{formula}, in units of 1e-12, rounded up",
        }
        for name, (arguments, rho, formula) in conversions.items()
    ]
    clip = sqrt(2 * rho_at(mpf(10), mpf("1e-5")) / 500) * 7
    values.append(
        {
            "function": "clip_steps",
            "arguments": ["10", "1e-5", 500, 7, "1"],
            "value": int(floor(clip * 2**20)),
            "formula": "tau B sqrt(2 rho/T) / 2^-20, rounded down; C = 0.5911 (PRIVACY §4.1)",
        }
    )
    return values


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden(), indent=2) + "\n")
