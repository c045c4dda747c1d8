"""Token-level private summaries: one noisy mean over all of a group's units for every token (PRIVACY §5).

After "Differentially Private Summarization with Large Language Models", §4.1. Row, mean and draw are in
`token_level_rule`, the mechanism and its loss in `tasks.mechanisms.vectors.noisy_mean`; this file plans the release
around them. A unit is read for m groups, each of which draws T times: m T noisy sums, rho = m T C^2 / (2 sigma^2),
sigma the noise on a sum. In Gaussian differential privacy, mu = sqrt(m T) C / sigma, and rho = mu^2 / 2.
"""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from models_db.values.amounts import RHO_UNIT
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, ReleaseRequest
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
from tasks.values.results import ReleaseKind

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule

_EXACT = Context(prec=30, rounding=ROUND_FLOOR)
_SHOWN = Context(prec=3, rounding=ROUND_FLOOR)

CLIP_NORMS = {"public": Decimal(16), "none": Decimal(48)}
"""Clip norms for SmolLM2-135M: a row's typical difference from its public row, and its norm (docs/summaries.md)."""

NOISE = Decimal("0.3")
"""Noise on each entry of a hidden state with which SmolLM2-135M still writes sentences (docs/summaries.md)."""


class TokenLevelParameters(PrivateDecodingParameters):
    """`parameters:` of a request; all of them are public.

    Attributes:
        clip_norm: largest C; the value for SmolLM2-135M by default.
        noise: largest tolerated standard deviation of the noise on each entry of a mean: where the budget buys C only
            with more, C is lowered. Rows then contribute less, but the noise does not hide them. None: C unchanged.
    """

    clip_norm: Annotated[ExactDecimal, Field(gt=0, le=10**9)] | None = None
    noise: Annotated[ExactDecimal, Field(gt=0, le=10**9)] | None = None
    space: Literal["hidden", "logits"] = "hidden"
    centre: Literal["public", "none"] = "public"

    @property
    def reproduces_paper(self) -> bool:
        """The paper takes rows as they are."""
        return self.centre == "none"


class TokenLevelSummary(PrivateDecodingSystem[TokenLevelParameters]):
    """The system `token_level_summary`."""

    name: str = "token_level_summary"
    kinds: tuple[str, ...] = (ReleaseKind.SUMMARIES,)
    parameters: type[BaseModel] = TokenLevelParameters
    summary_temperature = Decimal("0.1")

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Fill in the default clip norm and noise: later defaults must not change a stored request."""
        parameters = request.parameters
        centre = parameters.get("centre", "public")
        if parameters.get("clip_norm") is not None or centre not in list(CLIP_NORMS):
            return request  # invalid values are reported by the parameters' own validation
        uses_differences = centre == "public" and parameters.get("space", "hidden") == "hidden"
        tolerated_noise = {"noise": NOISE} if uses_differences else {}
        return request.model_copy(
            update={"parameters": {**tolerated_noise, **parameters, "clip_norm": CLIP_NORMS[centre]}}
        )

    def calibrate(self, rho: int, settings: TokenLevelParameters) -> CalibratedMechanisms:
        """Calibrate the noisy mean with the least noise that m T draws afford.

        Raises:
            NoiseInvalid, MeanInvalid: only noise is affordable, or the clip norm is out of range.
            TokenDrawInvalid: the temperature is out of range.
        """
        public_sampler(settings.temperature)  # refused now, not after something has been spent
        norm = settings.clip_norm or CLIP_NORMS[settings.centre]
        if settings.noise is not None:
            norm = min(norm, affordable_clip_norm(rho, settings.draws, settings.references, settings.noise))
        mean = calibrate_mean(rho, settings.draws, norm)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "mean of": {"hidden": "last hidden states", "logits": "logits of the candidates"}[settings.space],
            "rows are taken": {"public": "as differences from the public row", "none": "as they are"}[settings.centre],
            **mean_facts(mean, settings.references, settings.draws),
        }
        return CalibratedMechanisms((mean.event(settings.draws),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: TokenLevelParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the sampling rule: one noisy mean for each token."""
        from tasks.systems.summaries.token_level_rule import TokenLevelRule

        return TokenLevelRule(
            mechanism=NoisyMean.from_event(events[0]),
            public_draw=public_sampler(settings.temperature),
            references=settings.references,
            top_k=settings.top_k,
            space=settings.space,
            centre=settings.centre,
            rng=rng,
            meter=meter,
        )


def affordable_clip_norm(rho: int, draws: int, references: int, noise: Decimal) -> Decimal:
    """Return the largest clip norm for which `rho` (units of 1e-12) buys at most `noise`: C = s n sqrt(2 rho / T).

    Three digits, rounded down; at least 1e-9, at which the mechanism reports that nothing is affordable.

    Args:
        noise: s, the standard deviation of the noise on each entry of a mean.
    """
    clip_norm = noise * references * (Decimal(2 * rho) / (draws * RHO_UNIT)).sqrt(_EXACT)
    return max(_SHOWN.plus(clip_norm), Decimal("1e-9"))


def mean_facts(mean: NoisyMean, references: int, draws: int, entries: int | None = None) -> dict[str, str]:
    """Return the public parameters of a release of noisy means, for people.

    Args:
        entries: number of entries of a mean, if known before the model is loaded.
    """
    noise = decimal_above(mean.sigma / references, 6)
    length = (
        {} if entries is None else {"length of the noise on a mean": f"about {noise * Decimal(entries).sqrt():.1f}"}
    )
    return {
        "clip norm C": format(decimal_above(mean.clip_norm, 6), "f"),
        "noise on each entry of a mean": format(noise, "f"),
        **length,
        "rho per mean": mean.loss().rho_text,
        "mu of Gaussian differential privacy": format(decimal_above(Fraction(mean.gdp_mu(draws)), 6), "f"),
    }
