"""Integer scores of token draws from logits, and the distance between distributions of tokens (PRIVACY §4.1 to §4.3).

Integer utility scores of a token draw from logits, for many generations at once (PRIVACY §4.1, §4.2). Row isolation
holds here by construction, not by luck: what a row contributes is a function of that row, of its generation's public
row and of nothing else, bit for bit, however many rows there are and wherever it stands among them. Floating-point
*reductions* do not have that property (their order depends on shapes, and the number of rows is private), so none is
used on private rows: every float operation is an element-wise IEEE one, every sum is a sum of integers, and the
logarithm is taken one scalar at a time.

Shapes: G generations, N rows (each belongs to one generation), V tokens, K candidates. Logits are float32; a
non-finite public logit marks a token that is no candidate.

Scores of Amin et al. 2024 and of private ICL (Bhusal et al.): clipped logits themselves, not their differences.
clip_c(z) = max(-c, z - max z + c): each row is recentred so that its best token has c, and cut at -c (PRIVACY §4.3). On
the grid of the token draw it is an integer vector in [-S, S]^V, S = c/g, whatever the row is, and the proof in
`tasks.mechanisms.tokens.integer_table` needs no more than that: an absent row adds exactly zero, the others are
functions of themselves, so adding or removing a row changes the integer scores by q_i, by at most S in each entry.

* **Amin**: z = (1/s) sum clip_c(z_i). In units of g/s the score is sum_i q_i: sensitivity S, so the draw from
  exp(z/tau) is the token draw with B = s and nothing public added: rho = c^2 / (2 s^2 tau^2).
* **Private ICL**: (z + clip_c(z_pub)) / 2. Twice that, in units of g/s, is s q_pub + sum_i q_i: the draw from
  exp(score/tau) is the token draw at temperature 2 tau: rho = c^2 / (8 s^2 tau^2). Their s, the number of rows, is
  the fixed public one here, as in their Algorithm 1.

Row isolation as in `utility_scores`: element-wise IEEE operations, a maximum (which rounds nothing) and integer sums.
Shapes: G generations, N rows, K candidates.

Distance of the public next-token distribution from the rows' mean, in exact integers (PRIVACY §4.2 point 2, §4.3). A
row's distribution over the candidates is rounded TOWARD ZERO to a grid of 1/M, M = 2^30: p_v = floor(e_v M / sum e),
with e_v = round(2^32 exp(phi_v - max phi)) from a table of integers. So the sum over v is at most M whatever the row
is: rounding to nearest could raise the L1 norm of a distribution over 49,152 tokens to 1.375, and the sensitivity with
it. The norm is checked once more all the same, and a row that exceeds it contributes nothing.

As in `utility_scores`, no floating-point reduction touches a private row: what it contributes is a function of that row
and of the public candidates, bit for bit, wherever it stands and however many there are.

Shapes: G generations, N rows, K candidates.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from models_db.errors import EnvironmentProblem
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import LARGEST_CLIP_STEPS, IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import NORM

Variant: TypeAlias = Literal["log_probability", "logit"]

# Far below any score that matters (2^32 logits at B = 1), far above overflow.
LOWEST_SCORE = -(2**52)

_TABLE_STEPS = 2**12  # table entries per nat
_TABLE_SIZE = 2**17  # 32 nats; the last entry is zero
_TABLE_ONE = 2**40  # so that 2^22 candidates cannot overflow a 64-bit sum


@dataclass(frozen=True)
class Candidates:
    """The tokens that may be drawn, a function of public logits alone.

    Attributes:
        tokens: int64 [G, K], token ids.
        allowed: bool [G, K], false where a generation has fewer than K candidates.
    """

    tokens: Tensor
    allowed: Tensor

    def of_public(self, logits: Tensor) -> Tensor:
        """Return the candidates' public logits: float32 [G, V] -> [G, K], -inf where there is no candidate."""
        return logits.gather(1, self.tokens).masked_fill(~self.allowed, -math.inf)

    def of_rows(self, logits: Tensor, generation: Tensor) -> Tensor:
        """Return the candidates' logits in each row: float32 [N, V] and int64 [N] -> [N, K]."""
        return logits.gather(1, self.tokens[generation])


