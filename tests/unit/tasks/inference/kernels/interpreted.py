"""Arithmetic for Triton's interpreter as a device has it: sums of products in a stated order, and NaN in a minimum.

The interpreter's own calls numpy's BLAS, whose order of sums depends on the processor, and multiplies the bit patterns
of bfloat16. This one adds a tile's products in the order of k, from zero, and the sum to the sums so far. numpy's
minimum of a number and NaN is NaN; a device's is the number (min.f32 of PTX, IEEE 754-2008 minNum).
"""

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def ordered_dot(builder: Any, left: Any, right: Any, sums: Any, precision: Any, imprecise: Any) -> Any:
    """In the place of `InterpreterBuilder.create_dot`: [M, K], [K, N] and float32 [M, N] -> float32 [M, N]."""
    a, b = (_float32(part, rounded=_is_tf32(precision)) for part in (left, right))
    tile = np.zeros_like(sums.data)
    for k in range(a.shape[1]):
        tile += a[:, k, None] * b[None, k]
    return TensorHandle(sums.data + tile, sums.dtype.scalar)


def device_minimum(builder: Any, left: Any, right: Any) -> Any:
    """In the place of `InterpreterBuilder.create_minnumf`."""
    return builder.binary_op(left, right, np.fmin)


def device_maximum(builder: Any, left: Any, right: Any) -> Any:
    """In the place of `InterpreterBuilder.create_maxnumf`."""
    return builder.binary_op(left, right, np.fmax)


def _float32(part: Any, *, rounded: bool) -> Any:
    """Return a tile as float32 [rows, columns] of numpy."""
    if part.dtype.scalar == tl.bfloat16:
        return (part.data.astype(np.uint32) << 16).view(np.float32)
    if not rounded:
        return part.data
    bits = part.data.astype(np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)  # 10 bits behind the point


def _is_tf32(precision: Any) -> bool:
    return str(precision).upper().endswith("TF32")
