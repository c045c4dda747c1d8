"""Precision of a model's layers, in bits. Imports no torch: requests name precisions.

| name | weights and activations of the layers | keys and values | head |
| --- | --- | --- | --- |
| float32 | float32 | float32 | float32 |
| bfloat16 | bfloat16, sums in float32 | bfloat16 | float32 |
| int8 | int8, exact integer sums; float32 between layers | bfloat16 | float32 |

Logits are float32 always.
"""

from typing import Literal, get_args

from models_db.errors import EnvironmentProblem

Precision = Literal["float32", "bfloat16", "int8"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class PrecisionMissing(EnvironmentProblem):
    """This device cannot compute in that precision as the privacy contract needs it."""

    def __init__(self, precision: Precision, device: str, reason: str) -> None:
        others = " or ".join(name for name in PRECISIONS if name != precision)
        super().__init__(
            f"On {device}, layers cannot compute in {precision}: {reason}.",
            f"Request precision {others}.",
            {"precision": precision, "device": device},
        )