def candidates(public: Tensor, top_k: int | None, draw: IntegerTableMechanism) -> Candidates:
    """Top-k+: {v : phi_pub,v >= l_k - 2C/B}, l_k the k-th largest public logit (PRIVACY §4.1).

    Args:
        public: float32 [G, V].
        top_k: k; None, 0 or at least V means the whole vocabulary. The end of the text is a candidate like any.

    Raises:
        NoCandidates: a public row without one finite logit.
    """
    usable = _finite_or_absent(public)
    if bool((usable.amax(dim=1) == -math.inf).any()):
        raise EnvironmentProblem(
            "The model gives no finite logit for the public prompt.",
            "Check the model's files with `almoner models list`, or choose another dtype.",
            code="NoCandidates",
        )
    if not top_k or top_k >= public.shape[1]:
        everything = torch.arange(public.shape[1], device=public.device).expand_as(public)
        return Candidates(everything, usable > -math.inf)
    slack = float(2 * draw.clip_norm / draw.references)
    threshold = usable.topk(top_k, dim=1).values[:, -1:] - slack
    allowed = (usable >= threshold) & (usable > -math.inf)
    # The allowed tokens are the largest, so the largest `width` tokens hold them all.
    width = int(allowed.sum(dim=1).max())
    tokens = usable.topk(width, dim=1).indices
    return Candidates(tokens, allowed.gather(1, tokens))


def clip_rows(
    draw: IntegerTableMechanism, private: Tensor, public: Tensor, generation: Tensor, variant: Variant
) -> Tensor:
    """DClip on the grid: each row's difference from its public logits, as integers in [-S, S].

    q_i,v = round(clip(phi_i,v - phi_pub,v - a_i, -C, C) / g). `log_probability` takes a_i = logsumexp(phi_i) -
    logsumexp(phi_pub) over the candidates, so that the window is not spent on the normalising constants; `logit`
    is the paper's a_i = 0. Whatever a_i is, it comes from this row and public data, and the row still contributes
    a vector in [-S, S]^K: a_i needs no precision (this one is good to about 2^-12) and costs nothing.

    Args:
        private: float32 [N, K], live rows only; an absent row is not passed at all, so it adds exactly zero.
        public: float32 [G, K], not finite where there is no candidate.
        generation: int64 [N], the generation of each row.

    Returns:
        int64 [N, K]; 0 if a logit or their difference is not finite, decided before clipping.

    Raises:
        TypeError: logits that are not float32.
    """
    for logits in (private, public):
        if logits.dtype != torch.float32:
            raise TypeError(f"clipping needs float32 logits, not {logits.dtype}")
    finite = _finite_or_absent(public)
    difference = private - finite[generation]
    if variant == "log_probability":
        # Adding 0 x difference turns exactly the entries without a finite difference into NaN.
        own = _log_sum_exp(_finite_or_absent(private + difference * 0))
        difference -= (own - _log_sum_exp(finite)[generation])[:, None]
    difference = difference.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    steps = difference.mul_(2**draw.grid_exponent).round_().clamp_(-LARGEST_CLIP_STEPS, LARGEST_CLIP_STEPS)
    # Once more in integers: S itself may not be a float32.
    return steps.to(torch.int64).clamp_(-draw.clip_steps, draw.clip_steps)


def sum_rows(clipped: Tensor, generation: Tensor, generations: int) -> Tensor:
    """Return the exact sums over the rows of each generation: int64 [N, K] and int64 [N] -> int64 [G, K]."""
    sums = torch.zeros((generations, clipped.shape[1]), dtype=torch.int64, device=clipped.device)
    return sums.index_add_(0, generation, clipped)


