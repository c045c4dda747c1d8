"""Parameters that systems of texts choose where a request leaves them out: texts, references, length, temperature.

    T     `typical_words` of the public metadata at four tokens for three words, else 64
    tau   0.7, where texts are plainer than at 1 (docs/utility.md)
    n     as many texts as the declared population gives enough units each, so that the private texts move the next word
          strongly (`tasks.planning.influence`), 100 at most
    B     as many references as every text has units, up to those from which nothing is clipped any more: at the same
          rho the clip norm grows as B does, so a reference is the cheapest quality there is

Summaries have the length and the temperature at which their system was measured; how many people write about a group no
declared number says, so their references are not chosen.

Systems that show the model released values (key phrases, the votes of an evolution) charge nothing for a text, so as
many are written as are chosen at most. Their n, by which sums over the units of a label are divided, is the declared
population over the labels.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from pydantic import BaseModel

from models_db.errors import UsageError
from tasks.inference.structured_output.form import form_of
from tasks.inference.structured_output.json_schema import schema_of
from tasks.planning.parameter_choices import (
    CHOSEN_PARAMETERS,
    MOST_SAMPLES,
    Choice,
    ChoiceInputs,
    PublicFacts,
    fit_samples,
    missing_parameters,
    placeholders,
    population_needed,
    probe,
    too_few_units,
)
from tasks.systems.base import System
from tasks.values.results import TEXT_KINDS, ReleaseKind

USUAL_TOKENS = 64
USUAL_TEMPERATURE = Decimal("0.7")
SHORTEST, LONGEST = 16, 512
SUMMARY_TOKENS = 50
"""Length of the summaries that were measured (docs/summaries.md)."""
TOKENS_PER_WORD = Fraction(4, 3)
"""Tokens of an English word, the usual rule of thumb; a public constant."""

Sizes = Callable[[ChoiceInputs, dict[str, Any], list[str]], dict[str, Choice]]
"""Chooses `samples`, `references`, or both: from the inputs, the other parameters, and the names of what is missing."""


def choose_for_texts(
    system: System, inputs: ChoiceInputs, fields: Mapping[str, Any], sizes: Sizes
) -> dict[str, Choice]:
    """Return a choice for each of CHOSEN_PARAMETERS that is left out of a request for texts or summaries.

    Raises:
        FileInvalid, LabelsNeeded, GroupsUnexpected, SchemaNeeded, SchemaUnexpected: the other parameters do not fit the
            system or the kind.
        LengthNeeded: `max_new_tokens` is left out, and a schema or a form decides how long texts are.
        PopulationNeeded: `samples` or `references` depends on a population, and none is declared.
        TooFewUnits: the declared population is smaller than the number of texts.
        BudgetTooSmall: the amount buys no draw.
    """
    missing = missing_parameters(system.parameters, fields)
    if inputs.kind == ReleaseKind.SUMMARIES:
        return _choose_for_summaries(system, inputs, fields, missing)
    if not missing or inputs.kind not in TEXT_KINDS:
        return {}
    choices: dict[str, Choice] = {}
    settings = probe(system.name, system.parameters, inputs.kind, fields, missing)
    if "max_new_tokens" in missing:
        choices["max_new_tokens"] = _length(inputs.facts, settings)
    if "temperature" in missing:
        choices["temperature"] = Choice(USUAL_TEMPERATURE, "at which texts are plainer than at 1 (docs/utility.md)")
    if "samples" in missing or "references" in missing:
        chosen = {name: choice.value for name, choice in choices.items()}
        choices |= sizes(inputs, {**placeholders(missing), **fields, **chosen}, missing)
    return {name: choices[name] for name in CHOSEN_PARAMETERS if name in choices}


def _choose_for_summaries(
    system: System, inputs: ChoiceInputs, fields: Mapping[str, Any], missing: list[str]
) -> dict[str, Choice]:
    """Choose the length and the temperature with which the summaries of a system were measured."""
    missing = [name for name in missing if name in ("max_new_tokens", "temperature")]
    if not missing:
        return {}
    settings = probe(system.name, system.parameters, inputs.kind, fields, missing)
    choices: dict[str, Choice] = {}
    if "max_new_tokens" in missing:
        _require_free_length(settings)
        most = _most_tokens(inputs.facts)
        within = "" if most >= SUMMARY_TOKENS else f", within {most}, a quarter of the model's context"
        measured = f"the length of the summaries that were measured (docs/summaries.md){within}"
        choices["max_new_tokens"] = Choice(min(SUMMARY_TOKENS, most), measured)
    if "temperature" in missing and system.summary_temperature is not None:
        measured = "at which summaries by this system were measured (docs/summaries.md)"
        choices["temperature"] = Choice(system.summary_temperature, measured)
    return choices


def choose_for_released_values(
    system: System,
    inputs: ChoiceInputs,
    fields: Mapping[str, Any],
    samples: Callable[[BaseModel, int], Choice] | None = None,
) -> dict[str, Choice]:
    """Choose the texts and n of a system that shows the model released values.

    A request that extends a release has those of that release.

    Args:
        samples: chooses the texts from the other parameters and the number of labels; by default as many as are chosen
            at most.

    Raises:
        FileInvalid, LabelsNeeded, GroupsUnexpected: the other parameters do not fit the system or the kind.
        PopulationNeeded: `references` is left out, and no population is declared.
        TooFewUnits: the declared population is smaller than the number of labels.
    """
    if "extends" in fields:
        return {}
    missing = missing_parameters(system.parameters, fields)
    settings = probe(system.name, system.parameters, inputs.kind, fields, missing)
    cells = max(1, len(getattr(settings, "labels", ())))
    population, choices = inputs.facts.population, {}
    if "samples" in missing:
        choices["samples"] = free_samples(cells) if samples is None else samples(settings, cells)
    if "references" in missing:
        if population is None:
            raise population_needed(["references"])
        if population < cells:
            raise too_few_units(population, cells)
        of_labels = f" over {cells} labels" if cells > 1 else ""
        choices["references"] = Choice(population // cells, f"the declared {population} units{of_labels}")
    return choices


def free_samples(cells: int) -> Choice:
    """Choose as many texts as there are at most: they cost no epsilon."""
    most = fit_samples(MOST_SAMPLES, MOST_SAMPLES, cells)
    return Choice(most, "the texts themselves cost no epsilon; a request may name more")


def _require_free_length(settings: BaseModel) -> None:
    if form_of(settings) is not None or schema_of(settings) is not None:
        raise UsageError(
            "The request leaves `max_new_tokens` out, and its texts follow a schema or a form, which decides how long"
            " they are.",
            "Write `max_new_tokens` into `parameters`: as many tokens as the longest text needs.",
            code="LengthNeeded",
        )


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
