"""InvisibleInk (Vinod, Pillutla, Thakurta, 2025): one private text per batch, token by token.

Each token is drawn by the exponential mechanism from public logits shifted by the clipped mean difference of the
batch's rows (DClip), among the tokens the public model finds likely (Top-k+). Scores, draw and loss are
`tasks.mechanisms.tokens.utility_scores` and `integer_table`, the rule is `sampling_rule`; this file plans the
release around them (PRIVACY §3, §4.1).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import decimal_above
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import integer_table
from tasks.planning.influence import CLEARLY, FULLY, HARDLY, STRONGLY, WEAKLY, InfluenceLevel, levels
from tasks.systems.private_decoding import (
    COUNT_SHARE,
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    top_k_text,
)
from tasks.values.results import TEXT_KINDS, GeneratedText, ReleaseKind

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule

LEVELS = levels(
    ("almost fully", "2", (98, 93), FULLY),
    ("strongly", "1", (88, 76), STRONGLY),
    ("clearly", "0.3", (48, 38), CLEARLY),
    ("weakly", "0.1", (19, 15), WEAKLY),
    ("hardly", "0", (0, 0), HARDLY),
)
LEVELS_OF_LOGITS = levels(
    ("almost fully", "4", (94, 94), FULLY),
    ("strongly", "2", (81, 69), STRONGLY),
    ("clearly", "0.6", (39, 32), CLEARLY),
    ("weakly", "0.3", (22, 18), WEAKLY),
    ("hardly", "0", (0, 0), HARDLY),
)
"""Of `clipping: logit`."""

__all__ = ["COUNT_SHARE", "InvisibleInk", "InvisibleInkParameters"]


class InvisibleInkParameters(PrivateDecodingParameters):
    """`parameters:` of a request; every one is public."""

    clipping: Literal["log_probability", "logit"] = "log_probability"

    @property
    def reproduces_paper(self) -> bool:
        """`logit` is the clipping of the paper."""
        return self.clipping == "logit"


class InvisibleInk(PrivateDecodingSystem[InvisibleInkParameters]):
    """The system `invisible_ink`."""

    name: str = "invisible_ink"
    kinds: tuple[str, ...] = (*TEXT_KINDS, ReleaseKind.SUMMARIES)
    parameters: type[BaseModel] = InvisibleInkParameters
    reads_batches_by_draws_alone = True
    depends_on_candidates = False  # measured: hardly (docs/utility.md)
    plan_rank = 1
    summary_temperature = Decimal("0.4")

    def influence_levels(self, parameters: Mapping[str, Any]) -> tuple[InfluenceLevel, ...]:
        """Return the levels of the clipping that the parameters name."""
        return LEVELS_OF_LOGITS if parameters.get("clipping") == "logit" else LEVELS

    def calibrate(self, rho: int, settings: InvisibleInkParameters) -> CalibratedMechanisms:
        """Return the largest clip norm that `max_new_tokens` draws can have: C = tau B sqrt(2 rho / T).

        Raises:
            BudgetTooSmall: not one grid step of clip norm is affordable.
        """
        draws = settings.draws
        draw = integer_table.calibrate(rho, draws, settings.references, settings.temperature)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "clip norm C": format(decimal_above(draw.clip_norm, 6), "f"),
            "clipping": settings.clipping.replace("_", " "),
            "rho per draw": draw.loss().rho_text,
        }
        return CalibratedMechanisms((draw.event(draws),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: InvisibleInkParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the rule that makes one draw for each token."""
        from tasks.decoding.sampling_rule import InvisibleInkRule

        draw = integer_table.IntegerTableMechanism.from_event(events[0])
        return InvisibleInkRule(draw, settings.top_k, settings.clipping, rng, meter)

    def figures(self, texts: Sequence[GeneratedText]) -> dict[str, str]:
        """Return the mean number of candidates of a draw, and the share of tokens from beyond the public top k."""
        total = max(1.0, sum(text.facts["draws"] for text in texts))
        candidates = sum(text.facts["effective_k"] * text.facts["draws"] for text in texts)
        beyond = sum(text.facts["from_expansion"] for text in texts)
        return {
            "effective_k": f"{candidates / total:.2f}",
            "share_from_expansion": f"{beyond / total:.4f}",
        }
