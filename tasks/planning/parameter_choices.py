"""Choice of parameters that a request leaves out: what it may depend on, and what its rules share.

Parameters are chosen once, when the request is priced, from what is public: the declared population, the blocks, the
declared typical length, the labels, epsilon and delta, and the model's context. No text and no count of the corpus is
read. The chosen values become part of the request that is stored and approved, so pricing it again chooses nothing.
Each system chooses its own (`tasks.systems.base.System.choose`).
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
from tasks.inference.structured_output.json_schema import require_schema_for
from tasks.planning.influence import clip_norm_of
from tasks.planning.layout import batches_per_cell, require_parts_for

CHOSEN_PARAMETERS = ("samples", "references", "max_new_tokens", "temperature")
"""Parameters that a request for texts may leave out."""
MOST_SAMPLES = 100
"""Most texts that are chosen; a request may name more."""
MOST_TOKENS = 100_000
"""Tokens that a request may name at most."""
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

    kind: str
    facts: PublicFacts
    amount: Callable[[BaseModel], Amount | None]


def missing_parameters(model: type[BaseModel], fields: Mapping[str, Any]) -> list[str]:
    """Return those of CHOSEN_PARAMETERS that a model of parameters needs and `fields` leaves out."""
    needed = {name for name, field in model.model_fields.items() if field.is_required()} - fields.keys()
    return [name for name in CHOSEN_PARAMETERS if name in needed]


def probe(name: str, model: type[BaseModel], kind: str, fields: Mapping[str, Any], missing: list[str]) -> BaseModel:
    """Return the parameters of a request with placeholders for those that are missing, checked against its kind.

    Args:
        name: of the system, for the errors.

    Raises:
        FileInvalid, LabelsNeeded, GroupsUnexpected, SchemaNeeded, SchemaUnexpected: the other parameters do not fit the
            system or the kind.
    """
    settings = parse_model(model, {**placeholders(missing), **fields}, f"`parameters` of {name}")
    require_parts_for(kind, settings)
    require_schema_for(kind, settings)
    return settings


def placeholders(missing: list[str]) -> dict[str, Any]:
    """Return valid values in the place of those that are not chosen yet."""
    values = {
        "samples": 1,
        "references": PROBE_REFERENCES,
        "max_new_tokens": MOST_TOKENS,
        "temperature": Decimal(1),
    }
    return {name: values[name] for name in missing}


def fit_samples(wanted: int, most: int, cells: int) -> int:
    """Return a number of texts, the same for every block and label where there are enough, and at least one each."""
    chosen = min(wanted, most)
    return max(cells, chosen - chosen % cells)


def units_per_text(population: int, samples: int, cells: int, batches: int | None = None) -> int:
    """Return the expected number of units behind a text, rounded down.

    Args:
        cells: blocks times labels, each of which is split into batches (`tasks.planning.layout`).
        batches: the declared number of batches of each, where a request declares one.
    """
    return population // (cells * batches_per_cell(samples, cells, batches))


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


def population_needed(names: list[str]) -> UsageError:
    """Return the error of a request without a parameter that only a declared population can decide."""
    which = " and ".join(f"`{name}`" for name in names)
    return UsageError(
        f"The request leaves {which} out, and the dataset declares no population to choose from.",
        f"Write {which} into `parameters`. A public number of units is declared when a dataset is registered:"
        " `almoner dataset register NAME ... --population N`.",
        {"parameters": names},
        code="PopulationNeeded",
    )


def too_few_units(population: int, samples: int) -> UsageError:
    """Return the error of a dataset with fewer declared units than texts."""
    return UsageError(
        f"{samples} texts need at least {samples} units, and the dataset declares {population}.",
        "Ask for fewer texts, or declare fewer labels; `almoner plan DATASET` shows what fits.",
        {"population": population, "samples": samples},
        code="TooFewUnits",
    )
