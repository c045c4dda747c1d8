"""Steering vectors: texts by a public model that a private mean of hidden states has turned to units' texts.

After EPSVec (arXiv 2602.21218), "dataset vectors":

    origin    the public model writes texts; mean and spread of their hidden states      public words alone
    vectors   hidden states of every unit's text, less the origin, clipped, averaged      one noisy mean
    texts     the public model writes with a multiple of the vector added to its stream   post-processing

Rho buys one noisy mean for each label, once (`vectors` has the proof). A unit is read under one label, so the
vectors of all labels cost what one costs. Where texts are allocated in proportion, a share of rho buys a noisy
histogram of the units by label first (`tasks.planning.label_allocation`), and rho is the sum of both. The texts,
however many, are functions of released and of public values, so `release extend` makes more of them at no charge.

Where this is not the paper's: noise is the discrete Gaussian, the mean is over a public n, and units, not records,
are clipped; the origin is subtracted before clipping, so that the clip norm is spent on what differs; the vector is
shrunk by what its noise adds to it; it is added behind one layer, without private examples in the prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pydantic import BaseModel

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.generation.decoding.run_context import RunContext
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.planning.batches import labels_without_batches
from tasks.planning.further_texts import events_of, parent_facts
from tasks.planning.label_allocation import allocation_facts, counting_events, histogram_of, rho_beside
from tasks.planning.labels_and_groups import part_facts
from tasks.planning.precision_parameters import precision_facts
from tasks.planning.sentence_completion_parameters import completion_facts
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tasks.values.generated import Generated
from tasks.values.plan import GeneratorDefaults, Plan, PlanInputs, invoked_once
from tasks.values.release_kinds import ReleaseKind

NOISE: Final = "noise on each entry of a vector"
"""Fact of a plan: the standard deviation, in multiples of the spread of public draws."""


@dataclass(frozen=True)
class Stages:
    """What an amount buys, in the order in which it is spent.

    Attributes:
        histogram: of the units by label, of a proportional allocation; None for an equal one.
        mean: the vectors of all labels.
    """

    histogram: NoisyHistogram | None
    mean: NoisyMean

    @classmethod
    def of(cls, settings: SteeringParameters, amount: Amount) -> "Stages":
        """Calibrate the stages that cost at most `amount` together.

        Raises:
            AllocationShareTooSmall, NoiseInvalid: a share of it buys nothing.
        """
        histogram = histogram_of(settings, amount, SteeringVector.name)
        return cls(histogram, calibrate_mean(rho_beside(histogram, amount), 1, settings.clip_norm))

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order."""
        return (*counting_events(self.histogram), self.mean.event())


class SteeringVector(GeneratorDefaults):
    """The system `steering_vector`."""

    name: str = "steering_vector"
    kinds: tuple[str, ...] = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS)
    parameters: type[BaseModel] = SteeringParameters
    charges = True
    renders_prompt = True

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy all stages, each in one instalment, charged to every block. Further texts of a release buy nothing.

        Raises:
            LabelWithoutSample, TooFewTextsForLabels: fewer texts than labels, or than they have at least.
            AllocationShareTooSmall, NoiseInvalid: the amount buys nothing but noise.
        """
        settings = _typed_parameters(ask.parameters)
        texts = len(labels_without_batches(settings, settings.samples))
        amount = ask.amount or Amount()
        stages = Stages.of(settings, amount)
        extends = settings.extends
        units = ask.population or settings.references * settings.parts
        read = 0 if extends else units + settings.public_draws * settings.parts
        return Plan(
            invocations=invoked_once(events_of(extends, stages.events)),
            blocks=tuple(range(ask.blocks)),
            samples=settings.samples,
            facts=_facts(settings, stages),
            rows=texts + read,
            steps=settings.tokens_per_text,
            prompt_tokens=settings.max_reference_tokens,
            reading_rows=read,
            amount=amount,
        )

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Release the vectors, then generate texts.

        Raises:
            LabelsNotKept: labels are declared, and the version has none.
            LayersNotFound: the model's layers cannot be identified.
            ContextTooLong, NoChatTemplate, BadDescription, ControlTokens: the model cannot take the prompts.
            RowsNotIsolated, NotEnoughMemory: this device cannot read the texts.
            VectorOfAnotherModel: the extended release's vector is of another model. None of these has armed anything.
            StepLost: an interrupted run has paid for the histogram or the vectors and lost them.
        """
        from tasks.prompted_generation.steering.run import SteeringRun

        settings = _typed_parameters(parameters)
        stages = Stages.of(settings, plan.amount)
        plan.require_invoking(events_of(settings.extends, stages.events))
        return SteeringRun.of(settings, stages.histogram, stages.mean, plan, bench).generated()


def noise_of(facts: Mapping[str, str]) -> Decimal | None:
    """Return the noise on each entry of a vector among the facts of a plan; None if it has no vector."""
    return Decimal(facts[NOISE].partition(",")[0]) if NOISE in facts else None


def _typed_parameters(parameters: BaseModel) -> SteeringParameters:
    if not isinstance(parameters, SteeringParameters):
        raise TypeError(f"parameters of steering vectors are needed, not {type(parameters).__name__}")
    return parameters


def _facts(settings: SteeringParameters, stages: Stages) -> Mapping[str, str]:
    """Return the public parameters for people."""
    noise = decimal_above(Fraction(stages.mean.sigma) / settings.references, 6)
    return {
        **part_facts(settings),
        **allocation_facts(settings, stages.histogram),
        **parent_facts(settings.extends),
        **precision_facts(settings),
        "units of a label n": str(settings.references),
        "reference tokens": str(settings.max_reference_tokens),
        "depth": f"behind {format_decimal(100 * settings.depth)} % of the model's layers",
        "origin": f"the mean of {settings.public_draws} texts of the public model for each label",
        "clip norm of a unit": f"{format_decimal(settings.clip_norm)}, in multiples of the spread of those texts",
        NOISE: f"{format_decimal(noise)}, in the same unit",
        "strength": format_decimal(settings.strength),
        "tokens per text": str(settings.max_new_tokens),
        "temperature": format_decimal(settings.temperature),
        "top k": str(settings.top_k or "whole vocabulary"),
        **completion_facts(settings, settings.tokens_per_text),
    }
