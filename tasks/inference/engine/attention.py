"""Attention whose result for a row does not depend on the row's place in the batch.

torch's own CPU kernel shares the rows among threads, each with scratch memory of its own alignment, and MKL rounds
differently at different alignments: at 81, 83 or 84 columns the second half of the rows got other last bits than the
first (two threads, float32). A private row that leaves moves the rows behind it, so that would tell on it
(PRIVACY §4.2 point 1). Plain batched products over tensors whose every row is aligned have no such difference; they
are twice as fast for prompts and equal for single tokens.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from tasks.inference.kernels.kernel_choice import FIXED_ATTENTION, FIXED_ORDER, KernelName

NAME = "almoner_rows"
FIXED_NAME = "almoner_fixed_order"
_FIXED = (FIXED_ATTENTION, FIXED_ORDER)

Attention: TypeAlias = Callable[..., tuple[Tensor, None]]
"""Attention in transformers' signature (`grouped_attention`)."""

ALIGNMENT = 16
"""Numbers of columns are multiples of this: 16 floats are 64 bytes, so every row of the scores is aligned too."""

# Variants of attention that transformers asks for through these; we have none of them.
_VARIANTS = ("position_bias", "s_aux")


def aligned(columns: int) -> int:
    """Return the next multiple of ALIGNMENT."""
    return -(-columns // ALIGNMENT) * ALIGNMENT


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """softmax(scaling * query @ key.T + mask) @ value, in transformers' signature.

    A window is in the mask (`within_window`).

    Queries that share a key/value head are stacked into one matrix, so keys and values are never repeated. Both
    products are in the keys' type; mask and softmax are in float32.

    Args:
        query: float32 or bfloat16 [R, heads, Q, size].
        key, value: float32 or bfloat16 [R, key/value heads, S, size], S a multiple of ALIGNMENT.
        attention_mask: float32 [R, 1, Q, S], added to the scores.
        softcap: c, where scores s become c tanh(s / c) before the mask (Gemma 2, arXiv 2408.00118, section 2).

    Returns:
        [R, Q, heads, size] of the query's type, and no weights.

    Raises:
        ValueError: the model asks for a variant of attention that is not this one.
    """
    _check_variants(options)
    rows, heads, queries, size = query.shape
    groups, columns = key.shape[1], key.shape[2]
    scale = size**-0.5 if scaling is None else scaling
    stacked = (query * scale).reshape(rows, groups, heads // groups * queries, size).to(key.dtype)
    scores = torch.matmul(stacked, key.transpose(2, 3)).view(rows, heads, queries, columns).float()
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    weights = torch.softmax(scores.add_(attention_mask), dim=-1).to(value.dtype)
    mixed = torch.matmul(weights.view(rows, groups, -1, columns), value).to(query.dtype)
    return mixed.view(rows, heads, queries, size).transpose(1, 2).contiguous(), None


def within_window(mask: Tensor, window: int, newest: int | Tensor) -> Tensor:
    """Return the mask of layers that see the last `window` tokens of a row, the query's own among them.

    A key's distance is the number of columns between it and the query that the query sees, so padding does not count
    and a ring may have wrapped. It is a function of one row's mask alone.

    Args:
        mask: float32 [R, 1, Q, S]: 0 if a key is seen, -inf where not; of a query, no key that is newer than it.
        newest: the column that was written last, also as int64 [1]; the column after it, round the end, is the oldest.

    Returns:
        float32 [R, 1, Q, S].
    """
    columns = torch.arange(mask.shape[-1], device=mask.device)
    ages = (newest - columns) % len(columns)  # of each column, and the column of each age
    distance = (mask == 0.0)[..., ages].cumsum(-1)[..., ages]  # 1: the query itself
    return mask.masked_fill(distance > window, -torch.inf)


def fixed_order_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """`grouped_attention` by the kernel of that name: one program for each row, key/value head and block of queries.

    The kernel has no derivative: where one is wanted, as in training, `grouped_attention` computes.
    """
    if any(part.requires_grad for part in (query, key, value)):
        return grouped_attention(module, query, key, value, attention_mask, scaling, softcap, **options)
    _check_variants(options)
    from tasks.inference.kernels import attention_kernel  # it imports Triton

    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attention_kernel.attention(query, key, value, attention_mask, scale, softcap), None


def _check_variants(options: Mapping[str, object]) -> None:
    if variants := [name for name in _VARIANTS if options.get(name) is not None]:
        raise ValueError(f"its attention needs {variants[0]}")


def attention_of(kernels: KernelName) -> Attention:
    """Return the attention that goes with these kernels."""
    return fixed_order_attention if kernels in _FIXED else grouped_attention


def use_attention(decoder: nn.Module, kernels: KernelName) -> None:
    """Let every layer of a decoder that has our attention use the one of these kernels, in place.

    Layers ask their configuration at every pass, and copies of a decoder share it.
    """
    for module in decoder.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_attn_implementation", None) in (NAME, FIXED_NAME):
            config._attn_implementation = FIXED_NAME if kernels in _FIXED else NAME


AttentionInterface.register(NAME, grouped_attention)
AttentionInterface.register(FIXED_NAME, fixed_order_attention)
