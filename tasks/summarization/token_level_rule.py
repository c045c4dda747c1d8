"""The rule of token-level summaries: at each step a noisy mean over the rows, and a public draw from what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from tasks.generation.decoding.candidates import CandidateSet
from tasks.generation.decoding.loop import BudgetMeter, Step
from tasks.inference.engine.session import RowValues
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.sampler import TokenMechanism
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.summarization.group_means import noisy_means

Space: TypeAlias = Literal["hidden", "logits"]
Centre: TypeAlias = Literal["public", "none"]


@dataclass(frozen=True)
class TokenLevelRule:
    """How token-level summaries draw (PRIVACY §5; "Differentially Private Summarization", §4.1, Algorithm 1).

    The mean is taken of last hidden states, or of the candidates' logits. With `centre="public"` each row contributes
    by how much it differs from the public row, which is public, so the sensitivity is that of the clip norm all the
    same: the public model's word stands where the noise drowns the rows, and the clip norm is spent on differences.
    The token is drawn from the noisy mean, among candidates that public logits decide: post-processing.

    Attributes:
        mechanism: the noisy sum of one step.
        public_draw: the softmax of what the mean says.
        references: n.
        top_k: public candidates; None or 0 for the whole vocabulary.
        meter: pays for the steps.
    """

    mechanism: NoisyMean
    public_draw: TokenMechanism
    references: int
    top_k: int | None
    space: Space
    centre: Centre
    rng: RandomSource
    meter: BudgetMeter

    def next_tokens(self, step: Step) -> list[int]:
        """One token id for each live generation."""
        self.meter.admit(max(step.positions))
        choice = CandidateSet.of(step, self.top_k, self.public_draw)
        said = self._hidden(step, choice) if self.space == "hidden" else self._logits(step, choice)
        nothing = torch.zeros_like(choice.found.tokens)
        scores = utility_scores.utilities(self.public_draw, said, nothing)
        return utility_scores.draw_tokens(self.public_draw, choice.found, scores, self.rng)

    def facts(self, number: int) -> Mapping[str, float]:
        """None: the text says all."""
        return {}

    def kept(self, number: int) -> Sequence[float]:
        """Nothing: a step depends on the text so far alone."""
        return ()

    def resume(self, number: int, kept: Sequence[float]) -> None:
        """Nothing was kept."""

    def _hidden(self, step: Step, choice: CandidateSet) -> Tensor:
        """The candidates' logits from the noisy mean of hidden states: float32 [L, K], -inf where there is none."""
        public = step.public_hidden()
        found = self._mean(step.hidden(), public)
        return choice.found.of_public(step.head(found))

    def _logits(self, step: Step, choice: CandidateSet) -> Tensor:
        """As `_hidden`, from the noisy mean of the candidates' logits."""
        public = choice.public.masked_fill(~choice.found.allowed, 0.0)
        rows = choice.rows(step)
        kept = rows.values.masked_fill(~choice.found.allowed[rows.generation], 0.0)
        found = self._mean(RowValues(kept, rows.generation, rows.valid), public)
        return found.masked_fill(~choice.found.allowed, -torch.inf)

    def _mean(self, rows: RowValues, public: Tensor) -> Tensor:
        """What the rows say on average, float32 [L, K]; `public`, [L, K], is what the public rows say."""
        base = public if self.centre == "public" else torch.zeros_like(public)
        vectors = rows.values - base[rows.generation]
        return base + noisy_means(self.mechanism, vectors, rows, len(public), self.references, self.rng)
