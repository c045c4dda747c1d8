"""Output head over candidate tokens, in products of few widths.

How many candidates there are differs from step to step and follows from what was drawn. A product of another width may
be another kernel, and the device is asked about every shape before anything is paid for (`open_session`): so each
product is cut into parts whose widths are STEP times a power of two.
"""

import torch
from torch import Tensor

from tasks.inference.network.language_model import LanguageModel

STEP = 256
"""Candidate sets are filled up to a multiple of this."""


def widths(vocabulary: int) -> list[int]:
    """Every width that a part may have where fewer than `vocabulary` candidates are asked about, ascending."""
    widths, most = [STEP], -(-vocabulary // STEP) * STEP
    while widths[-1] * 2 <= most:
        widths.append(widths[-1] * 2)
    return widths


def parts(candidates: int) -> list[slice]:
    """So many candidates, filled up, cut into parts: the widest first."""
    remaining, start = -(-candidates // STEP), 0
    slices: list[slice] = []
    while remaining:
        width = 1 << (remaining.bit_length() - 1)
        slices.append(slice(start, start + width * STEP))
        remaining, start = remaining - width, start + width * STEP
    return slices


def logits_of(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Map float32 [R, D] and int64 [N] -> float32 [R, N]."""
    filled = torch.nn.functional.pad(tokens, (0, -len(tokens) % STEP))
    scores = [model.logits_of(hidden, filled[part]) for part in parts(len(tokens))]
    return torch.cat(scores, dim=1)[:, : len(tokens)]
