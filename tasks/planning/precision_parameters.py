"""Precision that a request names for its model: it changes the draws, so it is approved."""

from pydantic import BaseModel

from models_db.values.requests import RequestModel
from tasks.inference.catalogue.precision import Precision


class PrecisionParameters(RequestModel):
    """The part of a system's `parameters:` that is about the model's arithmetic; public."""

    precision: Precision = "float32"


def precision_of(parameters: BaseModel) -> Precision:
    """What a system's parameters ask for; float32 where they know of none."""
    return parameters.precision if isinstance(parameters, PrecisionParameters) else "float32"


def precision_facts(wanted: PrecisionParameters) -> dict[str, str]:
    """Fewer bits than float32, for people."""
    return {} if wanted.precision == "float32" else {"precision": wanted.precision}


def require_precision(parameters: BaseModel, *, external: bool) -> None:
    """Check that a device of this machine can compute as `parameters` ask for; float32 can be had anywhere.

    Args:
        external: whether the model is behind an API, where nothing is computed here.

    Raises:
        PrecisionMissing: none can.
    """
    if precision_of(parameters) != "float32" and not external:
        from tasks.inference.network.capabilities import (
            require_available,  # it loads torch, which most requests need not
        )

        require_available(precision_of(parameters))
