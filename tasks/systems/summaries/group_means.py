"""Noisy group means, the private step of all summaries: clipped vectors summed exactly, noised, over a public n."""

import torch
from torch import Tensor

from tasks.decoding.candidates import LOGITS_AT_ONCE
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.utility_scores import sum_rows
from tasks.mechanisms.vectors.noisy_mean import NoisyMean


def noisy_means(
    mechanism: NoisyMean, vectors: Tensor, rows: RowValues, groups: int, references: int, rng: RandomSource
) -> Tensor:
    """Return one noisy mean for each group; a group without rows gets noise alone, and is charged like any other.

    Args:
        vectors: float32 [N, K], the contribution of each row, a function of that row and of public inputs.
        rows: the groups of the rows; a row that is not valid contributes exactly zero.
        groups: G, the number of groups with or without rows.
        references: n, the public number of rows of a mean.

    Returns:
        float32 [G, K].
    """
    return mechanism.mean(mechanism.draw(_sums(mechanism, vectors, rows, groups), rng), references)


def _sums(mechanism: NoisyMean, vectors: Tensor, rows: RowValues, groups: int) -> Tensor:
    """Return exact sums, int64 [G, K], in chunks: the number of rows must not decide whether memory suffices."""
    valid_vectors, generation = vectors[rows.valid], rows.generation[rows.valid]
    sums = torch.zeros((groups, vectors.shape[1]), dtype=torch.int64, device=vectors.device)
    height = max(1, LOGITS_AT_ONCE // max(1, vectors.shape[1]))
    for start in range(0, len(valid_vectors), height):
        chunk = slice(start, start + height)
        sums += sum_rows(mechanism.quantised(valid_vectors[chunk]), generation[chunk], groups)
    return sums
