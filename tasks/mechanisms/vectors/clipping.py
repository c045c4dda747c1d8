"""Clipping of vectors to integers of bounded L2 norm, each row by itself (PRIVACY §4.2 point 2).

A row's contribution is a function of that row alone, bit for bit, for any number of rows and at any place
(the reasons are in `tasks.mechanisms.tokens.utility_scores`): no float is ever added to another here. A row's largest
entry is found exactly in any order, every other float operation is an element-wise multiplication by a power of two,
which is exact, and what is summed are integers.

1. x_j = v_j 2^k truncated toward zero, k = e for the grid 2^-e. Where an entry would reach 2^22 steps, k is the largest
   for which none does: such a row is longer than any S is, so that only its direction matters, and its largest entry
   keeps 21 bits.
2. Q = sum x_j^2, exact: |x_j| < 2^22 and D <= 2^18, so Q < 2^62.
3. R = max(S, ceil(sqrt(Q))), and the row contributes q_j = x_j S / R truncated toward zero; |x_j| S < 2^43.

The norm is at most S: |q_j| <= |x_j| S / R, so sum q_j^2 <= Q S^2 / R^2 <= S^2. A row with Q <= S^2 has R = S and stays
as it is. Truncation takes less than one step from an entry, twice.
"""

import math

import torch
from torch import Tensor

LARGEST_WIDTH = 2**18
_ENTRY_BITS = 22


def clip_vectors(values: Tensor, clip_steps: int, grid_exponent: int) -> Tensor:
    """Map float32 [N, D] -> int64 [N, D], every row of L2 norm at most S = `clip_steps`; N may be 0.

    A row with an entry that is not finite contributes exactly zero, like an absent one.

    Args:
        clip_steps: S, 1 to 2^21.
        grid_exponent: the grid is 2^-grid_exponent, -100 to 100.

    Raises:
        TypeError: values that are not float32.
        ValueError: not rows of 1 to 2^18 entries.
    """
    if values.dtype != torch.float32:
        raise TypeError(f"clipping needs float32 vectors, not {values.dtype}")
    if values.dim() != 2 or not 1 <= values.shape[1] <= LARGEST_WIDTH:
        raise ValueError(f"clipping needs rows of 1 to 2^18 entries, not {tuple(values.shape)}")
    finite = values.isfinite().all(dim=1, keepdim=True)
    steps = _steps(values.masked_fill(~finite, 0.0), grid_exponent)
    return _scaled_down(steps, clip_steps)


def _steps(values: Tensor, grid_exponent: int) -> Tensor:
    """Return entries in steps of the row's power of two, toward zero: float32 [N, D] -> int64 [N, D], below 2^22."""
    # One scalar at a time: a vectorised power of two may round by position.
    largest = values.abs().amax(dim=1).tolist()
    scales = [math.ldexp(1.0, min(grid_exponent, _ENTRY_BITS - math.frexp(entry)[1])) for entry in largest]
    return (values * values.new_tensor(scales)[:, None]).trunc_().to(torch.int64)


def _scaled_down(steps: Tensor, clip_steps: int) -> Tensor:
    """Return the rows longer than S, brought down to S in integers: int64 [N, D] -> [N, D]."""
    squares = (steps * steps).sum(dim=1).tolist()
    lengths = [max(clip_steps, math.isqrt(square - 1) + 1 if square else 0) for square in squares]
    return (steps * clip_steps).div_(steps.new_tensor(lengths)[:, None], rounding_mode="trunc")
