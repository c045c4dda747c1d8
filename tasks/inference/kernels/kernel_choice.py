"""Choice of kernels: the order in which those of a model are tried, and the tiles of the fixed-order kernels.

A tile is a function of a weight's shape and type, of nothing that rows decide. It is never chosen by a measurement at
run time: two runs could choose differently, and the number of rows or their contents would decide. It is chosen here,
once for all, from what `benchmarks/gpu` measures (section `kernels`).
"""

from dataclasses import dataclass
from typing import Final, Literal

import torch

from tasks.inference.catalogue.model_check import Precision

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


@dataclass(frozen=True)
class Tile:
    """Tile of a product: what one program computes, and how it is compiled.

    Attributes:
        rows, columns, depth: rows of x, rows of the weight, and numbers of a sum that are taken in one go.
        warps, stages: of Triton: groups of 32 threads, and tiles that are loaded ahead. Neither changes a sum's order.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


CANDIDATE_TILES: Final[dict[torch.dtype, dict[str, Tile]]] = {
    torch.bfloat16: {
        "wide": Tile(64, 128, 64, 4, 4),
        "narrow": Tile(64, 64, 64, 4, 4),
        "deep": Tile(64, 64, 128, 4, 3),
        "large": Tile(128, 128, 64, 8, 3),
    },
    torch.float32: {
        "wide": Tile(64, 128, 32, 8, 3),
        "narrow": Tile(64, 64, 32, 4, 3),
        "large": Tile(128, 128, 16, 8, 3),
    },
}
"""Tiles to measure, by their names."""

_CHOSEN_TILES: Final[dict[torch.dtype, tuple[tuple[int, str], ...]]] = {
    torch.bfloat16: ((8192, "large"), (4096, "wide"), (0, "deep")),
    torch.float32: ((4096, "large"), (0, "narrow")),
}
"""The tile of weights of at least so many rows: of the fastest for 304 and 512 rows on an H100, both taken together."""


def tile_of(weight: torch.Tensor) -> Tile:
    """Return the tile for products with a weight [N, K].

    Raises:
        ValueError: its type is neither bfloat16 nor float32.
    """
    if weight.dtype not in CANDIDATE_TILES:
        raise ValueError(f"there are fixed-order products of bfloat16 and of float32, not of {weight.dtype}")
    name = next(name for least, name in _CHOSEN_TILES[weight.dtype] if len(weight) >= least)
    return CANDIDATE_TILES[weight.dtype][name]
