"""The rule of Tang et al. 2024: the token with the largest noisy sum of the rows' probabilities."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.decoding.loop import BudgetMeter, StatelessRule, Step
from tasks.decoding.sampling_rule import CandidateSet
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import public_sampler
from tasks.mechanisms.tokens.sparse_vector import NORM
from tasks.mechanisms.tokens.utility_scores import distributions
from tasks.mechanisms.vectors.noisy_mean import NoisyMean


@dataclass(frozen=True)
class FewShotGenerationRule(StatelessRule):
    """Sampling rule of Tang et al., the same for every generation of a release.

    Attributes:
        mechanism: the noisy sum of one token.
        temperature: of the rows' distributions; 1 in the paper.
        top_k: K, public candidates; 0 for the whole vocabulary.
        meter: pays for the sums.
    """

    mechanism: NoisyMean
    temperature: float
    top_k: int
    rng: RandomSource
    meter: BudgetMeter

    def next_tokens(self, step: Step) -> list[int]:
        """Return one token id for each live generation."""
        self.meter.admit(max(step.positions))
        choice = CandidateSet.of(step, self.top_k, public_sampler(1))
        noisy = self.mechanism.draw(choice.sums_over_allowed(choice.rows(step), self.contribution), self.rng)
        usable = noisy.masked_fill(~choice.candidates.allowed, torch.iinfo(torch.int64).min)
        best: list[int] = choice.candidates.tokens.gather(1, usable.argmax(1, keepdim=True))[:, 0].tolist()
        return best

    def contribution(self, logits: Tensor, allowed: Tensor) -> Tensor:
        """Return each row's probabilities in grid steps of L2 norm at most S: float32, bool [N, K] -> int64 [N, K]."""
        return self.mechanism.quantised(distributions(logits / self.temperature, allowed).float().div_(NORM))
