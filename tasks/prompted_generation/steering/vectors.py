"""Units' contributions to the steering vectors, and the vector that a noisy sum says (PRIVACY §4.2, §5).

Of label g, with h_i the mean hidden state of unit i's tokens, and m_g and s_g the mean and the spread of public draws:

    x_i = (h_i - m_g) / s_g        the unit's difference, in units of the public spread
    q_i = clip(x_i, C)             integers of L2 norm at most S = C/g (`mechanisms.vectors.clipping`)
    Y_g = sum of q_i + noise       `NoisyMean.draw`: discrete Gaussian noise of scale sigma on every coordinate
    v_g = shrink(Y_g g / n) s_g    the vector, n public; from Y_g and public values alone

Why the noisy sums of all labels together cost S^2 / (2 sigma^2) once, when a unit is added or removed:

1. h_i is a function of unit i and of public values. Its tokens are read behind a public prompt, in passes of public
   shapes over rows that this device was found to keep apart, bit for bit (`inference.isolation`), and added up column
   by column (`RowBatch.read_mean`). m_g and s_g come from public draws that were fixed before a unit is read, and
   subtraction and division act on each number by itself. So x_i is a function of unit i as well, and clipping keeps it
   so.
2. Keyed hashing reads a unit under one label (`Corpus.each`). Adding or removing it therefore changes one of the G
   sums, by q_i, and no other: an absent unit, one without tokens and one with a value that is not finite add exactly
   zero. The sums move by L2 norm at most S together.
3. That is the query of `mechanisms.vectors.noisy_mean`, whose proof gives S^2 / (2 sigma^2). How many units there are
   appears nowhere behind the noise: n is declared.

Everything behind the noise, the shrinking and all texts included, is post-processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.engine.session import RowHidden
from tasks.mechanisms.tokens.utility_scores import sum_rows
from tasks.mechanisms.vectors.noisy_mean import NoisyMean


@dataclass(frozen=True)
class PublicOrigin:
    """Origin and unit of the vectors of each label, from public draws alone.

    Attributes:
        centres: m, float32 [G, D].
        spreads: s, float32 [G], all positive.
    """

    centres: Tensor
    spreads: Tensor

    @classmethod
    def of(cls, groups: Sequence[RowHidden]) -> "PublicOrigin":
        """Return mean and spread of each label's public draws: the root of their mean squared distance from the mean.

        Draws without a token do not count; where fewer than two differ, the spread is 1.
        """
        centres, spreads = [], []
        for group in groups:
            states = group.values[group.valid].cpu().double()
            centre = states.mean(0) if len(states) else torch.zeros(group.values.shape[1], dtype=torch.float64)
            spread = (states - centre).square().sum(1).mean().sqrt() if len(states) else torch.tensor(0.0)
            usable = bool(spread.isfinite()) and float(spread) > 0
            centres.append(centre.float())
            spreads.append(spread.float() if usable else torch.tensor(1.0))
        return cls(torch.stack(centres), torch.stack(spreads))


def contributions(mean: NoisyMean, groups: Sequence[RowHidden], origin: PublicOrigin) -> Tensor:
    """Return the exact sums of units' contributions for each label: int64 [G, D].

    Args:
        groups: the mean hidden states of some units of each label.
    """
    return torch.stack(
        [
            _sum_of_label(mean, group, centre, spread)
            for group, centre, spread in zip(groups, origin.centres, origin.spreads, strict=True)
        ]
    )


def _sum_of_label(mean: NoisyMean, group: RowHidden, centre: Tensor, spread: Tensor) -> Tensor:
    differences = (group.values[group.valid].cpu() - centre) / spread
    return sum_rows(mean.quantised(differences), torch.zeros(len(differences), dtype=torch.int64), 1)[0]


def vectors_of(mean: NoisyMean, noisy: Tensor, references: int, spreads: Tensor) -> Tensor:
    """Return the steering vector of each label, in the hidden states' own unit: int64 [G, D] -> float32 [G, D].

    A noisy mean is longer than the mean by what the noise adds: D (sigma/n)^2 to its squared length. Each is shrunk by
    the positive part of James and Stein's factor, 1 - D (sigma/n)^2 / |y|^2 (Efron and Morris 1973, Journal of the
    American Statistical Association 68), so that a vector of nothing but noise is about zero.
    """
    means = mean.mean(noisy, references).double()
    noise = means.shape[1] * float(mean.sigma / references) ** 2
    lengths = means.square().sum(1, keepdim=True)
    factors = (1 - noise / lengths.clamp_min(1e-300)).clamp_min(0.0)
    return (means * factors * spreads[:, None].double()).float()
