"""Configurations of requests: the terms that a standing authorisation fixes from run to run, and those that differ."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json

BLOCKS_READ = "blocks read"
"""The fact of a plan that says which blocks a release reads that does not read all of them."""

_DIFFERENCE_REASONS = {
    "code": "almoner itself has changed since (`code`), which ends every standing authorisation",
    "policy": "another policy is in force since (`policy`)",
}


def without_first_cohort(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return a canonical request as it was before its dataset had another cohort, if it reads the first one alone."""
    if body.get("cohorts") != [1]:
        return dict(body)
    plan = dict(cast("Mapping[str, Json]", body["plan"]))
    facts = cast("Mapping[str, Json]", plan["facts"])
    plan["facts"] = {name: value for name, value in facts.items() if name != BLOCKS_READ}
    return {**{name: value for name, value in body.items() if name != "cohorts"}, "plan": plan}


def differing_fields(previous: Mapping[str, Json], current: Mapping[str, Json]) -> list[str]:
    """Return the names of the fields in which two configurations differ."""
    absent = object()  # a field that is null is not one that is not there
    return sorted(name for name in {*previous, *current} if previous.get(name, absent) != current.get(name, absent))


def describe_differences(differs: Sequence[str]) -> str:
    """Describe why a standing authorisation does not cover a request."""
    plain = ", ".join(f"`{name}`" for name in differs if name not in _DIFFERENCE_REASONS)
    reasons = [_DIFFERENCE_REASONS[name] for name in differs if name in _DIFFERENCE_REASONS]
    if plain:
        reasons.append(f"the request has another {plain}")
    return "it is for another configuration: " + "; ".join(reasons)


def cost_of(body: Mapping[str, Json]) -> Amount:
    """Return the cost of a canonical request's plan to every block that it may read."""
    plan = cast("dict[str, Any]", body["plan"])
    parts = [part for invocation in plan["invocations"] for part in invocation["instalments"]]
    return total_amount([Amount(int(part["rho"]), int(part["delta"])) for part in parts])
