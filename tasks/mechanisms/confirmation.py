"""A second opinion on every charge: OpenDP's own privacy map must not exceed ours."""

from typing import Any, TypeAlias

import opendp.prelude as dp

from models_db.budgets import RHO_UNIT, Amount
from models_db.errors import EnvironmentProblem

Measurement: TypeAlias = Any  # OpenDP's is untyped

# OpenDP marks whatever has no complete proof document yet as `contrib`, the noisy maximum included.
dp.enable_features("contrib")


def confirmed(measurement: Measurement, sensitivity: int | float, loss: Amount) -> Measurement:
    """`measurement`, if OpenDP agrees that `sensitivity` costs at most `loss` under zCDP.

    Raises:
        SamplerDisagrees: it does not, say because another version means something else by an argument.
    """
    # OpenDP rounds each float operation up, so it may sit a few ulps above an exact charge.
    if measurement.map(sensitivity) * RHO_UNIT > loss.rho * (1 + 1e-12):
        raise SamplerDisagrees
    return measurement


class SamplerDisagrees(EnvironmentProblem):
    """The installed OpenDP charges more for a mechanism than we do."""

    def __init__(self) -> None:
        super().__init__(
            "The installed OpenDP does not confirm the charge of a mechanism.",
            "Install the OpenDP version of the lock file; nothing was drawn with this one.",
        )
