"""Mechanisms in dp-accounting's vocabulary, as the JSON stored beside every charge.

The form is dp-accounting's own `DpEvent.to_named_tuple` (0.6), nested: `module_name`, `class_name`, then the
fields. Canonical JSON has no floats, so a float field is its `repr` as a string, which reads back to the same
double. Written by hand here, because importing dp-accounting takes a second; `tasks.accounting.dp_accounting_check`
reads it back through the library, and a test holds the two together.
"""

from fractions import Fraction

from models_db.values.amounts import RHO_UNIT
from models_db.values.canonical_json import Json
from tasks.accounting.rounding import float_above

MODULE = "dp_accounting.dp_event"


def zcdp(rho: int, count: int) -> Json:
    """`count` mechanisms of `rho` (units of 1e-12) each: `ZCDpEvent`, its rho the next double above ours."""
    return _repeated({"class_name": "ZCDpEvent", "rho": repr(float_above(Fraction(rho, RHO_UNIT))), "xi": "0.0"}, count)


def gaussian(noise_multiplier: float, count: int) -> Json:
    """`count` Gaussian mechanisms of one noise multiplier (sigma over L2 sensitivity): `GaussianDpEvent`."""
    return _repeated({"class_name": "GaussianDpEvent", "noise_multiplier": repr(noise_multiplier)}, count)


def discrete_laplace(noise_parameter: float, count: int) -> Json:
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
