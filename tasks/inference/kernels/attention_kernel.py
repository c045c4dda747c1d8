"""Attention in Triton with one program for each row, key/value head and block of queries.

The softmax is computed over blocks of columns, first to last, with a running maximum m and a running sum l in float32
(Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135, section 3.1):

    m' = max(m, max_j s_j),   l' = l e^(m - m') + sum_j e^(s_j - m'),   a' = a e^(m - m') + sum_j e^(s_j - m') v_j

and a / l at the end. Columns are not split among programs, as decoding kernels elsewhere do by the number of rows; a
program reads its own row alone. Block sizes follow from the heads' size and type and the queries of a pass, which are
public. A launch waits for nothing and reads nothing back.

Importing this module imports Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_LEAST = 16
"""The smallest side of a matrix instruction; what lacks is zeros."""
_MOST_QUERIES = {torch.bfloat16: 64, torch.float32: 32}
_COLUMNS = {torch.bfloat16: 64, torch.float32: 32}
_WARPS = {torch.bfloat16: 4, torch.float32: 8}


@triton.jit(do_not_specialize=["queries"])
def _attention_kernel(
    query_pointer,
    key_pointer,
    value_pointer,
    mask_pointer,
    out_pointer,
    queries,
    columns,
    scale,
    softcap,
    query_row,
    query_head,
    query_place,
    key_row,
    key_head,
    key_column,
    key_number,
    value_row,
    value_head,
    value_column,
    mask_row,
    mask_query,
    mask_column,
    GROUPS: tl.constexpr,
    SHARING: tl.constexpr,
    SIZE: tl.constexpr,
    HAS_CAP: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0) // GROUPS
    group = tl.program_id(0) % GROUPS
    stacked = tl.program_id(1) * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    has_query = stacked < SHARING * queries
    head = group * SHARING + stacked // queries
    place = stacked % queries
    d = tl.arange(0, BLOCK_SIZE)
    inside = d < SIZE
    row = row.to(tl.int64)

    query_at = query_pointer + row * query_row + head[:, None] * query_head + place[:, None] * query_place + d[None, :]
    query = tl.load(query_at, mask=has_query[:, None] & inside[None, :], other=0.0)
    query = (query.to(tl.float32) * scale).to(query_pointer.dtype.element_ty).to(key_pointer.dtype.element_ty)

    keys_at = key_pointer + row * key_row + group * key_head + d[:, None] * key_number
    values_at = value_pointer + row * value_row + group * value_head + d[None, :]
    masks_at = mask_pointer + row * mask_row + place[:, None] * mask_query

    largest = tl.full((BLOCK_QUERIES,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_QUERIES,), dtype=tl.float32)
    mixed = tl.zeros((BLOCK_QUERIES, BLOCK_SIZE), dtype=tl.float32)
    for start in range(0, columns, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        has_column = column < columns
        key = tl.load(keys_at + column[None, :] * key_column, mask=inside[:, None] & has_column[None, :], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee")
        if HAS_CAP:
            twice = 2.0 * scores / softcap
            twice = tl.where(twice > 80.0, 80.0, twice)  # beyond it the quotient is 0 as well; NaN stays NaN
            scores = softcap * (1.0 - 2.0 / (tl.exp(twice) + 1.0))  # c tanh(s / c)
        seen = has_query[:, None] & has_column[None, :]
        scores += tl.load(masks_at + column[None, :] * mask_column, mask=seen, other=float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, 1))
        origin = tl.where(highest == float("-inf"), 0.0, highest)  # of a query that has seen nothing yet
        weights = tl.exp(scores - origin[:, None])
        earlier = tl.exp(largest - origin)
        total = total * earlier + tl.sum(weights, 1)
        value = tl.load(
            values_at + column[:, None] * value_column, mask=has_column[:, None] & inside[None, :], other=0.0
        )
        mixed = tl.dot(weights.to(value.dtype), value, mixed * earlier[:, None], input_precision="ieee")
        largest = highest
    mixed = mixed / tl.where(has_query, total, 1.0)[:, None]

    out_row = (row * queries + place) * (GROUPS * SHARING) + head  # [R, Q, heads, size]
    out_at = out_pointer + out_row[:, None] * SIZE + d[None, :]
    tl.store(out_at, mixed.to(out_pointer.dtype.element_ty), mask=has_query[:, None] & inside[None, :])


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """Return softmax(scale * query @ key.T + mask) @ value, as `network.attention.grouped_attention` defines it.

    Scores are float32 and are not rounded to the keys' type; weights are rounded to the values' type before they are
    normalised. A query that sees no column has NaN.

    Args:
        query: float32 or bfloat16 [R, heads, Q, size].
        key, value: float32 or bfloat16 [R, key/value heads, S, size], in any layout of memory.
        mask: float32 [R, 1, Q, S].
        softcap: c, where scores s become c tanh(s / c) before the mask.

    Returns:
        [R, Q, heads, size] of the query's type.
    """
    rows, heads, queries, size = query.shape
    groups, columns = key.shape[1], key.shape[2]
    query, value = (part if part.stride(3) == 1 else part.contiguous() for part in (query, value))
    out = torch.empty((rows, queries, heads, size), dtype=query.dtype, device=query.device)
    if not out.numel():
        return out
    stacked = heads // groups * queries
    block = min(_MOST_QUERIES[key.dtype], max(_LEAST, triton.next_power_of_2(stacked)))
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]  # torch's own gap
        _attention_kernel[(rows * groups, triton.cdiv(stacked, block))](
            query,
            key,
            value,
            mask,
            out,
            queries,
            columns,
            float(scale),
            1.0 if softcap is None else float(softcap),
            *query.stride()[:3],
            *key.stride(),
            *value.stride()[:3],
            mask.stride(0),
            mask.stride(2),
            mask.stride(3),
            GROUPS=groups,
            SHARING=heads // groups,
            SIZE=size,
            HAS_CAP=softcap is not None,
            BLOCK_QUERIES=block,
            BLOCK_COLUMNS=_COLUMNS[key.dtype],
            BLOCK_SIZE=max(_LEAST, triton.next_power_of_2(size)),
            num_warps=_WARPS[key.dtype],
            num_stages=2,
        )
    return out
