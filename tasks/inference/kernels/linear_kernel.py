"""Linear layer in Triton whose sums have one order for a weight, whatever the rows.

    y[r, n] = b[n] + sum over blocks of K, ascending, of x[r, block] . w[n, block]

A program computes one tile of y alone, over all of K: no sum is split among programs, and none is added by atomics.
The tile follows from the weight (`tiles`), so the number of rows only decides how many programs there are; rows that a
tile lacks are zeros that are not stored. What a program computes for a row of its tile depends on that row and the
weight alone, as far as the device's matrix instructions treat the rows of a tile alike: the isolation check asks that.

Sums are in float32. Products of float32 are those of float32 (`ieee`), never of TF32. Autotuning is not used
(`tiles`), and the number of rows is no constant of the compiled code. A launch waits for nothing and reads nothing
back, so it may be captured in a CUDA graph.

Importing this module imports Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.inference.kernels.kernel_choice import Tile, tile_of

_ALIGNMENT = 16
"""Bytes; compiled code for pointers of this alignment loads vectors."""
_GROUP = 8
"""Tiles of rows that share a tile of the weight one after the other, so that it is read from memory once."""
_CHOSEN, _CHOSEN_DEPTH = 16, 256
"""Chosen channels of a program, and numbers of their sums that it takes in one go."""


@triton.jit(do_not_specialize=["rows"])
def _linear_kernel(
    x_pointer,
    weight_pointer,
    bias_pointer,
    y_pointer,
    rows,
    channels,
    inputs,
    HAS_BIAS: tl.constexpr,
    HAS_REST: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
    TILE_DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    number = tl.program_id(0)
    row_tiles = tl.cdiv(rows, TILE_ROWS)
    in_group = GROUP * tl.cdiv(channels, TILE_COLUMNS)
    first_tile = number // in_group * GROUP
    height = tl.minimum(row_tiles - first_tile, GROUP)
    row_tile = first_tile + number % in_group % height
    column_tile = number % in_group // height

    r = row_tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    n = column_tile * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    k = tl.arange(0, TILE_DEPTH)
    has_row, has_channel = r < rows, n < channels
    x_at = x_pointer + r.to(tl.int64)[:, None] * inputs + k[None, :]
    weight_at = weight_pointer + n.to(tl.int64)[None, :] * inputs + k[:, None]
    sums = tl.zeros((TILE_ROWS, TILE_COLUMNS), dtype=tl.float32)
    for start in range(0, inputs, TILE_DEPTH):
        if HAS_REST:
            inside = k < inputs - start
            x = tl.load(x_at, mask=has_row[:, None] & inside[None, :], other=0.0)
            weight = tl.load(weight_at, mask=has_channel[None, :] & inside[:, None], other=0.0)
        else:
            x = tl.load(x_at, mask=has_row[:, None], other=0.0)
            weight = tl.load(weight_at, mask=has_channel[None, :], other=0.0)
        sums = tl.dot(x, weight, sums, input_precision="ieee")
        x_at += TILE_DEPTH
        weight_at += TILE_DEPTH
    if HAS_BIAS:
        sums += tl.load(bias_pointer + n, mask=has_channel, other=0.0).to(tl.float32)[None, :]
    y_at = y_pointer + r.to(tl.int64)[:, None] * channels + n[None, :]
    tl.store(y_at, sums.to(y_pointer.dtype.element_ty), mask=has_row[:, None] & has_channel[None, :])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, tile: Tile | None = None) -> Tensor:
    """Return x @ weight.T + bias: [..., K], [N, K] and [N] -> [..., N], all bfloat16 or all float32, on one device.

    Sums are in float32 and are rounded once, after the bias.

    Args:
        tile: another than the weight's, to measure it.

    Raises:
        ValueError: another type, two types, or sizes that do not fit.
    """
    if x.dtype != weight.dtype or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"rows of {x.shape[-1]} x {x.dtype} do not fit a weight of {weight.shape[1]} x {weight.dtype}")
    tile = tile_of(weight) if tile is None else tile
    flat, weight = (_aligned(part) for part in (x.reshape(-1, x.shape[-1]), weight))
    rows, channels = len(flat), len(weight)
    y = torch.empty((rows, channels), dtype=x.dtype, device=x.device)
    if y.numel():
        programs = triton.cdiv(rows, tile.rows) * triton.cdiv(channels, tile.columns)
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # torch's own gap
            _linear_kernel[(programs,)](
                flat,
                weight,
                weight if bias is None else bias,
                y,
                rows,
                channels,
                weight.shape[1],
                HAS_BIAS=bias is not None,
                HAS_REST=weight.shape[1] % tile.depth > 0,
                TILE_ROWS=tile.rows,
                TILE_COLUMNS=tile.columns,
                TILE_DEPTH=tile.depth,
                GROUP=_GROUP,
                num_warps=tile.warps,
                num_stages=tile.stages,
            )
    return y.view(*x.shape[:-1], channels)


@triton.jit
def _chosen_kernel(
    x_pointer,
    weight_pointer,
    bias_pointer,
    chosen_pointer,
    y_pointer,
    count,
    inputs,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, DEPTH)
    has_place = place < count
    chosen = tl.load(chosen_pointer + row * count + place, mask=has_place, other=0)
    weight_at = weight_pointer + chosen[:, None] * inputs + k[None, :]
    sums = tl.zeros((BLOCK, DEPTH), dtype=tl.float32)
    for start in range(0, inputs, DEPTH):
        inside = k < inputs - start
        x = tl.load(x_pointer + row * inputs + start + k, mask=inside, other=0.0)
        weight = tl.load(weight_at + start, mask=has_place[:, None] & inside[None, :], other=0.0)
        sums += x[None, :].to(tl.float32) * weight.to(tl.float32)
    y = tl.sum(sums, 1)
    if HAS_BIAS:
        y += tl.load(bias_pointer + chosen, mask=has_place, other=0.0).to(tl.float32)
    tl.store(y_pointer + row * count + place, y.to(y_pointer.dtype.element_ty), mask=has_place)


def linear_of_chosen(x: Tensor, weight: Tensor, bias: Tensor | None, chosen: Tensor) -> Tensor:
    """Return x[r] . weight[chosen[r, n]] + bias[chosen[r, n]]: [R, K], [V, K], [V] and int64 [R, N] -> [R, N].

    One program computes a few channels of one row; the chosen rows of the weight are read where they are. Sums are in
    float32: number k of a block of 256 is added to those of the other blocks, then the 256 sums are added.
    """
    x, weight, chosen = (_aligned(part) for part in (x, weight, chosen))
    rows, count = chosen.shape
    y = torch.empty((rows, count), dtype=x.dtype, device=x.device)
    if y.numel():
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # torch's own gap
            _chosen_kernel[(rows, triton.cdiv(count, _CHOSEN))](
                x,
                weight,
                weight if bias is None else bias,
                chosen,
                y,
                count,
                x.shape[1],
                HAS_BIAS=bias is not None,
                BLOCK=_CHOSEN,
                DEPTH=_CHOSEN_DEPTH,
                num_warps=4,
            )
    return y


def _aligned(matrix: Tensor) -> Tensor:
    """Return the matrix with its rows one behind the other, from an address on that has one compiled form."""
    dense = matrix.contiguous()
    return dense if dense.data_ptr() % _ALIGNMENT == 0 else dense.clone()
