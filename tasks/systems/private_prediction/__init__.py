"""Private prediction (Amin et al. 2024): a private token where it would differ, a free public one elsewhere.

At each step a noisy test asks whether the public distribution is far from the mean of the rows' distributions. If it
is not, the token comes from the public model and costs nothing; if it is, the token is drawn from the rows' clipped
logits. Tests and their charge are `tasks.mechanisms.tokens.sparse_vector`, scores `clip_recentred`; this file plans
the release around them (PRIVACY §4.3). Unlike the paper, the number of rows in every mean is the fixed public s.

A run is the tests up to a private token, and that token: both are armed before the run's first test, and stay spent
if the text ends inside it. A text has at most r private tokens, a public number. After the last one nothing private
is read for it, and it goes on from the public model.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, format_decimal
from tasks.accounting.rounding import decimal_above, exact
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import (
    WHOLE_TABLE_NATS,
    IntegerTableMechanism,
    calibrate,
    public_sampler,
)
from tasks.mechanisms.tokens.sparse_vector import SparseVector, calibrate_tests
from tasks.planning.influence import FULLY, NOISE, STRONGLY, InfluenceLevel, levels
from tasks.systems.private_decoding import (
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    top_k_text,
)
from tasks.values.results import GeneratedText

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule

USUAL_PART = 4
"""Tokens per private token in the InvisibleInk authors' runs (their Appendix D.5); r follows from it."""


def _where_private(sentence: str) -> str:
    return f"Where a word is private: {sentence[:1].lower()}{sentence[1:]}"


LEVELS = levels(
    ("almost fully", "8", (99, 99), _where_private(FULLY)),
    ("strongly", "4", (95, 88), _where_private(STRONGLY)),
    ("noise", "0", (0, 0), _where_private(NOISE)),
)


class PrivatePredictionParameters(PrivateDecodingParameters):
    """`parameters:` of a request; every one is public."""

    top_k: Annotated[int, Field(ge=0)] = 0
    private_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    threshold: Annotated[ExactDecimal, Field(ge=0, le=2)] = Decimal("0.7")
    test_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.5")
    public_temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal(1)

    @property
    def reproduces_paper(self) -> bool:
        """The mechanism is that of another paper, and is there to be compared with it."""
        return True

    @property
    def runs(self) -> int:
        """r: how many private tokens a text may have."""
        return min(self.private_tokens or -(-self.max_new_tokens // USUAL_PART), self.max_new_tokens)


class PrivatePrediction(PrivateDecodingSystem[PrivatePredictionParameters]):
    """The system `private_prediction`."""

    name: str = "private_prediction"
    parameters: type[BaseModel] = PrivatePredictionParameters
    every_token_is_a_draw = False
    plan_rank = 3

    def influence_levels(self, parameters: Mapping[str, Any]) -> tuple[InfluenceLevel, ...]:
        """Return the levels that were measured."""
        return LEVELS

    def calibrate(self, rho: int, settings: PrivatePredictionParameters) -> CalibratedMechanisms:
        """`test_share` of the budget for the tests of r runs, the rest for r draws: c = tau s sqrt(2 rho / r).

        Raises:
            BudgetTooSmall: a share affords nothing.
            TokenDrawInvalid: a temperature is out of range, that of public tokens included.
        """
        public_sampler(settings.public_temperature)  # refused now, not when something has been spent
        runs, share = settings.runs, exact(settings.test_share)
        tests = calibrate_tests(int(rho * share), runs, settings.references)
        remaining = rho - tests.event(runs).loss.rho
        draw = calibrate(remaining, runs, settings.references, settings.temperature, WHOLE_TABLE_NATS)
        facts = {
            "tokens per text": str(settings.max_new_tokens),
            "private tokens per text r": str(runs),
            "top k": top_k_text(settings.top_k),
            "clip norm c": format(decimal_above(draw.clip_norm, 6), "f"),
            "rho per private token": draw.loss().rho_text,
            "threshold theta": format_decimal(settings.threshold),
            "noise of a threshold sigma": format(decimal_above(tests.sigma, 6), "f"),
            "rho per run of tests": tests.loss().rho_text,
            "temperature of public tokens": format_decimal(settings.public_temperature),
        }
        return CalibratedMechanisms((draw.event(runs), tests.event(runs)), facts)

    def rule(
        self,
        events: Sequence[PrivacyEvent],
        settings: PrivatePredictionParameters,
        meter: "BudgetMeter",
        rng: RandomSource,
    ) -> "ResumableSamplingRule":
        """Return the rule: tests, and a private draw after a test that requires it."""
        from tasks.systems.private_prediction.rule import PrivatePredictionRule

        drawn, tested = events
        return PrivatePredictionRule(
            draw=IntegerTableMechanism.from_event(drawn),
            public_draw=public_sampler(settings.public_temperature),
            tests=SparseVector.from_event(tested),
            threshold=exact(settings.threshold),
            private_tokens=drawn.count,
            top_k=settings.top_k,
            rng=rng,
            meter=meter,
        )

    def figures(self, texts: Sequence[GeneratedText]) -> dict[str, str]:
        """Return how many tokens of a text were private on average: outputs of the tests."""
        mean = sum(text.facts["private_tokens"] for text in texts) / len(texts)
        return {"private_tokens_per_text": f"{mean:.2f}"}
