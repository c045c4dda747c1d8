"""Scores of Amin et al. 2024 and of private ICL (Bhusal et al.): clipped logits themselves, not their differences.

clip_c(z) = max(-c, z - max z + c): each row is recentred so that its best token has c, and cut at -c (PRIVACY §4.3).
On the grid of the token draw it is an integer vector in [-S, S]^V, S = c/g, whatever the row is, and the proof in
`tasks.mechanisms.tokens.integer_table` needs no more than that: an absent row adds exactly zero, the others are
functions of themselves, so adding or removing a row changes the integer scores by q_i, by at most S in each entry.

* **Amin**: z = (1/s) sum clip_c(z_i). In units of g/s the score is sum_i q_i: sensitivity S, so the draw from
  exp(z/tau) is the token draw with B = s and nothing public added: rho = c^2 / (2 s^2 tau^2).
* **Private ICL**: (z + clip_c(z_pub)) / 2. Twice that, in units of g/s, is s q_pub + sum_i q_i: the draw from
  exp(score/tau) is the token draw at temperature 2 tau: rho = c^2 / (8 s^2 tau^2). Their s, the number of rows, is
  the fixed public one here, as in their Algorithm 1.

Row isolation as in `utility_scores`: element-wise IEEE operations, a maximum (which rounds nothing) and integer sums.
Shapes: G generations, N rows, K candidates.
"""

import math

import torch
from torch import Tensor

from tasks.mechanisms.tokens.integer_table import LARGEST_CLIP_STEPS, IntegerTableMechanism


def clip_recentred(draw: IntegerTableMechanism, logits: Tensor, allowed: Tensor) -> Tensor:
    """max(-c, z - max z + c) on the grid: float32 and bool [N, K] -> int64 [N, K], in [-S, S].

    The maximum is over the row's candidates (`allowed`); what is no candidate, or not finite, gets -S, and a row
    without a finite candidate is all zero.

    Raises:
        TypeError: logits that are not float32.
    """
    if logits.dtype != torch.float32:
        raise TypeError(f"clipping needs float32 logits, not {logits.dtype}")
    finite = logits.masked_fill(~(allowed & logits.isfinite()), -math.inf)
    top = finite.amax(dim=1, keepdim=True)
    below = (finite - top.nan_to_num(neginf=0.0)).mul_(2**draw.grid_exponent).round_()
    steps = below.clamp_(-2 * LARGEST_CLIP_STEPS, 0).to(torch.int64) + draw.clip_steps
    return steps.clamp_(-draw.clip_steps, draw.clip_steps).masked_fill_(top == -math.inf, 0)


def blended(draw: IntegerTableMechanism, public: Tensor, allowed: Tensor, row_sums: Tensor) -> Tensor:
    """s (q_pub - S) + sum_i q_i: twice the blended score in units of g/s, less 2c: -> int64 [G, K].

    The best public token has a public part of 0: a public shift changes no draw, and the integer draw wants it so.

    Args:
        public: float32 [G, K], the candidates' public logits; clipped as a row is.
        row_sums: int64 [G, K], sums of clipped rows.
    """
    return (clip_recentred(draw, public, allowed) - draw.clip_steps) * draw.references + row_sums
