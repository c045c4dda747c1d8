"""URANIA: topics, descriptions, noisy sizes of a corpus, end to end private (Liu et al., Algorithm 1; PRIVACY §5, §9).

    keywords    a closed set of keywords, private or public                    `keywords.keyword_set`
    clusters    centres of the units' points                                   `clusters`
    sizes       a noisy histogram of units over the centres                    one bin a unit
    histogram   a noisy histogram of units over clusters x keywords            at most `keywords_of_a_unit` bins a unit
    topics      a public model names what was released, and what is above it   post-processing

Every stage is a mechanism of the catalogue over the same units, and each may depend on what the ones before it have
released: rho adds up (PRIVACY §2). What a unit contributes to a stage, its keywords, its point, its cluster, its
choice, is a function of that unit and of released values alone. The keyword set comes first, unlike in the paper,
because what was released tells the clusterer where to look.

Where this is not Algorithm 1 (PRIVACY §9): a cluster's units take part each by itself with a public probability, never
as a sample of fixed size; the histogram covers empty clusters and those below the threshold, too.
"""

from collections.abc import Mapping
from fractions import Fraction

from pydantic import BaseModel

from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest, format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.analysis.keywords.parameters import with_words_from_file
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.insights.urania.parameters import UraniaParameters
from tasks.insights.urania.stages import Stages
from tasks.values.generated import Generated
from tasks.values.insight import SIZE_DEVIATION, SMALLEST_CLUSTER
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.release_kinds import ReleaseKind


class Urania:
    """The system `urania`."""

    name: str = "urania"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = UraniaParameters
    charges = True

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """With the words of a file of public keywords in place of its name.

        Raises:
            WordsUnreadable, WordsInvalid: there is no such file, or it is none.
            UnknownModel, WrongKind: there is no such embedder.
        """
        asked = dict(request.parameters)
        if "keywords" in asked:
            asked["keywords"] = with_words_from_file(asked["keywords"])
        return request.model_copy(update={"parameters": asked})

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """What selecting keywords needs; none for a public set."""
        wanted = self._asked(parameters)
        return Fraction(wanted.delta_share) if wanted.keywords.charged else Fraction(0)

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy all stages; each is one instalment, charged to every block.

        Raises:
            UnknownModel, WrongKind: there is no such embedder.
            UsageError, Refused: some share of the amount buys nothing.
        """
        wanted = self._asked(ask.parameters)
        find(wanted.embedder, "embedder")
        stages = Stages.of(wanted, ask.amount or Amount())
        extracted = (ask.population or 0) if wanted.facets.extractor == "model" else 0
        return Plan(
            invocations=invoked_once(stages.events),
            blocks=tuple(range(ask.blocks)),
            samples=wanted.clusters.count,
            facts=_facts(wanted, stages),
            rows=wanted.clusters.count + extracted,
            steps=wanted.facets.max_new_tokens if extracted else wanted.max_new_tokens,
            prompt_tokens=wanted.facets.max_text_tokens,
            amount=ask.amount or Amount(),
        )

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Release keywords, centres, sizes and counts, then have them named.

        Raises:
            ModelNotPulled: the embedder is not here.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, NoEnd, TokenLimitTooSmall: the model cannot do what
                is asked of it. None of these has armed anything.
            StepLost: an interrupted run has paid for a stage and lost it.
        """
        from tasks.insights.urania.run import UraniaRun

        wanted = self._asked(parameters)
        stages = Stages.of(wanted, plan.amount)
        plan.require_invoking(stages.events)
        return UraniaRun.of(wanted, stages, plan, bench).generated()

    def _asked(self, parameters: BaseModel) -> UraniaParameters:
        if not isinstance(parameters, UraniaParameters):
            raise TypeError(f"parameters of {self.name} are needed, not {type(parameters).__name__}")
        return parameters


def _facts(wanted: UraniaParameters, stages: Stages) -> Mapping[str, str]:
    """The public parameters as people read them."""
    return {
        "clusters k": str(wanted.clusters.count),
        "facets": f"by {wanted.facets.extractor}",
        "embedder": wanted.embedder,
        **stages.keywords.facts,
        **stages.clusterer.facts,
        SIZE_DEVIATION: format_decimal(decimal_above(stages.sizes.noise.sigma, 2)),
        SMALLEST_CLUSTER: str(stages.smallest(wanted)),
        "units that choose keywords": f"each with probability {format_decimal(wanted.sampled)}",
        "keywords of a unit": f"{wanted.keywords_of_a_unit} at most, chosen by {wanted.choice}",
        "keyword counts": stages.histogram.facts()["noise"],
        "keywords of a cluster t": str(wanted.keywords_of_a_cluster),
        "levels": str(wanted.hierarchy.levels),
        "temperature": format_decimal(wanted.temperature),
    }
