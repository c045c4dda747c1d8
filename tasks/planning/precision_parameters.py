"""Precision that a request names for its model: it changes the draws, so it is approved."""

from pydantic import BaseModel

from models_db.values.requests import RequestModel
from tasks.inference.catalogue.model_check import Precision


class PrecisionParameters(RequestModel):
    """Precision of the model's arithmetic in a system's `parameters:`; public."""

    precision: Precision = "float32"


def precision_of(parameters: BaseModel) -> Precision:
    """Return the precision in a system's parameters; float32 where they have none."""
    return parameters.precision if isinstance(parameters, PrecisionParameters) else "float32"


def precision_facts(parameters: PrecisionParameters) -> dict[str, str]:
    """Return the fact about a precision below float32 that a plan shows."""
    return {} if parameters.precision == "float32" else {"precision": parameters.precision}


def require_precision(parameters: BaseModel, *, external: bool) -> None:
    """Check that a device of this machine can compute as `parameters` ask for; float32 can be had anywhere.

    Args:
        external: whether the model is behind an API, where nothing is computed here.

    Raises:
        PrecisionMissing: no device can.
    """
    if precision_of(parameters) != "float32" and not external:
        from tasks.inference.catalogue.devices import require_available

        require_available(precision_of(parameters))
