"""Projection space of units' vectors, fitted to hidden states of public documents (PRIVACY §5: public data only)."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from models_db.errors import UsageError
from tasks.adapters.adapter import Space
from tasks.adapters.metadata import WHOLE
from tasks.analysis.clustering.kmeans import k_means

CLIP_QUANTILE: Final = 0.5
"""Quantile of the norms of public vectors. The median: half of the units are shortened a bit, and the noise, which is
proportional to the clip norm, is not sized for the longest."""


def _too_few_documents(what: str, requested: int, most: int) -> UsageError:
    return UsageError(
        f"{what.capitalize()} of {requested} cannot be fitted: the groups to learn from allow at most {most}.",
        f"Request fewer {what}, or train on more documents.",
        {"what": what, "asked": requested, "most": most},
        code="TooFewDocuments",
    )


def fit_space(sets: Sequence[Tensor], dimensions: int, centres: int, seed: int) -> tuple[Space, float]:
    """Fit a space, and the clip norm for it.

    Args:
        sets: for each public group, the hidden states of its documents, float32 [n, D]; at least one row together.
        dimensions: r, or WHOLE.
        centres: c.
        seed: of k-means.

    Raises:
        TooFewDocuments.
    """
    states = torch.cat(list(sets))
    mean, projection = _directions(states, dimensions)
    projected = torch.stack([torch.mv(projection, row - mean) for row in states])
    if centres > (different := len({tuple(row) for row in projected.tolist()})):
        raise _too_few_documents("centres", centres, different)
    middles = projected.new_zeros((1, len(projection)))
    if centres > 1:
        middles = torch.from_numpy(k_means(projected.double().numpy(), centres, seed)).float()
    blank = torch.zeros(middles.numel())
    space = Space(mean, projection, middles, blank, blank)
    clip_norm = _rounded(float(projected.norm(dim=1).quantile(CLIP_QUANTILE)))
    means = torch.stack([clipped(space.represent(rows), clip_norm).mean(0) for rows in sets if len(rows)])
    spread = means if len(means) > 1 else clipped(space.represent(states), clip_norm)
    return Space(mean, projection, middles, means.mean(0), spread.var(0, correction=0)), clip_norm


def clipped(vectors: Tensor, clip_norm: float) -> Tensor:
    """Scale each row to a norm of at most `clip_norm`, as the mechanism does on its grid."""
    norms = vectors.norm(dim=1, keepdim=True).clamp_min(1e-30)
    shortened: Tensor = vectors * (clip_norm / norms).clamp_max(1.0)
    return shortened


def _directions(states: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return the mean [D] and the principal directions [r, D] of the rows of `states`; each direction's largest entry
    is positive, so that they do not depend on the library."""
    if dimensions == WHOLE:
        return torch.zeros(states.shape[1]), torch.eye(states.shape[1])
    wide = states.double()
    mean = wide.mean(0)
    _, sizes, directions = torch.linalg.svd(wide - mean, full_matrices=False)
    most = int((sizes > 1e-9 * sizes.max().clamp_min(1e-30)).sum())
    if dimensions > most:
        raise _too_few_documents("dimensions", dimensions, most)
    principal = directions[:dimensions]
    signs = principal.gather(1, principal.abs().argmax(1, keepdim=True)).sign()
    return mean.float(), (principal * signs).float().contiguous()


def _rounded(value: float) -> float:
    """Round to three significant digits, for a card."""
    return max(float(f"{value:.3g}"), 1e-6)