def utilities(draw: IntegerTableMechanism, public: Tensor, row_sums: Tensor) -> Tensor:
    """k_v = round(phi_pub,v / u) + sum_i q_i,v, u = g/B: float32 [G, K] and int64 [G, K] -> int64 [G, K].

    The public part is taken relative to its largest entry, which shifts all scores of a generation by one public
    number and leaves the draw as it is.
    """
    finite = _finite_or_absent(public).double()
    below = (finite - finite.amax(dim=1, keepdim=True)) * (draw.references * 2**draw.grid_exponent)
    public_part: Tensor = below.round().nan_to_num(LOWEST_SCORE).clamp(LOWEST_SCORE, 0).to(torch.int64)
    return public_part + row_sums


def draw_tokens(draw: IntegerTableMechanism, candidates: Candidates, summed: Tensor, rng: RandomSource) -> list[int]:
    """Draw one token id for each generation from its int64 [G, K] scores among its candidates.

    Scores are in units of u = g/B, relative to the generation's largest public score; a system whose scores have no
    public part passes the sums alone. Work stays on the scores' device as far as the sampler can.
    """
    places = draw.draw_each(summed, candidates.allowed, rng)
    drawn: list[int] = candidates.tokens.gather(1, places[:, None])[:, 0].tolist()
    return drawn


def draw_public_tokens(draw: IntegerTableMechanism, public: Tensor, top_k: int | None, rng: RandomSource) -> list[int]:
    """Draw one token id for each row of public logits, float32 [G, V]: their softmax among the top k of `candidates`.

    Args:
        draw: of `integer_table.public_sampler`.
    """
    found = candidates(public, top_k, draw)
    scores = utilities(draw, found.of_public(public), torch.zeros_like(found.tokens))
    return draw_tokens(draw, found, scores, rng)


def _log_sum_exp(logits: Tensor) -> Tensor:
    """ln of the sum of exp over each row, float32 [N, K] -> [N]; 0 for a row that is all -inf.

    exp comes from a table of integers: the sum is exact, so neither an entry's place nor the number of rows can
    change a bit of it.
    """
    largest = logits.amax(dim=1).nan_to_num(neginf=0.0)
    below = (largest[:, None] - logits).mul_(_TABLE_STEPS).round_().clamp_(0, _TABLE_SIZE - 1)
    sums = _exp_table(logits.device)[below.to(torch.int64)].sum(dim=1)
    # One scalar at a time: a vectorised logarithm may round by position.
    logs = [math.log(total / _TABLE_ONE) if total else 0.0 for total in sums.tolist()]
    return largest + torch.tensor(logs, dtype=torch.float32, device=logits.device)


def _finite_or_absent(logits: Tensor) -> Tensor:
    """Return the logits with -inf for every value that is not finite."""
    return logits.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)


@lru_cache(maxsize=8)
def _exp_table(device: torch.device) -> Tensor:
    """round(2^40 exp(-j / 2^12)) for j below 2^17 - 1, then 0: int64."""
    nats = torch.arange(_TABLE_SIZE, dtype=torch.float64) / _TABLE_STEPS
    table = (torch.exp(-nats) * _TABLE_ONE).round().to(torch.int64)
    table[-1] = 0
    return table.to(device)


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


_SHARE_TABLE_ONE = 2**32  # e_v M is below 2^63, and 2^22 candidates cannot overflow a sum


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
    weights = _share_table(logits.device)[below.clamp_(0, _TABLE_SIZE - 1).to(torch.int64)]
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
def _share_table(device: torch.device) -> Tensor:
    """round(2^32 exp(-j / 2^12)) for j below 2^17 - 1, then 0: int64."""
    nats = torch.arange(_TABLE_SIZE, dtype=torch.float64) / _TABLE_STEPS
    table = (torch.exp(-nats) * _SHARE_TABLE_ONE).round().to(torch.int64)
    table[-1] = 0
    return table.to(device)
