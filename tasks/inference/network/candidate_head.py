"""Output head over candidate tokens, in products of few widths.

How many candidates there are differs from step to step and follows from what was drawn. A product of another width may
be another kernel, and the device is asked about every shape before anything is paid for (`open_session`): so each
product is cut into parts whose widths are STEP times a power of two.

All rows of a pass may meet the candidates of all generations in one product (`logits_of`), or each row those of its own
generation (`logits_by_row`). The second reads rows of the head once for each row of the pass, and computes a few
hundredth of the products: it is for accelerators, where hundreds of generations have more candidates together than
there are tokens.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from tasks.inference.network.language_model import LanguageModel

STEP = 256
"""Candidate sets are filled up to a multiple of this."""

GATHERED = 2**26
"""Numbers of the head that are gathered at once, where rows are scored by themselves."""

# Candidates of a generation up to which they are.
_MOST_BY_ROW = {"cuda": 4 * STEP}


Scoring = Literal["whole", "by row", "together"]
"""The head over the whole vocabulary; over each row's own candidates; over the candidates of all generations."""


def scoring_of(model: LanguageModel, candidates: Tensor | None) -> Scoring:
    """Return how rows are scored for candidates int64 [L, K], which are public; None stands for the vocabulary."""
    if candidates is None:
        return "whole"
    if scored_by_row(model.device, candidates.shape[1]):
        return "by row"
    return "whole" if candidates.numel() >= model.vocabulary else "together"


def scored_by_row(device: torch.device, candidates: int) -> bool:
    """Return whether rows meet the candidates of their own generation alone, where each has at most `candidates`."""
    return -(-candidates // STEP) * STEP <= _MOST_BY_ROW.get(device.type, 0)


def widths_by_row(device: torch.device) -> list[int]:
    """Every width that `logits_by_row` may have, ascending; none where rows are not scored so."""
    return [width for width in widths(_MOST_BY_ROW.get(device.type, 0)) if scored_by_row(device, width)]


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
    return _in_parts(tokens, lambda some: model.logits_of(hidden, some))


def logits_by_row(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Map float32 [R, D] and each row's own tokens, int64 [R, N], -> float32 [R, N]."""
    return _in_parts(tokens, lambda some: _gathered(model, hidden, some))


def _in_parts(tokens: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the scores of tokens [..., N], which `score` computes for each part: float32 [R, N]."""
    count = tokens.shape[-1]
    filled = torch.nn.functional.pad(tokens, (0, -count % STEP))
    return torch.cat([score(filled[..., part]) for part in parts(count)], dim=1)[:, :count]


def _gathered(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return the scores of one width.

    A few rows at a time, and as many each time: fewer rows may be another kernel. Their number follows from the number
    of rows and the width, which are public.
    """
    rows, most = len(hidden), max(1, GATHERED // (tokens.shape[1] * model.width))
    height = next(some for some in range(min(most, rows), 0, -1) if rows % some == 0)
    few = (slice(start, start + height) for start in range(0, rows, height))
    return torch.cat([model.logits_of_each(hidden[some], tokens[some]) for some in few])
