"""Order in which the kernels of a model are tried."""

from dataclasses import dataclass
from typing import Final, Literal

import torch

from tasks.inference.catalogue.precision import Precision

KernelName = Literal["packed", "plain", "fixed attention", "fixed order"]

PACKED: Final = "packed"
"""oneDNN's products of weights that were packed beforehand, on a CPU."""
PLAIN: Final = "plain"
"""torch's own products: MKL or oneDNN on a CPU, cuBLAS on CUDA."""
FIXED_ATTENTION: Final = "fixed attention"
"""torch's own products, and the attention of this folder: on an H100 it is faster than products and a softmax are."""
FIXED_ORDER: Final = "fixed order"
"""The kernels of this folder for products and attention, on CUDA."""


@dataclass(eq=False)
class KernelOrder:
    """The kernels that a model may be multiplied by, the fastest first, and which of them multiply now.

    All copies of a model share one, as they share their layers.

    Attributes:
        names: at least one.
        fewer_rows_first: whether passes of fewer rows are tried before the next kernels. Packed weights are twice to
            three times as fast as others on a CPU, whose speed hardly depends on the rows of a pass; on CUDA half as
            many rows take nearly twice the time.
        number: of the current one.
    """

    names: tuple[KernelName, ...]
    fewer_rows_first: bool = True
    number: int = 0

    @property
    def current(self) -> KernelName:
        """Name of the kernels that multiply now."""
        return self.names[self.number]

    def advance(self) -> bool:
        """Go on to the next kernels; return whether there are any."""
        if self.number + 1 == len(self.names):
            return False
        self.number += 1
        return True


def kernel_order(device: torch.device, precision: Precision, *, packed: bool, fixed: bool) -> KernelOrder:
    """Return the order for a model on `device`.

    Args:
        packed: whether its weights are packed.
        fixed: whether the kernels of this folder work there.
    """
    if device.type != "cuda":
        return KernelOrder((PACKED, PLAIN) if packed else (PLAIN,))
    first: KernelName = FIXED_ATTENTION if fixed and precision == "bfloat16" else PLAIN
    return KernelOrder((first, FIXED_ORDER) if fixed else (first,), fewer_rows_first=False)
