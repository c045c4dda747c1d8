"""The private step that summaries share: clipped vectors of a group's rows, summed exactly, noised, over a public n."""

import torch
from torch import Tensor

from tasks.generation.decoding.candidates import LOGITS_AT_ONCE
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.utility_scores import sum_rows
from tasks.mechanisms.vectors.noisy_mean import NoisyMean


def noisy_means(
    mechanism: NoisyMean, vectors: Tensor, rows: RowValues, groups: int, references: int, rng: RandomSource
) -> Tensor:
    """One noisy mean for each group; a group without rows gets noise alone, and is charged like any other.

    Args:
        vectors: float32 [N, K], what each of the rows contributes, each a function of that row and of public inputs.
        rows: whose they are; a row that is not valid contributes exactly zero.
        groups: G, however many of them have rows.
        references: n, the public number of rows that a mean is over.

    Returns:
        float32 [G, K].
    """
    return mechanism.mean(mechanism.draw(_sums(mechanism, vectors, rows, groups), rng), references)


def _sums(mechanism: NoisyMean, vectors: Tensor, rows: RowValues, groups: int) -> Tensor:
    """Exact sums, int64 [G, K], some rows at a time: how many there are must not decide whether memory suffices."""
    found, generation = vectors[rows.valid], rows.generation[rows.valid]
    sums = torch.zeros((groups, vectors.shape[1]), dtype=torch.int64, device=vectors.device)
    height = max(1, LOGITS_AT_ONCE // max(1, vectors.shape[1]))
    for start in range(0, len(found), height):
        some = slice(start, start + height)
        sums += sum_rows(mechanism.quantised(found[some]), generation[some], groups)
    return sums
