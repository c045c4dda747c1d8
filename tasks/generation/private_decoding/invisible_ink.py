"""InvisibleInk (Vinod, Pillutla, Thakurta, 2025): one private text per batch, token by token.

Each token is drawn by the exponential mechanism from public logits shifted by the clipped mean difference of the
batch's rows (DClip), among the tokens the public model finds likely (Top-k+). Scores, draw and loss are
`tasks.mechanisms.tokens.utility_scores` and `samplers`, the rule is `invisible_ink_rule`; this file plans the release
around them (PRIVACY §3, §4.1).
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, format_decimal
from tasks.accounting.rounding import decimal_above, exact
from tasks.generation.private_decoding.base import (
    COUNT_SHARE,
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    penalty_facts,
    sampler_facts,
    top_k_text,
)
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import sampler as samplers
from tasks.values.generated import GeneratedText
from tasks.values.release_kinds import TEXT_KINDS, ReleaseKind

if TYPE_CHECKING:
    from tasks.generation.decoding.free_tokens import FreeTokens
    from tasks.generation.decoding.loop import BudgetMeter, ResumableSamplingRule

__all__ = ["COUNT_SHARE", "InvisibleInk", "InvisibleInkParameters"]


FREE_TOKENS_FACTOR = 2
"""With free tokens a text has at most so many times `max_new_tokens` tokens: a public bound for memory and context."""


class InvisibleInkParameters(PrivateDecodingParameters):
    """`parameters:` of a request; every one is public.

    Attributes:
        free_above: a position is free where the public model gives one token more than this probability
            (`decoding.free_tokens`). Above a half, so that the token is one. None: every token is a charged draw.
        presence_penalty: by how much the score of a token is lowered that the text already has, in logits
            (`mechanisms.tokens.presence_penalty`).
    """

    clipping: Literal["log_probability", "logit"] = "log_probability"
    sampler: samplers.Kind = samplers.DEFAULT
    free_above: Annotated[ExactDecimal, Field(gt=Decimal("0.5"), lt=1)] | None = None
    presence_penalty: Annotated[ExactDecimal, Field(gt=0, le=10)] | None = None

    @property
    def tokens_per_text(self) -> int:
        """T, or its multiple where some of the tokens cost nothing, and those that finish a sentence."""
        draws = self.max_new_tokens * (1 if self.free_above is None else FREE_TOKENS_FACTOR)
        return draws + self.completion_tokens

    @model_validator(mode="after")
    def _free_tokens_are_plain(self) -> Self:
        if self.free_above is not None and (self.form is not None or self.json_schema is not None):
            raise FreeTokensInGrammar("form" if self.form is not None else "schema")
        return self


class InvisibleInk(PrivateDecodingSystem[InvisibleInkParameters]):
    """The system `invisible_ink`."""

    name: str = "invisible_ink"
    kinds: tuple[str, ...] = (*TEXT_KINDS, ReleaseKind.SUMMARIES)
    parameters: type[BaseModel] = InvisibleInkParameters
    reads_batches_by_draws_alone = True

    def calibrate(self, rho: int, settings: InvisibleInkParameters) -> CalibratedMechanisms:
        """Return the largest clip norm that `max_new_tokens` draws can have: C = tau B sqrt(2 rho / T).

        Raises:
            BudgetTooSmall: not one grid step of clip norm is affordable.
        """
        draws = settings.draws
        draw = samplers.calibrate(settings.sampler, rho, draws, settings.references, settings.temperature)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "clip norm C": format(decimal_above(draw.clip_norm, 6), "f"),
            "clipping": settings.clipping.replace("_", " "),
            "rho per draw": draw.loss().rho_text,
            **sampler_facts(settings.sampler),
            **penalty_facts(settings.presence_penalty),
            **_free_facts(settings),
        }
        return CalibratedMechanisms((draw.event(draws),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: InvisibleInkParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the rule that makes one draw for each token."""
        from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule

        return InvisibleInkRule(samplers.from_event(events[0]), settings.top_k, settings.clipping, rng, meter)

    def free_tokens(
        self, settings: InvisibleInkParameters, rng: RandomSource, lost: int
    ) -> "Callable[[], FreeTokens] | None":
        """As the base says; the public model is asked at the request's temperature, with its top k."""
        from tasks.generation.decoding.free_tokens import FreeTokens

        if settings.free_above is None:
            return None
        draw = samplers.public_sampler(settings.temperature, settings.sampler)
        most = settings.draws_per_text - lost
        return partial(FreeTokens, exact(settings.free_above), draw, settings.top_k, most, rng)

    def presence_penalty(self, settings: InvisibleInkParameters) -> Fraction | None:
        """As the base says."""
        return None if settings.presence_penalty is None else exact(settings.presence_penalty)

    def figures(self, texts: Sequence[GeneratedText]) -> dict[str, str]:
        """Return figures of the charged draws, and how many tokens of a text were free on average, where some may be.

        Of the draws: the mean number of candidates, and the share of tokens from beyond the public top k.
        """
        total = max(1.0, sum(text.facts["draws"] for text in texts))
        candidates = sum(text.facts["effective_k"] * text.facts["draws"] for text in texts)
        beyond = sum(text.facts["from_expansion"] for text in texts)
        free = [text.facts["free_tokens"] for text in texts if "free_tokens" in text.facts]
        return {
            "effective_k": f"{candidates / total:.2f}",
            "share_from_expansion": f"{beyond / total:.4f}",
            **({"free_tokens_per_text": f"{sum(free) / len(free):.2f}"} if free else {}),
        }


def _free_facts(settings: InvisibleInkParameters) -> dict[str, str]:
    if settings.free_above is None:
        return {}
    above = format_decimal(settings.free_above)
    return {
        "free tokens": f"where the public model gives one token more than {above}; they are drawn from it and cost"
        " nothing",
        "tokens per text": str(settings.tokens_per_text),
    }


class FreeTokensInGrammar(UsageError):
    """Free tokens in texts that are held to a grammar."""

    def __init__(self, grammar: str) -> None:
        super().__init__(
            f"A release has `free_above` or a `{grammar}`, not both: a grammar counts the tokens up to its end.",
            "Leave `parameters.free_above` out; what a form forces costs nothing anyway.",
            {"grammar": grammar},
        )
