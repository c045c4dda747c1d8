"""Keyphrase seeding: texts written from phrases that were drawn from a private density (DP-KPS, arXiv 2502.13193).

    vocabulary   phrases to draw from: public, counted, or selected from units     `vocabulary`
    sketches     a noisy density of units' phrases, for each label                 `mechanisms.kde`
    sequences    phrases for every text, by their scores                           `phrase_sampling`, post-processing
    texts        a language model is asked for texts that mention them             a text backend, post-processing

Vocabulary and sketches are mechanisms of the catalogue over the same units; rho adds up (PRIVACY §2). No private text
is ever shown to a language model: a prompt is made of public words and released phrases, so a model behind an API may
write, and as many texts as anybody wants follow from one release at no further cost.

Where this is not the paper's: sketches are Gaussian, divided by a public number, and of features of norm 1
(PRIVACY §5). A patent application (US 20250200212) covers a similar method.
"""

from collections.abc import Mapping
from fractions import Fraction

from pydantic import BaseModel

from models_db.errors import AlmonerError
from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ReleaseRequest, format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.catalogue.registry import find
from tasks.mechanisms.core.post_processing import PostProcessing
from tasks.planning.labels_and_groups import part_facts
from tasks.prompted_generation.keyphrases.parameters import KeyphraseParameters, KeyphraseShares, with_public_words
from tasks.prompted_generation.keyphrases.prompt import FACT
from tasks.prompted_generation.keyphrases.stages import Stages, layout_of_texts
from tasks.values.generated import Generated
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.release_kinds import ReleaseKind

_TOKENS_OF_A_PHRASE, _TOKENS_AROUND = 6, 60


class KeyphraseSeeding:
    """The system `keyphrase_seeding`."""

    name: str = "keyphrase_seeding"
    kinds: tuple[str, ...] = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS)
    parameters: type[BaseModel] = KeyphraseParameters
    charges = True
    shows_private_text = False

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """With the words of a public vocabulary in place of a file's name.

        Raises:
            WordsUnreadable, WordsInvalid: there is no such file, or it is none.
        """
        return request.model_copy(update={"parameters": with_public_words(request.parameters)})

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """What selecting a vocabulary needs; none for a public or counted one."""
        wanted = _asked(parameters)
        return Fraction(wanted.delta_share) if wanted.vocabulary.method == "private" else Fraction(0)

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy both stages; each is one instalment, charged to every block. What extends a release buys nothing.

        Raises:
            UnknownModel, WrongKind: there is no such embedder.
            LabelWithoutSample: fewer texts than labels.
            UsageError, Refused: as `Stages.of`.
        """
        wanted = _asked(ask.parameters)
        find(wanted.embedder, "embedder")
        amount = ask.amount or Amount()
        layout_of_texts(wanted)
        stages = Stages.of(wanted, amount)
        return Plan(
            invocations=invoked_once(events_of(wanted, stages)),
            blocks=tuple(range(ask.blocks)),
            samples=wanted.samples,
            facts=_facts(wanted, stages, amount),
            rows=wanted.samples,
            steps=wanted.max_new_tokens,
            prompt_tokens=_TOKENS_AROUND + _TOKENS_OF_A_PHRASE * wanted.phrases_per_text,
            amount=amount,
            prompts=1 + wanted.samples,  # the first finds out whether somebody answers
        )

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Release a vocabulary and sketches, then have texts written.

        Raises:
            ModelNotPulled: the embedder is not here.
            LabelsNotKept: labels are declared, and the version has none.
            ContextTooLong, NoChatTemplate, ControlTokens: the local model cannot be asked.
            EndpointFailed: the external model does not answer public words. None of these has armed anything.
            StepLost: an interrupted run has paid for a stage and lost it.
            EndpointFailed, later: an external model answers no more; what was released is kept.
        """
        from tasks.prompted_generation.keyphrases.run import KeyphraseRun

        wanted = _asked(parameters)
        stages = Stages.of(wanted, plan.amount)
        plan.require_invoking(events_of(wanted, stages))
        return KeyphraseRun.of(wanted, stages, plan, bench).generated()


