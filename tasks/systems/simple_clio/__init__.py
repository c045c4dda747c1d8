"""SIMPLE-CLIO system: the unprotected reference for insights (Liu et al., Algorithm 4).

Summaries of units are embedded and clustered by plain k-means. The model describes each cluster from summaries of some
of its units, and of the nearest units outside as a contrast to its neighbours (appendix G.2); sizes and keywords are
exact. Clusters are grouped under wider topics as in URANIA. The model reads texts without protection, so the system is
for public data: on governed data it is refused, and nothing is claimed for its release.
"""

from pydantic import BaseModel

from models_db.values.requests import format_decimal
from tasks.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.mechanisms.core.uncharged import uncharged
from tasks.planning.unit_seconds import seconds_per_unit
from tasks.systems.base import System, not_for_governed_data
from tasks.systems.insights.cluster_descriptions import SENTENCES
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.results import Generated, ReleaseKind

PROMPT_TOKENS, SUMMARY_TOKENS, WORDINGS = 150, 50, 2
"""Tokens of a prompt without summaries and of a summary, and prompts of a cluster that gets no useful answer: for the
estimate of time."""


class SimpleClio(System):
    """The system `simple_clio`."""

    name: str = "simple_clio"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = ClioParameters
    model_sentences = SENTENCES
    charges = False

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes: its facets, and the embedding of its summary."""
        settings = self._typed_parameters(parameters)
        return seconds_per_unit(settings.embedder, extractor=settings.facets.extractor)

    def plan(self, ask: PlanInputs) -> Plan:
        """Plan a release without any guarantee.

        Raises:
            NotForGovernedData: the dataset is not marked public.
            UnknownModel, ModelKindMismatch: the embedder is unknown.
        """
        if ask.governed:
            raise not_for_governed_data(self.name)
        parameters = self._typed_parameters(ask.parameters)
        find(parameters.embedder, "embedder")
        extracted = (ask.population or 0) if parameters.facets.extractor == "model" else 0
        clusters = parameters.clusters_of(ask.population or 0)
        return Plan(
            invocations=invoked_once([uncharged(self.name)]),
            blocks=tuple(range(ask.blocks)),
            samples=clusters,
            facts=_facts(parameters),
            rows=WORDINGS * clusters + extracted,
            steps=parameters.facets.max_new_tokens if extracted else parameters.max_new_tokens,
            prompt_tokens=PROMPT_TOKENS + SUMMARY_TOKENS * (parameters.samples + parameters.contrasting),
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Read all units, cluster them and have the clusters described.

        A corpus without extractable facets gives no insights.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall:
                the model cannot take the prompts. None of these has armed anything.
        """
        from tasks.systems.simple_clio.run import ClioRun  # imports torch, which pricing does not need

        run = ClioRun.of(self._typed_parameters(parameters), plan, context)
        context.arm(0, 0)
        return run.generated()

    def _typed_parameters(self, parameters: BaseModel) -> ClioParameters:
        if not isinstance(parameters, ClioParameters):
            raise TypeError(f"parameters of {self.name} are needed, not {type(parameters).__name__}")
        return parameters


def _facts(parameters: ClioParameters) -> dict[str, str]:
    """Return the public parameters for people."""
    return {
        "clusters k": str(parameters.count or f"one for about every {parameters.per_cluster} units"),
        "facets": f"by {parameters.facets.extractor}",
        "embedder": parameters.embedder,
        "summaries told of a cluster": (
            f"{parameters.samples} at random, and {parameters.contrasting} of its nearest outside"
        ),
        "keywords of a cluster": str(parameters.keywords_of_a_cluster),
        "levels": str(parameters.hierarchy.levels),
        "tokens per description": str(parameters.max_new_tokens),
        "temperature": format_decimal(parameters.temperature),
    }
