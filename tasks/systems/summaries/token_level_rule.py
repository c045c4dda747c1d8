"""Noisy group means, the private step of all summaries, and the rule that draws token-level summaries from them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from tasks.decoding.loop import BudgetMeter, StatelessRule, Step
from tasks.decoding.sampling_rule import LOGITS_AT_ONCE, CandidateSet
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
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


Space: TypeAlias = Literal["hidden", "logits"]
Centre: TypeAlias = Literal["public", "none"]


@dataclass(frozen=True)
class TokenLevelRule(StatelessRule):
    """Sampling rule of token-level summaries (PRIVACY §5; "Differentially Private Summarization", §4.1, Algorithm 1).

    The mean is taken of last hidden states, or of the candidates' logits. With `centre="public"` each row contributes
    its difference from the public row, which is public, so the sensitivity is still that of the clip norm: the public
    model decides where the noise hides the rows, and the clip norm is spent on differences.
    The token is drawn from the noisy mean, among candidates from public logits: post-processing.

    Attributes:
        mechanism: the noisy sum of one step.
        public_draw: the softmax over the mean.
        references: n.
        top_k: public candidates; None or 0 for the whole vocabulary.
        meter: pays for the steps.
    """

    mechanism: NoisyMean
    public_draw: IntegerTableMechanism
    references: int
    top_k: int | None
    space: Space
    centre: Centre
    rng: RandomSource
    meter: BudgetMeter

    def next_tokens(self, step: Step) -> list[int]:
        """Draw one token id for each live generation."""
        self.meter.admit(max(step.positions))
        choice = CandidateSet.of(step, self.top_k, self.public_draw)
        logits = self._hidden(step, choice) if self.space == "hidden" else self._logits(step, choice)
        zeros = torch.zeros_like(choice.candidates.tokens)
        scores = utility_scores.utilities(self.public_draw, logits, zeros)
        return utility_scores.draw_tokens(self.public_draw, choice.candidates, scores, self.rng)

    def _hidden(self, step: Step, choice: CandidateSet) -> Tensor:
        """Return candidates' logits from the noisy mean of hidden states: float32 [L, K], -inf where there is none."""
        public = step.public_hidden()
        mean = self._mean(step.hidden(), public)
        return choice.candidates.of_public(step.head(mean))

    def _logits(self, step: Step, choice: CandidateSet) -> Tensor:
        """Return the same as `_hidden`, from the noisy mean of the candidates' logits."""
        public = choice.public.masked_fill(~choice.candidates.allowed, 0.0)
        rows = choice.rows(step)
        logits = rows.values.masked_fill(~choice.candidates.allowed[rows.generation], 0.0)
        mean = self._mean(RowValues(logits, rows.generation, rows.valid), public)
        return mean.masked_fill(~choice.candidates.allowed, -torch.inf)

    def _mean(self, rows: RowValues, public: Tensor) -> Tensor:
        """Return the noisy mean of the rows, float32 [L, K]; `public`, [L, K], are the public rows' vectors."""
        base = public if self.centre == "public" else torch.zeros_like(public)
        vectors = rows.values - base[rows.generation]
        return base + noisy_means(self.mechanism, vectors, rows, len(public), self.references, self.rng)
