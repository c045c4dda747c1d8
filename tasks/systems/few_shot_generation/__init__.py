"""Few-shot generation (Tang et al., ICLR 2024, arXiv 2309.11765): the best token of a noisy mean of distributions.

Their Algorithm 1 with the Gaussian mechanism: the rows' distributions over the K likeliest tokens of the public model
are added up, noise is added to every probability, and the token with the largest noisy probability is written. This
file plans a release around that; the sum and its charge are `tasks.mechanisms.vectors.noisy_mean`.

Why a token costs 1 / (2 sigma^2), sigma the noise on the sum. Fix the tokens before it. Two neighbouring inputs differ
by one unit, which is one row:

1. the candidates come from public logits and from tokens that are released, so both sides have the same;
2. a row contributes its probabilities of the candidates, a function of its own logits, bit for bit (rows are isolated,
   and `tasks.mechanisms.tokens.utility_scores.distributions` adds integers only). They are at least 0 and their sum is
   at most 1, so that their L2 norm is at most 1; `NoisyMean.quantised` brings down whatever would be longer, after all
   rounding. An absent row adds exactly zero. So the sums differ by a vector of norm at most 1: a noisy mean of clip
   norm 1, with its charge and its proof;
3. the largest coordinate is post-processing, and so is the division by the number of rows, which it does not need.

T tokens of a text are adaptive noisy means of the same units, so their charges add up; a unit is behind one text.

Three differences from the paper. Its neighbours replace a unit, so that its norm is sqrt(2); ours lacks one, as in all
of almoner. It draws other units for each token and claims the smaller loss that chance gives (amplification by
subsampling); here a text keeps its batch, as with every other decoder, and what is charged is zCDP, which a ledger can
add up. And a prompt of the paper shows several units of a subset, a row here one unit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import decimal_above
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import public_sampler
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.systems.private_decoding import (
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    top_k_text,
)

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule

CLIP_NORM = 1
"""The L2 norm of a distribution is at most its sum."""


class FewShotGenerationParameters(PrivateDecodingParameters):
    """`parameters:` of a request; every one is public. `temperature` is that of the rows' distributions."""

    @property
    def reproduces_paper(self) -> bool:
        """The mechanism is that of another paper, and is there to be compared with it."""
        return True


class FewShotGeneration(PrivateDecodingSystem[FewShotGenerationParameters]):
    """The system `few_shot_generation`."""

    name: str = "few_shot_generation"
    parameters: type[BaseModel] = FewShotGenerationParameters

    def calibrate(self, rho: int, settings: FewShotGenerationParameters) -> CalibratedMechanisms:
        """Return the least noise with which `max_new_tokens` sums can be paid: sigma = sqrt(T / (2 rho)).

        Raises:
            NoiseInvalid: a sum would be nothing but noise.
            TokenDrawInvalid: the temperature is out of range.
        """
        public_sampler(settings.temperature)  # refused now, not when something has been spent
        mean = calibrate_mean(rho, settings.draws, CLIP_NORM)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "noise on a mean probability": format(decimal_above(mean.sigma / settings.references, 6), "f"),
            "rho per draw": mean.loss().rho_text,
        }
        return CalibratedMechanisms((mean.event(settings.draws),), facts)

    def rule(
        self,
        events: Sequence[PrivacyEvent],
        settings: FewShotGenerationParameters,
        meter: "BudgetMeter",
        rng: RandomSource,
    ) -> "ResumableSamplingRule":
        """Return the rule that takes the largest noisy probability for each token."""
        from tasks.systems.few_shot_generation.rule import FewShotGenerationRule

        mean = NoisyMean.from_event(events[0])
        return FewShotGenerationRule(mean, float(settings.temperature), settings.top_k, rng, meter)
