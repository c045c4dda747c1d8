"""Presence penalty: tokens that a text already has get a lower public score, so that it repeats itself less.

The score of token v becomes phi_pub,v - a [v in x] + (1/B) sum_i q_i,v, in logits before the temperature: a is a public
constant of the request, x the tokens that this text has drawn, phi_pub,v and q_i,v as in `utility_scores`.

Why the charge is the same. Fix what was released before a draw, x among it. The penalty
a [v in x] is then a fixed vector, and so is phi_pub; only the sum over rows depends on private data. For two
neighbouring datasets the two score vectors differ by the q_i of one row, a vector in [-S, S]^V, exactly as without the
penalty. Both samplers are charged for any public part of the scores: OpenDP's mechanism for any scores of sensitivity
S, the integer table for scores relative to their largest public one, which `utilities` takes after the penalty.
Candidates are chosen from public logits alone, here without the penalty. As each draw is charged for any x, T draws
compose as before. A token that the public model alone draws comes from another function of x: post-processing still.

A row's difference is taken from the public logits without the penalty: it would otherwise lift a token again that the
penalty has lowered. A penalty that is added to each row behind its clipping would make one row's part larger than S,
and one that depends on private rows would be a score that no clipping bounds: the audit in
tests/statistical/test_presence_penalty_audit.py catches such a twin.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import torch
from torch import Tensor


def penalised(public: Tensor, drawn: Iterable[Sequence[int]], penalty: Fraction | None) -> Tensor:
    """Return the public part of the scores: float32 [L, V] less the penalty where a text has the token already.

    Args:
        public: float32 [L, V], public logits.
        drawn: the tokens of each of the L texts so far, all of them released.
        penalty: a, in logits; None for none.
    """
    if penalty is None:
        return public
    lowered = public.clone()
    for row, tokens in enumerate(drawn):
        there = torch.tensor(sorted(set(tokens)), dtype=torch.int64, device=public.device)
        lowered[row, there] -= float(penalty)
    return lowered
