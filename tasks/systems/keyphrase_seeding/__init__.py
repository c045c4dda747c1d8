"""Keyphrase seeding: texts generated from phrases drawn from a private density (DP-KPS, arXiv 2502.13193).

    vocabulary   phrases to draw from: public, counted, or selected from units     `vocabulary`
    sketches     a noisy density of units' phrases, for each label                 `mechanisms.kde`
    sequences    phrases for every text, by their scores                           `phrases`, post-processing
    texts        a language model is asked for texts that mention them             a text backend, post-processing

Vocabulary and sketches are mechanisms of the registry over the same units; rho adds up (PRIVACY §2). No
private text is ever shown to a language model: a prompt is made of public words and released phrases, so a model behind
an API may be used, and one release gives any number of texts at no further cost.

Where this is not the paper's: sketches are Gaussian, divided by a public number, and of features of norm 1
(PRIVACY §5). A patent application (US 20250200212) covers a similar method.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import BaseModel

from models_db.errors import AlmonerError
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest, format_decimal, parse_model
from tasks.accounting.rounding import decimal_above
from tasks.analysis.keywords.expected_keywords import is_next_to_none
from tasks.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.planning.layout import labels_without_batches, part_facts
from tasks.planning.parameter_choices import Choice, ChoiceInputs
from tasks.planning.shared_parameters import events_of, parent_facts
from tasks.planning.unit_seconds import seconds_per_unit
from tasks.systems.base import System
from tasks.systems.keyphrase_seeding.stages import (
    ABOUT,
    BEHIND,
    FACT,
    MOST_PHRASES,
    NAME,
    KeyphraseParameters,
    KeyphraseShares,
    Stages,
    public_topics,
    with_public_words,
)
from tasks.systems.text_parameter_choices import choose_for_released_values
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.results import Generated, ReleaseKind

_TOKENS_OF_A_PHRASE, _TOKENS_AROUND = 6, 60


VOCABULARY = "vocabulary"


class KeyphraseSeeding(System):
    """The system `keyphrase_seeding`."""

    name: str = NAME
    kinds: tuple[str, ...] = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS)
    parameters: type[BaseModel] = KeyphraseParameters
    shows_private_text = False
    texts_have_blocks = False
    model_sentences = (ABOUT, BEHIND)

    def choose(self, inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
        """Choose texts and n, and public phrases where next to none could be selected from the declared units.

        The vocabulary is selected from the units unless the request says otherwise; where it is chosen to be the
        built-in public topics, the sketches get its share of rho. Errors: those of `choose_for_released_values`.
        """
        choices = choose_for_released_values(self, inputs, fields)
        population = inputs.facts.population
        if "extends" in fields or VOCABULARY in fields or population is None:
            return choices
        chosen = {name: choice.value for name, choice in choices.items()}
        settings = parse_model(KeyphraseParameters, {**fields, **chosen}, f"`parameters` of {self.name}")
        amount = inputs.amount(settings)
        keywords = Stages.of(settings, amount).vocabulary.selecting if amount is not None else None
        if keywords is None or keywords.selecting is None or not is_next_to_none(keywords.selecting, population):
            return choices
        needed = keywords.selecting.selection.even_count()
        reason = f"a phrase selected from the units would need {needed} of the declared {population}"
        choices[VOCABULARY] = Choice({"method": "public", **public_topics()}, f"{reason}; these cost nothing")
        return choices

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Replace the name of a file by the words of its public vocabulary.

        Raises:
            WordsUnreadable, WordsInvalid: the file is missing, or not in its format.
        """
        return request.model_copy(update={"parameters": with_public_words(request.parameters)})

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """Return the delta share of the vocabulary selection; 0 for a public or counted one."""
        settings = _typed_parameters(parameters)
        return Fraction(settings.delta_share) if settings.vocabulary.method == "private" else Fraction(0)

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes: its phrases, for each stage that reads them, as they are used.

        Further texts of a release read no unit.
        """
        settings = _typed_parameters(parameters)
        if settings.extends:
            return 0.0
        stages = 2 if settings.vocabulary.charged else 1
        ranked = 1 + MOST_PHRASES if settings.ranked_by == "embedding" else 0
        sketched = settings.phrases_per_unit
        return seconds_per_unit(settings.embedder, sketched + stages * ranked, "rake")

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy both stages; each is one instalment, charged to every block. Further texts of a release buy nothing.

        Raises:
            UnknownModel, ModelKindMismatch: the embedder is unknown.
            LabelWithoutSample: fewer texts than labels.
            UsageError, Refused: as `Stages.of`.
        """
        settings = _typed_parameters(ask.parameters)
        find(settings.embedder, "embedder")
        amount = ask.amount or Amount()
        labels_without_batches(settings, settings.samples)
        stages = Stages.of(settings, amount)
        return Plan(
            invocations=invoked_once(events_of(settings.extends, stages.events)),
            blocks=tuple(range(ask.blocks)),
            samples=settings.samples,
            facts=_facts(settings, stages, amount, ask.population),
            rows=settings.samples,
            steps=settings.max_new_tokens,
            prompt_tokens=_TOKENS_AROUND + _TOKENS_OF_A_PHRASE * settings.phrases_per_text,
            amount=amount,
            prompts=1 + settings.samples,  # the first checks that the backend answers
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Release a vocabulary and sketches, then generate texts.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            LabelsNotKept: labels are declared, and the version has none.
            ContextTooLong, NoChatTemplate, ControlTokens: the local model cannot take the prompts.
            EndpointFailure: the external model does not answer public words. None of these has armed anything.
            StepLost: an interrupted run has paid for a stage and lost it.
            EndpointFailure, later: an external model stops answering; released values are kept.
        """
        from tasks.systems.keyphrase_seeding.run import KeyphraseRun

        settings = _typed_parameters(parameters)
        stages = Stages.of(settings, plan.amount)
        plan.require_invoking(events_of(settings.extends, stages.events))
        return KeyphraseRun.of(settings, stages, plan, context).generated()


def _typed_parameters(parameters: BaseModel) -> KeyphraseParameters:
    if not isinstance(parameters, KeyphraseParameters):
        raise TypeError(f"parameters of keyphrase seeding are needed, not {type(parameters).__name__}")
    return parameters


def _facts(
    parameters: KeyphraseParameters, stages: Stages, amount: Amount, population: int | None
) -> Mapping[str, str]:
    """Return the public parameters for people."""
    ranked = f", ranked by {parameters.ranked_by}" if parameters.ranked_by != "extractor" else ""
    return {
        **part_facts(parameters),
        **parent_facts(parameters.extends),
        "phrases of a unit L": f"at most {parameters.phrases_per_unit}, by rake{ranked}",
        "phrases of a text": f"{parameters.phrases_per_text}, {parameters.sequences}",
        "embedder": parameters.embedder,
        **stages.vocabulary.facts,
        **stages.vocabulary.expected(population),
        "units of a label n": str(parameters.references),
        "features D": str(parameters.features),
        "bandwidth": format_decimal(parameters.bandwidth),
        "noise of a score": _noise(parameters, stages),
        "scores that count": _counting(parameters),
        **_trade(parameters, amount),
        "phrases are asked for as": FACT,
        "temperature": format_decimal(parameters.temperature),
    }


def _counting(parameters: KeyphraseParameters) -> str:
    above = {"labels": " above the mean of all labels", "median": " above the vocabulary's median", "none": ""}
    least = format_decimal(parameters.least_deviations)
    strongest = f", the strongest {parameters.counting} of a label" if parameters.counting else ""
    return f"from {least} standard deviations of that noise on{above[parameters.subtracted]}{strongest}"


def _noise(parameters: KeyphraseParameters, stages: Stages) -> str:
    deviation = format_decimal(decimal_above(stages.noise(parameters), 6))
    return f"{deviation}; {_relative(parameters, stages)} of what a phrase of 1 % of n units scores"


def _relative(parameters: KeyphraseParameters, stages: Stages) -> str:
    return format_decimal(decimal_above(stages.relative(parameters), 3))


def _trade(parameters: KeyphraseParameters, amount: Amount) -> Mapping[str, str]:
    """Return the effect of the chosen split, and of half and twice the vocabulary's share."""
    if not parameters.vocabulary.charged:
        return {}
    factors = {
        "chosen": Fraction(1),
        "half for the vocabulary": Fraction(1, 2),
        "twice for the vocabulary": Fraction(2),
    }
    return {f"split, {name}": _bought(parameters, amount, times) for name, times in factors.items()}


def _bought(parameters: KeyphraseParameters, amount: Amount, times: Fraction) -> str:
    shares = parameters.shares
    share = Fraction(shares.vocabulary) + Fraction(shares.sketches)
    part = times * Fraction(shares.vocabulary) / share
    if part >= 1:
        return "leaves nothing for the sketches"
    weights = {"vocabulary": decimal_above(part, 6), "sketches": decimal_above(1 - part, 6)}
    other = parameters.model_copy(update={"shares": KeyphraseShares.model_validate(weights)})
    try:
        stages = Stages.of(parameters if times == 1 else other, amount)
    except AlmonerError as problem:
        return f"is not to be had: {problem.message}"
    share_of_vocabulary = f"{float(part):.0%} of rho for the vocabulary: a phrase is in it {stages.vocabulary.needed}"
    return f"{share_of_vocabulary}; noise of a score {_relative(parameters, stages)} of that of a phrase of 1 %"
