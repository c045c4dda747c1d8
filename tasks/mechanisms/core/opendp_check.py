"""A second opinion on every charge: OpenDP's own privacy map must not exceed ours."""

from fractions import Fraction
from typing import Any, TypeAlias

from models_db.errors import EnvironmentProblem
from models_db.values.amounts import RHO_UNIT, Amount

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
