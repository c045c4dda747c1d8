"""Distance of the public next-token distribution from the rows' mean, in exact integers (PRIVACY §4.2 point 2, §4.3).

A row's distribution over the candidates is rounded TOWARD ZERO to a grid of 1/M, M = 2^30: p_v = floor(e_v M / sum e),
with e_v = round(2^32 exp(phi_v - max phi)) from a table of integers. So the sum over v is at most M whatever the row
is: rounding to nearest could raise the L1 norm of a distribution over 49,152 tokens to 1.375, and the sensitivity
with it. The norm is checked once more all the same, and a row that exceeds it contributes nothing.

As in `utility_scores`, no floating-point reduction touches a private row: what it contributes is a function of that row
and of the public candidates, bit for bit, wherever it stands and however many there are.

Shapes: G generations, N rows, K candidates.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from tasks.mechanisms.tokens.sparse_vector import NORM

_TABLE_STEPS = 2**12  # table entries per nat
_TABLE_SIZE = 2**17  # 32 nats; the last entry is zero
_TABLE_ONE = 2**32  # e_v M is below 2^63, and 2^22 candidates cannot overflow a sum


def distributions(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return each row's distribution over its candidates, in units of 1/M: float32 and bool [N, K] -> int64 [N, K].

    A logit that is not finite counts as probability zero, a row without a finite one is all zero.

    Raises:
        TypeError: logits that are not float32.
    """
    if logits.dtype != torch.float32:
        raise TypeError(f"distributions need float32 logits, not {logits.dtype}")
    finite = logits.masked_fill(~(allowed & logits.isfinite()), -math.inf)
    below = (finite.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0) - finite).mul_(_TABLE_STEPS).round_()
    weights = _exp_table(logits.device)[below.clamp_(0, _TABLE_SIZE - 1).to(torch.int64)]
    # Nothing but integers from here: the sum is exact, and the quotient is rounded down.
    return within_norm((weights * NORM) // weights.sum(dim=1, keepdim=True).clamp_min(1))


def within_norm(rows: Tensor) -> Tensor:
    """Return the rows whose L1 norm is at most M; any other contributes zero: int64 [N, K] -> int64 [N, K]."""
    return rows.masked_fill((rows.abs().sum(dim=1) > NORM)[:, None], 0)


def distances(references: int, public: Tensor, row_sums: Tensor) -> list[int]:
    """sum_v |s P_v - sum_i p_i,v|, in units of 1/(s M): int64 [G, K] twice -> one integer for each generation.

    Adding or removing a row moves it by at most M; s M units are a distance of 1.
    """
    sums: list[int] = (public * references - row_sums).abs().sum(dim=1).tolist()
    return sums


@lru_cache(maxsize=8)
def _exp_table(device: torch.device) -> Tensor:
    """round(2^32 exp(-j / 2^12)) for j below 2^17 - 1, then 0: int64."""
    nats = torch.arange(_TABLE_SIZE, dtype=torch.float64) / _TABLE_STEPS
    table = (torch.exp(-nats) * _TABLE_ONE).round().to(torch.int64)
    table[-1] = 0
    return table.to(device)
