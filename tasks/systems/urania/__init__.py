"""URANIA: insights into a corpus, private end to end (Liu et al., Algorithm 1; PRIVACY §5, §9).

    keywords    a closed set of keywords, private or public                    `keywords.keyword_set`
    clusters    centres of the units' points                                   `clusters`
    sizes       a noisy histogram of units over the centres                    one bin per unit
    histogram   a noisy histogram of units over clusters x keywords           at most `keywords_of_a_unit` bins per unit
    topics      supported keywords, and names made of them                     post-processing

Every stage is a mechanism of the registry over the same units, and each may depend on released values of the stages
before it: rho adds up (PRIVACY §2). A unit's contribution to a stage (its keywords, point, cluster and choice) is a
function of that unit and of released values alone. The keyword set comes first, unlike in the paper, because released
keywords give the clusterer its starting points. Public words that fill the set up are chosen by released centres and
sizes, before the histogram counts anything.

Where this is not Algorithm 1 (PRIVACY §9): a cluster's units take part each by itself with a public probability, never
as a sample of fixed size; the histogram covers empty clusters and those below the threshold, too.
"""

import math
from collections.abc import Mapping
from fractions import Fraction

from pydantic import BaseModel

from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest, format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.analysis.keywords.expected_keywords import expected_keywords
from tasks.analysis.keywords.parameters import with_words_from_file
from tasks.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.planning.unit_seconds import seconds_per_unit
from tasks.systems.base import System
from tasks.systems.insights.cluster_descriptions import SENTENCES
from tasks.systems.urania.stages import Stages, UraniaParameters
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.results import (
    COUNT_DEVIATION,
    SIZE_DEVIATION,
    SMALLEST_CLUSTER,
    SMALLEST_COUNT,
    SMALLEST_SHARE,
    Generated,
    ReleaseKind,
)


class Urania(System):
    """The system `urania`."""

    name: str = "urania"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = UraniaParameters
    plan_rank = 1
    model_sentences = SENTENCES

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Replace the name of a file of public keywords by its words.

        Raises:
            WordsUnreadable, WordsInvalid: the file is missing, or not in its format.
            UnknownModel, ModelKindMismatch: the embedder is unknown.
        """
        parameters = dict(request.parameters)
        if "keywords" in parameters:
            parameters["keywords"] = with_words_from_file(parameters["keywords"])
        return request.model_copy(update={"parameters": parameters})

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """Return the delta share of the keyword selection; 0 for a public set."""
        settings = self._typed_parameters(parameters)
        return Fraction(settings.delta_share) if settings.keywords.charged else Fraction(0)

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes: its facets, and the embedding of its summary."""
        settings = self._typed_parameters(parameters)
        return seconds_per_unit(settings.embedder, extractor=settings.facets.extractor)

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy all stages; each is one instalment, charged to every block.

        Raises:
            UnknownModel, ModelKindMismatch: the embedder is unknown.
            UsageError, Refused: a share of the amount buys nothing.
        """
        settings = self._typed_parameters(ask.parameters)
        find(settings.embedder, "embedder")
        stages = Stages.of(settings, ask.amount or Amount())
        extracted = (ask.population or 0) if settings.facets.extractor == "model" else 0
        return Plan(
            invocations=invoked_once(stages.events),
            blocks=tuple(range(ask.blocks)),
            samples=settings.clusters.count,
            facts=_facts(settings, stages, ask.population),
            rows=settings.clusters.count + extracted,
            steps=settings.facets.max_new_tokens if extracted else settings.max_new_tokens,
            prompt_tokens=settings.facets.max_text_tokens,
            amount=ask.amount or Amount(),
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Release keywords, centres, sizes and counts, then have them named.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall:
                the model cannot take the prompts. None of these has armed anything.
            StepLost: an interrupted run has paid for a stage and lost it.
        """
        from tasks.systems.urania.run import UraniaRun

        settings = self._typed_parameters(parameters)
        stages = Stages.of(settings, plan.amount)
        plan.require_invoking(stages.events)
        return UraniaRun.of(settings, stages, plan, context).generated()

    def _typed_parameters(self, parameters: BaseModel) -> UraniaParameters:
        if not isinstance(parameters, UraniaParameters):
            raise TypeError(f"parameters of {self.name} are needed, not {type(parameters).__name__}")
        return parameters


def _facts(parameters: UraniaParameters, stages: Stages, population: int | None) -> Mapping[str, str]:
    """Return the public parameters for people."""
    support = stages.support(parameters)
    return {
        "clusters k": str(parameters.clusters.count),
        "facets": f"by {parameters.facets.extractor}",
        "embedder": parameters.embedder,
        **stages.keywords.facts,
        **expected_keywords(stages.keywords.selecting, population),
        **stages.clusterer.facts,
        SIZE_DEVIATION: format_decimal(decimal_above(stages.sizes.noise.sigma, 2)),
        SMALLEST_CLUSTER: str(stages.smallest(parameters)),
        "units that choose keywords": f"each with probability {format_decimal(parameters.sampled)}",
        "keywords of a unit": f"{parameters.keywords_of_a_unit} at most, chosen by {parameters.choice}",
        "keyword counts": stages.histogram.facts()["noise"],
        COUNT_DEVIATION: format_decimal(decimal_above(Fraction(math.sqrt(stages.histogram.variance())), 2)),
        SMALLEST_COUNT: str(support.count),
        SMALLEST_SHARE: format_decimal(parameters.smallest_support * parameters.sampled),
        "keywords of a cluster t": str(parameters.keywords_of_a_cluster),
        "levels": str(parameters.hierarchy.levels),
        "temperature": format_decimal(parameters.temperature),
    }
