"""Tiles of the fixed-order kernels: a function of a weight's shape and type, of nothing that rows decide.

A tile is never chosen by a measurement at run time: two runs could choose differently, and the number of rows or their
contents would decide. It is chosen here, once for all, from what `benchmarks/gpu` measures (section `kernels`).
"""

from dataclasses import dataclass
from typing import Final

import torch


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


CANDIDATES: Final[dict[torch.dtype, dict[str, Tile]]] = {
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

_CHOSEN: Final[dict[torch.dtype, tuple[tuple[int, str], ...]]] = {
    torch.bfloat16: ((8192, "large"), (4096, "wide"), (0, "deep")),
    torch.float32: ((4096, "large"), (0, "narrow")),
}
"""The tile of weights of at least so many rows: of the fastest for 304 and 512 rows on an H100, both taken together."""


def tile_of(weight: torch.Tensor) -> Tile:
    """Return the tile for products with a weight [N, K].

    Raises:
        ValueError: its type is neither bfloat16 nor float32.
    """
    if weight.dtype not in CANDIDATES:
        raise ValueError(f"there are fixed-order products of bfloat16 and of float32, not of {weight.dtype}")
    name = next(name for least, name in _CHOSEN[weight.dtype] if len(weight) >= least)
    return CANDIDATES[weight.dtype][name]
