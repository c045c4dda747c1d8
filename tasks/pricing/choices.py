"""Parameters that almoner chooses where a request leaves them out: texts, references, length, temperature; vocabulary.

They are chosen once, when the request is priced, from what is public: the declared population, the blocks, the declared
typical length, the labels, epsilon and delta, and the model's context. No text and no count of the corpus is read. The
chosen values become part of the request that is stored and approved, so pricing it again chooses nothing.

    T     `typical_words` of the public metadata at four tokens for three words, else 64
    tau   0.7, where texts are plainer than at 1 (docs/utility.md)
    n     as many texts as the declared population gives enough units each, so that the private texts move the next word
          strongly (`tasks.pricing.influence`), 100 at most
    B     as many references as every text has units, up to those from which nothing is clipped any more: at the same
          rho the clip norm grows as B does, so a reference is the cheapest quality there is

Summaries have the length and the temperature at which their system was measured; how many people write about a group no
declared number says, so their references are not chosen.

Systems that show the model released values (key phrases, the votes of an evolution) charge nothing
for a text, so as many are written as are chosen at most; an evolution has fewer where votes are few. Their n, by which
sums over the units of a label are divided, is the declared population over the labels. The vocabulary of
`keyphrase_seeding` is selected from the units; where the declared population is so small that next to no phrase could
be, it is chosen to be the built-in public topics, and the sketches get its share of rho.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from pydantic import BaseModel

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.requests import parse_model
from tasks.analysis.keywords.expected_keywords import is_next_to_none
from tasks.inference.structured_output.form_parameters import form_of
from tasks.inference.structured_output.schema_parameters import require_schema_for, schema_of
from tasks.planning.batches import batches_per_cell
from tasks.planning.labels_and_groups import require_parts_for
from tasks.pricing.influence import clip_norm_of, level_named, levels_of
from tasks.systems.baselines import BaselineParameters
from tasks.systems.keyphrase_seeding.parameters import KeyphraseParameters, public_topics
from tasks.systems.keyphrase_seeding.stages import Stages
from tasks.systems.private_decoding import ChargedSystem, PrivateDecodingParameters
from tasks.systems.private_evolution.parameters import EvolutionParameters
from tasks.systems.private_evolution.schedule import Schedule
from tasks.values.plan import Generator
from tasks.values.release_kinds import TEXT_KINDS, ReleaseKind

VOCABULARY = "vocabulary"
CHOSEN_PARAMETERS = ("samples", "references", "max_new_tokens", "temperature")
"""Parameters that a request for texts may leave out."""
MOST_SAMPLES = 100
"""Most texts that are chosen; a request may name more."""
BASELINE_SAMPLES = 20
USUAL_TOKENS = 64
USUAL_TEMPERATURE = Decimal("0.7")
SHORTEST, LONGEST = 16, 512
SUMMARY_TOKENS = 50
SUMMARY_TEMPERATURES = {
    "token_level_summary": Decimal("0.1"),
    "one_shot_summary": Decimal("0.3"),
    "invisible_ink": Decimal("0.4"),
    "public_only": Decimal("0.1"),
    "non_private": Decimal("0.1"),
}
"""Length and temperatures of the summaries that were measured (docs/summaries.md), by system."""
MOST_TOKENS = 100_000
"""Tokens that a request may name at most."""
TOKENS_PER_WORD = Fraction(4, 3)
"""Tokens of an English word, the usual rule of thumb; a public constant."""
USUAL_REFERENCES = 8
"""References of a system whose clip norm is not measured."""
PROBE_REFERENCES = 8


@dataclass(frozen=True)
class PublicFacts:
    """Public facts of a dataset and a model from which parameters are chosen.

    Attributes:
        population: declared number of units that the request reads.
        blocks: number of blocks that the request reads.
        typical_words: declared usual number of words of a unit's text.
        context: most tokens that a row of the model holds.
    """

    population: int | None
    blocks: int
    typical_words: int | None = None
    context: int | None = None


@dataclass(frozen=True)
class Choice:
    """A chosen value, and its reason in a few words."""

    value: int | Decimal | Mapping[str, Json]
    reason: str


@dataclass(frozen=True)
class ChoiceInputs:
    """Inputs of the choice of parameters for one request.

    Attributes:
        amount: the loss that the texts of a request with these parameters may spend; None if a system spends nothing.
    """

    system: Generator[Any]
    kind: str
    facts: PublicFacts
    amount: Callable[[BaseModel], Amount | None]


def choose_parameters(inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
    """Return a choice for each of CHOSEN_PARAMETERS, or the vocabulary, that is left out and has to be chosen.

    Args:
        fields: the request's `parameters`.

    Raises:
        FileInvalid, LabelsNeeded, GroupsUnexpected, SchemaNeeded, SchemaUnexpected: the other parameters do not fit the
            mechanism or the kind.
        LengthNeeded: `max_new_tokens` is left out, and a schema or a form decides how long texts are.
        PopulationNeeded: `samples` or `references` depends on a population, and none is declared.
        TooFewUnits: the declared population is smaller than the number of texts.
        BudgetTooSmall: the amount buys no draw.
        NoiseInvalid: nor does it buy the votes of an evolution.
    """
    model = inputs.system.parameters
    missing = [name for name in CHOSEN_PARAMETERS if name not in fields and _is_needed(model, name)]
    if issubclass(model, _SEEDED):
        return _seeded(inputs, fields, missing)
    if not issubclass(model, _DECODING):
        return {}
    if inputs.kind == ReleaseKind.SUMMARIES:
        return _summary(inputs, fields, missing)
    if not missing or inputs.kind not in TEXT_KINDS:
        return {}
    choices: dict[str, Choice] = {}
    probe = _probe(inputs, fields, missing)
    if "max_new_tokens" in missing:
        choices["max_new_tokens"] = _length(inputs.facts, probe)
    if "temperature" in missing:
        choices["temperature"] = Choice(USUAL_TEMPERATURE, "at which texts are plainer than at 1 (docs/utility.md)")
    if "samples" in missing or "references" in missing:
        filled = {**_placeholders(missing), **fields, **{name: choice.value for name, choice in choices.items()}}
        choices |= _sizes(inputs, filled, missing)
    return {name: choices[name] for name in CHOSEN_PARAMETERS if name in choices}


def _probe(inputs: ChoiceInputs, fields: Mapping[str, Any], missing: list[str]) -> BaseModel:
    """Return the request's parameters with placeholders for those that are missing, checked against the kind."""
    probe = parse_model(
        inputs.system.parameters, {**_placeholders(missing), **fields}, f"`parameters` of {inputs.system.name}"
    )
    require_parts_for(inputs.kind, probe)
    require_schema_for(inputs.kind, probe)
    return probe