def events_of(wanted: KeyphraseParameters, stages: Stages) -> tuple[PrivacyEvent, ...]:
    """What is invoked: the stages, or post-processing of the release that has paid for them."""
    if wanted.extends is None:
        return stages.events
    return (PostProcessing(wanted.extends.release, total_amount([event.loss for event in stages.events])).event(),)


def _asked(parameters: BaseModel) -> KeyphraseParameters:
    if not isinstance(parameters, KeyphraseParameters):
        raise TypeError(f"parameters of keyphrase seeding are needed, not {type(parameters).__name__}")
    return parameters


def _facts(wanted: KeyphraseParameters, stages: Stages, amount: Amount) -> Mapping[str, str]:
    """The public parameters as people read them."""
    ranked = f", ranked by {wanted.ranked_by}" if wanted.ranked_by != "extractor" else ""
    return {
        **part_facts(wanted),
        **_parent(wanted),
        "phrases of a unit L": f"at most {wanted.phrases_per_unit}, by {wanted.extractor}{ranked}",
        "phrases of a text": f"{wanted.phrases_per_text}, {wanted.sequences}",
        "embedder": wanted.embedder,
        **stages.vocabulary.facts,
        "units of a label n": str(wanted.references),
        "features D": str(wanted.features),
        "bandwidth": format_decimal(wanted.bandwidth),
        "noise of a score": _noise(wanted, stages),
        "scores that count": _counting(wanted),
        **_trade(wanted, amount),
        "phrases are asked for as": FACT,
        "temperature": format_decimal(wanted.temperature),
    }


def _parent(wanted: KeyphraseParameters) -> Mapping[str, str]:
    if (parent := wanted.extends) is None:
        return {}
    return {"extends": f"release {parent.release}, artifact {parent.artifact}; no private text is read"}


def _counting(wanted: KeyphraseParameters) -> str:
    above = {"labels": " above the mean of all labels", "median": " above the vocabulary's median", "none": ""}
    least = format_decimal(wanted.least_deviations)
    strongest = f", the strongest {wanted.counting} of a label" if wanted.counting else ""
    return f"from {least} standard deviations of that noise on{above[wanted.subtracted]}{strongest}"


def _noise(wanted: KeyphraseParameters, stages: Stages) -> str:
    deviation = format_decimal(decimal_above(stages.noise(wanted), 6))
    return f"{deviation}; {_relative(wanted, stages)} of what a phrase of 1 % of n units scores"


def _relative(wanted: KeyphraseParameters, stages: Stages) -> str:
    return format_decimal(decimal_above(stages.relative(wanted), 3))


def _trade(wanted: KeyphraseParameters, amount: Amount) -> Mapping[str, str]:
    """What the chosen split buys, and what half and twice the vocabulary's share would."""
    if not wanted.vocabulary.charged:
        return {}
    asked = {"chosen": Fraction(1), "half for the vocabulary": Fraction(1, 2), "twice for the vocabulary": Fraction(2)}
    return {f"split, {name}": _bought(wanted, amount, times) for name, times in asked.items()}


def _bought(wanted: KeyphraseParameters, amount: Amount, times: Fraction) -> str:
    shares = wanted.shares
    both = Fraction(shares.vocabulary) + Fraction(shares.sketches)
    part = times * Fraction(shares.vocabulary) / both
    if part >= 1:
        return "leaves nothing for the sketches"
    weights = {"vocabulary": decimal_above(part, 6), "sketches": decimal_above(1 - part, 6)}
    other = wanted.model_copy(update={"shares": KeyphraseShares.model_validate(weights)})
    try:
        stages = Stages.of(wanted if times == 1 else other, amount)
    except AlmonerError as problem:
        return f"is not to be had: {problem.message}"
    said = f"{float(part):.0%} of rho for the vocabulary: a phrase is in it {stages.vocabulary.needed}"
    return f"{said}; noise of a score {_relative(wanted, stages)} of that of a phrase of 1 %"
