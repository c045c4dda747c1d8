"""SIMPLE-CLIO: the reference that insights are compared with, without any protection (Liu et al., Algorithm 4).

Summaries of units are embedded and put into clusters by plain k-means. The model describes each cluster from summaries
of some of its units, and of the nearest units outside to tell it from its neighbours (appendix G.2); sizes and keywords
are exact. Clusters are put under wider topics as URANIA's are. What the model reads here are private texts, so it is
for data that is public: on governed data it is refused, and of its release nothing is claimed.
"""

from pydantic import BaseModel

from models_db.values.requests import format_decimal
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.insights.clio.parameters import ClioParameters
from tasks.mechanisms.core.uncharged import uncharged
from tasks.values.generated import Generated
from tasks.values.plan import GeneratorDefaults, NotForGovernedData, Plan, PlanInputs, invoked_once
from tasks.values.release_kinds import ReleaseKind


class SimpleClio(GeneratorDefaults):
    """The system `simple_clio`."""

    name: str = "simple_clio"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = ClioParameters
    charges = False

    def plan(self, ask: PlanInputs) -> Plan:
        """A plan without any guarantee.

        Raises:
            NotForGovernedData: the dataset is not marked public.
            UnknownModel, WrongKind: there is no such embedder.
        """
        if ask.governed:
            raise NotForGovernedData(self.name)
        wanted = self._asked(ask.parameters)
        find(wanted.embedder, "embedder")
        extracted = (ask.population or 0) if wanted.facets.extractor == "model" else 0
        clusters = wanted.clusters_of(ask.population or 0)
        return Plan(
            invocations=invoked_once([uncharged(self.name)]),
            blocks=tuple(range(ask.blocks)),
            samples=clusters,
            facts=_facts(wanted),
            rows=clusters + extracted,
            steps=wanted.facets.max_new_tokens if extracted else wanted.max_new_tokens,
            prompt_tokens=wanted.facets.max_text_tokens,
        )

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Read all units, cluster them and have the clusters described.

        A corpus of which nothing can be extracted makes no insights.

        Raises:
            ModelNotPulled: the embedder is not here.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, NoEnd, TokenLimitTooSmall: the model cannot do what
                is asked of it. None of these has armed anything.
        """
        from tasks.insights.clio.run import ClioRun  # torch; pricing does without

        run = ClioRun.of(self._asked(parameters), plan, bench)
        bench.arm(0, 0)
        return run.generated()

    def _asked(self, parameters: BaseModel) -> ClioParameters:
        if not isinstance(parameters, ClioParameters):
            raise TypeError(f"parameters of {self.name} are needed, not {type(parameters).__name__}")
        return parameters


def _facts(wanted: ClioParameters) -> dict[str, str]:
    """The public parameters as people read them."""
    return {
        "clusters k": str(wanted.count or f"one for about every {wanted.per_cluster} units"),
        "facets": f"by {wanted.facets.extractor}",
        "embedder": wanted.embedder,
        "summaries told of a cluster": f"{wanted.samples} at random, and {wanted.contrasting} of its nearest outside",
        "keywords of a cluster": str(wanted.keywords_of_a_cluster),
        "levels": str(wanted.hierarchy.levels),
        "tokens per description": str(wanted.max_new_tokens),
        "temperature": format_decimal(wanted.temperature),
    }