def _summary(inputs: ChoiceInputs, fields: Mapping[str, Any], missing: list[str]) -> dict[str, Choice]:
    """Choose the length and the temperature with which the summaries of a system were measured."""
    missing = [name for name in missing if name in ("max_new_tokens", "temperature")]
    if not missing:
        return {}
    probe = _probe(inputs, fields, missing)
    choices: dict[str, Choice] = {}
    if "max_new_tokens" in missing:
        _require_free_length(probe)
        most = _most_tokens(inputs.facts)
        within = "" if most >= SUMMARY_TOKENS else f", within {most}, a quarter of the model's context"
        measured = f"the length of the summaries that were measured (docs/summaries.md){within}"
        choices["max_new_tokens"] = Choice(min(SUMMARY_TOKENS, most), measured)
    if "temperature" in missing:
        measured = "at which summaries by this system were measured (docs/summaries.md)"
        choices["temperature"] = Choice(SUMMARY_TEMPERATURES[inputs.system.name], measured)
    return choices


def _seeded(inputs: ChoiceInputs, fields: Mapping[str, Any], missing: list[str]) -> dict[str, Choice]:
    """Choose the texts, n and the vocabulary of a system that shows the model released values.

    A request that extends a release has those of that release.
    """
    if "extends" in fields:
        return {}
    model, population = inputs.system.parameters, inputs.facts.population
    probe = parse_model(model, {**_placeholders(missing), **fields}, f"`parameters` of {inputs.system.name}")
    require_parts_for(inputs.kind, probe)
    cells = max(1, len(getattr(probe, "labels", ())))
    choices: dict[str, Choice] = {}
    if "samples" in missing:
        choices["samples"] = _seeded_samples(inputs, probe, cells)
    if "references" in missing:
        if population is None:
            raise PopulationNeeded(["references"])
        if population < cells:
            raise TooFewUnits(population, cells)
        of_labels = f" over {cells} labels" if cells > 1 else ""
        choices["references"] = Choice(population // cells, f"the declared {population} units{of_labels}")
    if issubclass(model, KeyphraseParameters):
        chosen = {name: choice.value for name, choice in choices.items()}
        choices |= _vocabulary(inputs, {**fields, **chosen})
    return choices


def _seeded_samples(inputs: ChoiceInputs, settings: BaseModel, cells: int) -> Choice:
    """Choose as many texts as there are at most; of an evolution, no more than its votes can tell apart.

    Every unit has one vote among all candidates: with more candidates, one has fewer votes on average than sigma, the
    standard deviation of their noise (docs/private-evolution.md).
    """
    most = fit_samples(MOST_SAMPLES, MOST_SAMPLES, cells)
    free = Choice(most, "the texts themselves cost no epsilon; a request may name more")
    population, amount = inputs.facts.population, inputs.amount(settings)
    if not isinstance(settings, EvolutionParameters) or population is None or amount is None:
        return free
    schedule = Schedule.of(settings.model_copy(update={"samples": most}), amount)
    sigma = float(schedule.histogram.noise.sigma)
    distinct = int(population / (settings.variations * sigma))
    if distinct >= MOST_SAMPLES:
        return free
    reason = f"so that a candidate has {sigma:.3g} votes of the declared {population} units, as many as noise is wide"
    return Choice(fit_samples(distinct, MOST_SAMPLES, cells), reason)


def _vocabulary(inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
    """Choose public phrases where next to none could be selected from the declared units; else nothing."""
    population = inputs.facts.population
    if VOCABULARY in fields or population is None:
        return {}
    settings = parse_model(KeyphraseParameters, fields, f"`parameters` of {inputs.system.name}")
    amount = inputs.amount(settings)
    keywords = Stages.of(settings, amount).vocabulary.selecting if amount is not None else None
    if keywords is None or keywords.selecting is None or not is_next_to_none(keywords.selecting, population):
        return {}
    needed = keywords.selecting.selection.even_count()
    reason = f"a phrase selected from the units would need {needed} of the declared {population}; these cost nothing"
    return {VOCABULARY: Choice({"method": "public", **public_topics()}, reason)}


_DECODING = (PrivateDecodingParameters, BaselineParameters)
_SEEDED = (KeyphraseParameters, EvolutionParameters)


def _is_needed(model: type[BaseModel], name: str) -> bool:
    return name in model.model_fields and model.model_fields[name].is_required()


def _placeholders(missing: list[str]) -> dict[str, Any]:
    """Valid values in the place of those that are not chosen yet."""
    values = {
        "samples": 1,
        "references": PROBE_REFERENCES,
        "max_new_tokens": MOST_TOKENS,
        "temperature": Decimal(1),
    }
    return {name: values[name] for name in missing}


def _require_free_length(settings: BaseModel) -> None:
    if form_of(settings) is not None or schema_of(settings) is not None:
        raise LengthNeeded


def _most_tokens(facts: PublicFacts) -> int:
    """Return the most tokens that are chosen for a text."""
    return LONGEST if facts.context is None else max(SHORTEST, min(LONGEST, facts.context // 4))


def _length(facts: PublicFacts, settings: BaseModel) -> Choice:
    _require_free_length(settings)
    most = _most_tokens(facts)
    if facts.typical_words is None:
        return Choice(min(USUAL_TOKENS, most), "the usual length: no `typical_words` is declared")
    tokens = 8 * ceil(facts.typical_words * TOKENS_PER_WORD / 8)
    chosen = min(max(tokens, SHORTEST), most)
    reason = f"from the declared {facts.typical_words} words at 4 tokens for 3"
    return Choice(chosen, reason if chosen == tokens else f"{reason}, within {SHORTEST} to {most}")


def _sizes(inputs: ChoiceInputs, filled: dict[str, Any], missing: list[str]) -> dict[str, Choice]:
    """Choose `samples`, `references`, or both."""
    settings = parse_model(inputs.system.parameters, filled, f"`parameters` of {inputs.system.name}")
    cells = inputs.facts.blocks * max(1, len(getattr(settings, "labels", ())))
    if not isinstance(settings, PrivateDecodingParameters):
        return {"samples": _baseline_samples(inputs, cells)}
    population = inputs.facts.population
    if population is None:
        raise PopulationNeeded([name for name in ("samples", "references") if name in missing])
    strong, full = useful_references(inputs.system, settings, inputs.amount(settings))
    choices = {}
    samples = settings.samples
    if "samples" in missing:
        each = strong if "references" in missing else settings.references
        samples = fit_samples(population // each, MOST_SAMPLES, cells)
        choices["samples"] = Choice(samples, _samples_reason(samples, population, each))
    if "references" in missing:
        units = units_per_text(population, samples, cells, settings.batches)
        if units < 1:
            raise TooFewUnits(population, samples)
        chosen = min(units, full)
        why = f"each text has about {units} of the declared {population} units"
        more = "" if units <= full else "; more references would add next to nothing"
        choices["references"] = Choice(chosen, why + more)
    return choices


def _samples_reason(samples: int, population: int, references: int) -> str:
    if samples * references <= population:
        most = " at most" if samples < MOST_SAMPLES else f", {MOST_SAMPLES} at most"
        return f"{references} references each from the declared {population} units{most}"
    return f"one for each block and label; the declared {population} units are few"


def _baseline_samples(inputs: ChoiceInputs, cells: int) -> Choice:
    chosen = fit_samples(BASELINE_SAMPLES, max(BASELINE_SAMPLES, cells), cells)
    return Choice(chosen, f"enough to compare with; {inputs.system.name} claims no privacy")


def fit_samples(wanted: int, most: int, cells: int) -> int:
    """Return a number of texts, the same for every block and label where there are enough, and at least one each."""
    chosen = min(wanted, most)
    return max(cells, chosen - chosen % cells)


def units_per_text(population: int, samples: int, cells: int, batches: int | None = None) -> int:
    """Return the expected number of units behind a text, rounded down.

    Args:
        cells: blocks times labels, each of which is split into batches (`tasks.planning.batches`).
        batches: the declared number of batches of each, where a request declares one.
    """
    return population // (cells * batches_per_cell(samples, cells, batches))


def useful_references(
    system: Generator[Any], settings: PrivateDecodingParameters, amount: Amount | None
) -> tuple[int, int]:
    """Return the references from which on the private texts move the next word strongly, and fully.

    Both are USUAL_REFERENCES for a system that charges nothing, or whose clip norm was not measured.

    Raises:
        BudgetTooSmall: the amount buys no draw.
    """
    levels = levels_of(system.name, getattr(settings, "clipping", None))
    strong = level_named(levels, "strongly")
    if amount is None or strong is None:
        return USUAL_REFERENCES, USUAL_REFERENCES
    full = level_named(levels, "almost fully") or strong
    if not isinstance(system, ChargedSystem):
        raise TypeError(f"{system.name} has no clip norm")
    probe = settings.model_copy(update={"references": PROBE_REFERENCES})
    slope = clip_norm_per_reference(system.calibrate(amount.rho, probe).facts)
    return references_for(strong.clip_norm, slope), references_for(full.clip_norm, slope)


def references_for(clip_norm: Decimal, slope: Fraction) -> int:
    """Return the fewest references that buy a clip norm, given the clip norm that one reference buys."""
    return min(max(1, ceil(Fraction(clip_norm) / slope)), 100_000)


def clip_norm_per_reference(facts: Mapping[str, str]) -> Fraction:
    """Return the clip norm that each reference buys, from the facts of a plan with PROBE_REFERENCES of them.

    Clip norms are proportional to B (PRIVACY §4.1); they are whole steps of a grid and are rounded up for people, so
    the quotient is taken a little lower than it is.
    """
    norm = clip_norm_of(facts)
    if norm is None:
        raise TypeError("the plan states no clip norm")
    return max(Fraction(norm) - Fraction(1, 10**4), Fraction(norm) / 2) / PROBE_REFERENCES


class LengthNeeded(UsageError):
    """No `max_new_tokens` for texts whose length a schema or a form decides."""

    def __init__(self) -> None:
        super().__init__(
            "The request leaves `max_new_tokens` out, and its texts follow a schema or a form, which decides how long"
            " they are.",
            "Write `max_new_tokens` into `parameters`: as many tokens as the longest text needs.",
        )


class PopulationNeeded(UsageError):
    """A request omits a parameter that only a declared population can decide."""

    def __init__(self, names: list[str]) -> None:
        which = " and ".join(f"`{name}`" for name in names)
        super().__init__(
            f"The request leaves {which} out, and the dataset declares no population to choose from.",
            f"Write {which} into `parameters`. A public number of units is declared when a dataset is registered:"
            " `almoner dataset register NAME ... --population N`.",
            {"parameters": names},
        )


class TooFewUnits(UsageError):
    """Fewer declared units than texts."""

    def __init__(self, population: int, samples: int) -> None:
        super().__init__(
            f"{samples} texts need at least {samples} units, and the dataset declares {population}.",
            "Ask for fewer texts, or declare fewer labels; `almoner plan DATASET` shows what fits.",
            {"population": population, "samples": samples},
        )
