"""The private step that summaries share: clipped vectors of a group's rows, summed exactly, noised, over a public n."""

from torch import Tensor

from tasks.inference.session import RowValues
from tasks.mechanisms.noisy_mean import NoisyMean
from tasks.mechanisms.rng import RandomSource
from tasks.mechanisms.token_scores import sum_rows


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
    clipped = mechanism.quantised(vectors[rows.valid])
    sums = sum_rows(clipped, rows.generation[rows.valid], groups)
    return mechanism.mean(mechanism.draw(sums, rng), references)
