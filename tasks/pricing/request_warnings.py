"""Warnings of a request: its model does not fit this machine, or little can come of its settings.

Warning of a request whose model is too large for this machine's memory. It is no refusal: the machine that prices is
often not the one that runs. A run on a machine that is too small ends before anything is held (`ModelTooLarge`).
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from tasks.inference.catalogue.model_check import PRECISIONS, ModelCheck, RowSizes
from tasks.planning.influence import Influence, influence_of
from tasks.planning.layout import batches_per_cell
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import WARNING

LEAST_ROWS: Final = RowSizes(references=0)
"""Sizes of a system whose parameters name none: one row."""


def memory_warning(
    check: ModelCheck | None, parameters: Mapping[str, object], machine: str = "this machine"
) -> str | None:
    """Return a sentence where the weights and one text need more memory than the machine has; None where they fit.

    Args:
        check: of a model of this machine; None of others.
        parameters: of the request; all of them are public.
        machine: the machine of the check, in words.
    """
    if check is None or check.machine is None:
        return None
    sizes = RowSizes.of(parameters, LEAST_ROWS)
    asked = parameters.get("precision", "float32")
    precisions = [precision for precision in PRECISIONS if precision == asked]
    if (shortage := check.shortage(check.machine, sizes, precisions)) is None:
        return None
    group = check.group_for(sizes, precisions)
    elsewhere = (
        f"With its layers spread over all GPUs of that machine it fits (`--device {group}`)."
        if group
        else "Another machine may have more; `almoner models check` says what other precisions take."
    )
    return (
        f"The model does not fit into the memory of {machine}{check.machine.remark}: its weights and one text take "
        f"{shortage.needed_text} in {shortage.precision}, and it has {shortage.memory_text}. A run there ends before "
        f"anything is spent. {elsewhere}"
    )


LEAST_REFERENCES = 4
"""Fewest references of use: below, a word rests on one or two people, and a text says little of the corpus."""
SMALL_INFLUENCE = ("weakly", "hardly", "noise")
"""Levels at which a release is hardly worth its cost."""


def influence_of_request(body: Mapping[str, Any]) -> Influence | None:
    """Judge a canonical request by its own clip norm, population and parameters; see `influence_of`."""
    system, parameters, plan = SYSTEMS.get(body["mechanism"]), body["parameters"], body["plan"]
    if system is None:
        return None
    filled = filled_part(parameters, body["population"], len(plan["blocks"]))
    return influence_of(
        plan["facts"],
        system.influence_levels(parameters),
        depends_on_candidates=system.depends_on_candidates,
        filled=filled,
    )


def filled_part(parameters: Mapping[str, Any], population: int | None, blocks: int) -> Fraction:
    """Return the expected number of units behind a text divided by its references B, at most 1.

    It is 1 if no population is declared: the number of batches is then made for B.
    """
    if population is None or parameters.get("groups") or not parameters.get("references"):
        return Fraction(1)
    cells = blocks * max(1, len(parameters.get("labels", ())))
    batches = batches_per_cell(parameters["samples"], cells, parameters.get("batches"))
    return min(Fraction(1), Fraction(population, cells * batches * parameters["references"]))


def units_behind(body: Mapping[str, Any]) -> str | None:
    """Return on how many units the texts of a canonical request draw, from public numbers; None without references."""
    facts, population = body["plan"]["facts"], body["population"]
    if "references B" not in facts or "samples" not in facts:
        return None
    count = int(facts["references B"]) * int(facts["samples"])
    if population is None:
        return f"Its texts draw on about {count:,} {'unit' if count == 1 else 'units'}."
    if count >= population:
        return f"Its texts draw on nearly all of the {population:,} declared units."
    return f"Its texts draw on about {count:,} of the {population:,} declared units."


def setting_warnings(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting of a canonical request from which little can come."""
    facts = body["plan"]["facts"]
    references, influence = facts.get("references B"), influence_of_request(body)
    if references is not None and Decimal(references) < LEAST_REFERENCES:
        units = "unit" if Decimal(references) == 1 else "units"
        yield (
            f"References B = {references}: each text draws on about {references} {units},"
            " so it says little about the corpus."
        )
    if influence is not None and influence.level.name in SMALL_INFLUENCE:
        yield influence.sentence
    if WARNING in facts:
        yield facts[WARNING]
