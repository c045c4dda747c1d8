"""AdaPMixED (Flemings, Razaviyayn, Annavaram, 2024), for comparison on public data only (PRIVACY §4.3).

Each row's distribution is mixed with the public one until it lies within a Renyi ball around it; the next token is
drawn from the mean of the mixtures. A noisy screening sends steps whose mean is far from the public distribution to the
public model. The privacy loss is then computed from the distributions themselves: it depends on the data, holds for
that data alone, and would have to be protected before anybody sees it. So it is no guarantee in the sense of
PRIVACY §1: on governed data the system is refused, on public data it charges nothing and claims nothing.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from models_db.errors import Refused, UsageError
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, format_decimal
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.core.uncharged import uncharged
from tasks.systems.private_decoding import (
    CalibratedMechanisms,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    top_k_text,
)
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import GeneratedText

if TYPE_CHECKING:
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule

LOSS_FIGURE = "renyi_loss_of_this_data_not_a_guarantee"


class AdaPMixedParameters(PrivateDecodingParameters):
    """`parameters:` of a request."""

    order: Annotated[ExactDecimal, Field(gt=1, le=100)] = Decimal(3)
    radius: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal("0.1")
    screening_weight: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal("0.001")
    screening_noise: Annotated[ExactDecimal, Field(gt=0, le=10)] = Decimal("0.001")
    screening_threshold: Annotated[ExactDecimal, Field(gt=0, le=1000)] = Decimal(2)

    @property
    def reproduces_paper(self) -> bool:
        """The mechanism is that of another paper, and is there to be compared with it."""
        return True


class AdaPMixed(PrivateDecodingSystem[AdaPMixedParameters]):
    """The system `adapmixed`."""

    name: str = "adapmixed"
    parameters: type[BaseModel] = AdaPMixedParameters
    charges = False

    def plan(self, ask: PlanInputs) -> Plan:
        """A plan without any guarantee.

        Raises:
            GuaranteeDependsOnData: the dataset is not marked public.
            BatchesNotDeclared: neither batches nor a population are declared, and nothing pays for a count.
            BlockWithoutSample: fewer samples than blocks.
        """
        if ask.governed:
            raise Refused(
                f"The privacy loss of {self.name!r} is computed from the private data and holds for that data alone;"
                " on governed data it is refused.",
                "Use it on a dataset registered with `--public` to compare; otherwise choose a mechanism that charges.",
                {"mechanism": self.name},
                code="GuaranteeDependsOnData",
            )
        settings, _ = self._settings_and_layout(ask.parameters, ask.blocks)
        if not (settings.batches or ask.population):
            raise UsageError(
                f"{self.name!r} needs to know how many batches there are, and nothing pays for a count.",
                "Declare `parameters.batches`, or a population with the dataset.",
                {"mechanism": self.name},
                code="BatchesNotDeclared",
            )
        return super().plan(ask)

    def calibrate(self, rho: int, settings: AdaPMixedParameters) -> CalibratedMechanisms:
        """Return one mechanism without charge, because every run is recorded."""
        facts = {
            "tokens per text": str(settings.max_new_tokens),
            "top k": top_k_text(settings.top_k),
            "Renyi order": format_decimal(settings.order),
            "radius of a row": format_decimal(settings.radius),
            "weight of rows in the screening": format_decimal(settings.screening_weight),
            "noise of the screening": format_decimal(settings.screening_noise),
            "threshold of the screening": format_decimal(settings.screening_threshold),
        }
        return CalibratedMechanisms((uncharged(self.name),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: AdaPMixedParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """A mixture for each token."""
        from tasks.systems.adapmixed.rule import AdaPMixedRule

        return AdaPMixedRule(
            temperature=float(settings.temperature),
            references=settings.references,
            top_k=settings.top_k,
            order=float(settings.order),
            radius=float(settings.radius),
            weight=float(settings.screening_weight),
            noise=float(settings.screening_noise),
            threshold=float(settings.screening_threshold),
            rng=rng,
        )

    def figures(self, texts: Sequence[GeneratedText]) -> dict[str, str]:
        """Return the largest data-dependent loss of a text, and the mean number of mixtures per text."""
        loss = max((text.facts["renyi_loss"] for text in texts), default=0.0)
        mixed = sum(text.facts["private_tokens"] for text in texts) / max(1, len(texts))
        return {LOSS_FIGURE: f"{loss:.4f}", "private_tokens_per_text": f"{mixed:.2f}"}
