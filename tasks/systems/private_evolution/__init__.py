"""Private evolution of texts (AugPE; Xie et al., "Differentially Private Synthetic Data via Foundation Model APIs 2:
Text", ICML 2024, Algorithm 1).

    candidates   a language model writes texts of the described kind, for each label   public words alone
    votes        every unit votes for its nearest candidate; counts bear noise         a mechanism, once a round
    selection    candidates with the most votes stay                                   post-processing
    variations   the model rewords selected candidates for the next round              post-processing

Each round is one noisy histogram of the same units. One vote is cast over the candidates of all labels together, so
adding or removing a unit moves one count by one, whatever the number of labels or of its documents: rho is
rounds / (2 sigma^2) (PRIVACY §4.3). Sigma is calibrated for the whole schedule before the first round, and a request's
schedule is fixed: further rounds are another request with a charge of its own. No private text is ever shown to the
language model: a prompt is made of public words, or of one candidate.

Where this is not the paper's: votes are counted with the discrete Gaussian; one vote a unit, not a record; selected
texts stay unchanged beside their rewordings; the paper's lookahead, which judges a candidate by texts not written yet,
is left out.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from pydantic import BaseModel

from models_db.values.amounts import Amount
from models_db.values.requests import format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.planning.layout import part_facts
from tasks.planning.parameter_choices import MOST_SAMPLES, Choice, ChoiceInputs, fit_samples
from tasks.planning.unit_seconds import seconds_per_unit
from tasks.systems.base import System
from tasks.systems.private_evolution.schedule import NAME, VARIATION, WAYS, EvolutionParameters, Schedule, Sizes
from tasks.systems.text_parameter_choices import choose_for_released_values, free_samples
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.results import Generated, ReleaseKind

_TOKENS_AROUND = 60


class PrivateEvolution(System):
    """The system `private_evolution`."""

    name: str = NAME
    kinds: tuple[str, ...] = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS)
    parameters: type[BaseModel] = EvolutionParameters
    shows_private_text = False
    texts_have_blocks = False

    def choose(self, inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
        """Choose texts and n, no more texts than the votes can tell apart; errors of `choose_for_released_values`."""
        return choose_for_released_values(self, inputs, fields, partial(_distinct_samples, inputs))

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes: the embedding of its text."""
        return seconds_per_unit(_typed_parameters(parameters).embedder)

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy all rounds; each is charged to every block at once.

        Raises:
            UnknownModel, ModelKindMismatch: the embedder is unknown.
            LabelWithoutSample: fewer texts than labels.
            NoiseInvalid, BinsInvalid: as `Schedule.of`.
        """
        settings = _typed_parameters(ask.parameters)
        find(settings.embedder, "embedder")
        amount, sizes = ask.amount or Amount(), Sizes.planned(settings)
        schedule = Schedule.of(settings, amount)
        return Plan(
            invocations=invoked_once(schedule.events),
            blocks=tuple(range(ask.blocks)),
            samples=settings.samples,
            facts=_facts(sizes, schedule, ask.population),
            rows=sizes.prompts,
            steps=settings.max_new_tokens,
            prompt_tokens=_TOKENS_AROUND + (settings.max_new_tokens if settings.rounds > 1 else 0),
            amount=amount,
            prompts=sizes.prompts,
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Let units vote round by round, and return the texts of the last selection.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            LabelsNotKept: labels are declared, and the version has none.
            ContextTooLong, NoChatTemplate, ControlTokens: the local model cannot take the prompts. None of these has
                armed anything.
            StepLost: an interrupted run has paid for a round and lost it.
            EndpointFailure: an external model does not answer; finished votes are kept.
        """
        from tasks.systems.private_evolution.run import EvolutionRun  # imports torch, which pricing does not need

        settings = _typed_parameters(parameters)
        schedule = Schedule.of(settings, plan.amount)
        plan.require_invoking(schedule.events)
        return EvolutionRun.of(settings, schedule, plan, context).generated()


def _distinct_samples(inputs: ChoiceInputs, settings: BaseModel, cells: int) -> Choice:
    """Choose as many texts as there are at most, and no more than the votes can tell apart.

    Every unit has one vote among all candidates: with more candidates, one has fewer votes on average than sigma, the
    standard deviation of their noise (docs/private-evolution.md).

    Raises:
        NoiseInvalid: the amount does not buy the votes.
    """
    population, amount = inputs.facts.population, inputs.amount(settings)
    if population is None or amount is None:
        return free_samples(cells)
    typed = _typed_parameters(settings)
    most = fit_samples(MOST_SAMPLES, MOST_SAMPLES, cells)
    sigma = float(Schedule.of(typed.model_copy(update={"samples": most}), amount).histogram.noise.sigma)
    distinct = int(population / (typed.variations * sigma))
    if distinct >= MOST_SAMPLES:
        return free_samples(cells)
    reason = f"so that a candidate has {sigma:.3g} votes of the declared {population} units, as many as noise is wide"
    return Choice(fit_samples(distinct, MOST_SAMPLES, cells), reason)


def _typed_parameters(parameters: BaseModel) -> EvolutionParameters:
    if not isinstance(parameters, EvolutionParameters):
        raise TypeError(f"parameters of private evolution are needed, not {type(parameters).__name__}")
    return parameters


def _facts(sizes: Sizes, schedule: Schedule, population: int | None) -> Mapping[str, str]:
    """Return the public parameters for people."""
    parameters = sizes.parameters
    if parameters.labels:
        of_label, kept = f", {sizes.candidates[0]} of each label", f", {sizes.kept[0]} of each label"
    else:
        of_label, kept = "", ""
    selected = f"{sum(sizes.kept)}{kept}"
    threshold = f", of counts above {parameters.threshold}" if parameters.threshold else ""
    return {
        **part_facts(parameters),
        "rounds": str(parameters.rounds),
        "votes": "one of each unit in each round, over all labels together",
        "candidates of a round": f"{sizes.bins}{of_label}",
        "selected after a round": f"{selected}, by {parameters.selection}{threshold}",
        "candidates of a selected text": f"{parameters.variations}, itself among them",
        "candidates are reworded as": " ".join(VARIATION.split()),
        "ways of rewording": "; ".join(WAYS),
        "prompts in all": f"at most {sizes.prompts}",
        "noise of a count (sigma)": _noise(sizes, schedule, population),
        "embedder": parameters.embedder,
        "tokens per text": str(parameters.max_new_tokens),
        "temperature": format_decimal(parameters.temperature),
    }


def _noise(sizes: Sizes, schedule: Schedule, population: int | None) -> str:
    sigma = f"{format_decimal(decimal_above(schedule.histogram.noise.sigma, 2))} votes"
    if population is None:
        return f"{sigma}; how many units vote is not declared"
    expected = format_decimal(decimal_above(Fraction(population, sizes.bins), 2))
    return f"{sigma}; a candidate has {expected} on average if {population} units vote"
