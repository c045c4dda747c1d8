"""Attention whose result for a row does not depend on the row's place in the batch.

torch's own CPU kernel shares the rows among threads, each with scratch memory of its own alignment, and MKL rounds
differently at different alignments: at 81, 83 or 84 columns the second half of the rows got other last bits than the
first (two threads, float32). A private row that leaves moves the rows behind it, so that would tell on it
(PRIVACY §4.2 point 1). Plain batched products over tensors whose every row is aligned have no such difference; they
are twice as fast for prompts and equal for single tokens.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

NAME = "almoner_rows"

ALIGNMENT = 16
"""Numbers of columns are multiples of this: 16 floats are 64 bytes, so every row of the scores is aligned too."""

# Variants of attention that transformers asks for through these; we have none of them.
_VARIANTS = ("softcap", "s_aux", "position_bias")


def aligned(columns: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-columns // ALIGNMENT) * ALIGNMENT


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """softmax(scaling * query @ key.T + mask) @ value, in transformers' signature.

    Queries that share a key/value head are stacked into one matrix, so keys and values are never repeated. Both
    products are in the keys' type; mask and softmax are in float32.

    Args:
        query: float32 or bfloat16 [R, heads, Q, size].
        key, value: float32 or bfloat16 [R, key/value heads, S, size], S a multiple of ALIGNMENT.
        attention_mask: float32 [R, 1, Q, S], added to the scores.

    Returns:
        [R, Q, heads, size] of the query's type, and no weights.

    Raises:
        ValueError: the model asks for a variant of attention that is not this one. A window is none while all columns
            are within it (`row_wise_modules.context_of`).
    """
    if variants := [name for name in _VARIANTS if options.get(name) is not None]:
        raise ValueError(f"its attention needs {variants[0]}")
    rows, heads, queries, size = query.shape
    groups, columns = key.shape[1], key.shape[2]
    if (window := options.get("sliding_window")) is not None and columns > aligned(int(str(window))):
        raise ValueError(f"its attention has a window of {window} tokens")
    scale = size**-0.5 if scaling is None else scaling
    stacked = (query * scale).reshape(rows, groups, heads // groups * queries, size).to(key.dtype)
    scores = torch.matmul(stacked, key.transpose(2, 3)).view(rows, heads, queries, columns).float()
    weights = torch.softmax(scores.add_(attention_mask), dim=-1).to(value.dtype)
    mixed = torch.matmul(weights.view(rows, groups, -1, columns), value).to(query.dtype)
    return mixed.view(rows, heads, queries, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, grouped_attention)
