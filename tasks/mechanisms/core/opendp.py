"""OpenDP, loaded when a mechanism draws; its own privacy map must not exceed the charge.

A price needs none of it. OpenDP loads scikit-learn and polars where it finds them, for wrappers that nobody here uses,
and with them pandas and much of scipy; so these libraries are not to be found while OpenDP loads.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias, cast

from models_db.errors import EnvironmentProblem
from models_db.values.amounts import RHO_UNIT, Amount

WRAPPED = ("polars", "sklearn.decomposition", "sklearn.linear_model")


@contextmanager
def _not_to_be_found(names: tuple[str, ...]) -> Iterator[None]:
    """Make imports of these modules fail as if they were not installed; loaded modules stay."""
    modules = cast("dict[str, Any]", sys.modules)
    hidden = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            modules.pop(name, None)


@cache
def load_opendp() -> Any:
    """Return OpenDP's prelude; a run loads it before it pays for anything."""
    with _not_to_be_found(WRAPPED):
        import opendp.prelude as dp
    dp.enable_features("contrib")  # whatever has no complete proof document yet
    return dp


Measurement: TypeAlias = Any  # OpenDP's is untyped

# OpenDP rounds each float operation up, so it may sit a few ulps above an exact charge.
ULPS = Fraction(1, 10**12)


def check_with_opendp(measurement: Measurement, sensitivity: int | float, loss: Amount) -> Measurement:
    """`measurement`, if OpenDP agrees that `sensitivity` costs at most `loss` under zCDP.

    Raises:
        OpenDPChargesMore: it does not, say because another version means something else by an argument.
    """
    if measurement.map(sensitivity) * RHO_UNIT > loss.rho * (1 + ULPS):
        raise opendp_charges_more()
    return measurement


def check_pure_with_opendp(measurement: Measurement, sensitivity: int | float, epsilon: Fraction) -> Measurement:
    """`measurement`, if OpenDP agrees that `sensitivity` costs at most `epsilon` in pure differential privacy.

    Raises:
        OpenDPChargesMore: it does not.
    """
    if measurement.map(sensitivity) > epsilon * (1 + ULPS):
        raise opendp_charges_more()
    return measurement


def opendp_charges_more() -> EnvironmentProblem:
    """Return the error of an installed OpenDP that charges more for a mechanism than we do."""
    return EnvironmentProblem(
        "The installed OpenDP does not confirm the charge of a mechanism.",
        "Install the OpenDP version of the lock file; nothing was drawn with this one.",
        code="OpenDPChargesMore",
    )
