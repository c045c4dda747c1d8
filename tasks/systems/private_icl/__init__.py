"""Private in-context learning (Bhusal et al.): every token from the rows' clipped logits, blended with the public ones.

Scores and their sensitivity are `tasks.mechanisms.tokens.utility_scores`, the draw is the token draw at twice the
temperature; this file plans the release around them (PRIVACY §4.3). A text ends strictly at the end token.

Their Theorem 1 states epsilon = c sqrt(2 T ln(1/delta)) / (s tau). For the same c, zCDP gives 0.42 of that at epsilon
1 and 0.48 at epsilon 4 (delta 1e-5): for the same epsilon more than twice the c is affordable.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import decimal_above
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import WHOLE_TABLE_NATS, IntegerTableMechanism, calibrate
from tasks.planning.influence import CLEARLY, NOISE, STRONGLY, InfluenceLevel, levels
from tasks.systems.private_decoding import (
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    top_k_text,
)

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule


LEVELS = levels(
    ("strongly", "8", (73, 73), STRONGLY),
    ("clearly", "4", (69, 62), CLEARLY),
    ("noise", "0", (0, 0), NOISE),
)


class PrivateIclParameters(PrivateDecodingParameters):
    """`parameters:` of a request; every one is public."""

    top_k: Annotated[int, Field(ge=0)] = 0

    @property
    def reproduces_paper(self) -> bool:
        """The mechanism is that of another paper, and is there to be compared with it."""
        return True


class PrivateIcl(PrivateDecodingSystem[PrivateIclParameters]):
    """The system `private_icl`."""

    name: str = "private_icl"
    parameters: type[BaseModel] = PrivateIclParameters
    reads_batches_by_draws_alone = True
    plan_rank = 2

    def influence_levels(self, parameters: Mapping[str, Any]) -> tuple[InfluenceLevel, ...]:
        """Return the levels that were measured."""
        return LEVELS

    def calibrate(self, rho: int, settings: PrivateIclParameters) -> CalibratedMechanisms:
        """Return the largest clip norm that `max_new_tokens` draws can have: c = 2 tau s sqrt(2 rho / T).

        Raises:
            BudgetTooSmall: not one grid step of clip norm is affordable.
        """
        draws = settings.draws
        # (zbar + u) / 2 drawn at temperature tau is zbar + u drawn at 2 tau.
        # Rows are recentred: their best token adds c each, so the top of the scores is c above the public top.
        draw = calibrate(rho, draws, settings.references, 2 * settings.temperature, WHOLE_TABLE_NATS)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "clip norm c": format(decimal_above(draw.clip_norm, 6), "f"),
            "rho per draw": draw.loss().rho_text,
        }
        return CalibratedMechanisms((draw.event(draws),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: PrivateIclParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the rule that makes one draw for each token."""
        from tasks.systems.private_icl.rule import PrivateIclRule

        return PrivateIclRule(IntegerTableMechanism.from_event(events[0]), settings.top_k, rng, meter)
