"""Order in which the kernels of a model are tried; docs/decisions/0147-fixed-order-kernels.md has the reasons."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal

import torch

KernelName = Literal["packed", "plain", "fixed order"]

PACKED: Final = "packed"
"""oneDNN's products of weights that were packed beforehand, on a CPU."""
PLAIN: Final = "plain"
"""torch's own products: MKL or oneDNN on a CPU, cuBLAS on CUDA."""
FIXED_ORDER: Final = "fixed order"
"""The kernels of this folder, on CUDA."""


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

    def advance(self, works: Callable[[KernelName], bool]) -> bool:
        """Go on to the next kernels that work here; return whether there are any."""
        for number in range(self.number + 1, len(self.names)):
            if works(self.names[number]):
                self.number = number
                return True
        return False


def kernel_order(device: torch.device, *, packed: bool) -> KernelOrder:
    """Return the order for a model on `device`.

    Args:
        packed: whether its weights are packed.
    """
    if device.type == "cuda":
        names: tuple[KernelName, ...] = (PLAIN, FIXED_ORDER) if find_spec("triton") else (PLAIN,)
        return KernelOrder(names, fewer_rows_first=False)
    return KernelOrder((PACKED, PLAIN) if packed else (PLAIN,))
