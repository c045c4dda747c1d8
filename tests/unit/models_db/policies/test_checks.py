"""Each rule allows what is just inside and refuses what is just outside, and a refusal names every rule at once."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from models_db.policies.checks import PolicyBounds, PolicySubject, require_allowed
from models_db.policies.policy import Policy
from models_db.values.amounts import Amount
from models_db.values.requests import parse_model
from tests.refusals import refusal

ASKED = PolicySubject(
    dataset="clinic",
    mechanism="invisible_ink",
    model="tiny",
    epsilon=Decimal(4),
    delta=Decimal("1e-7"),
    population=10**6,
    evaluation=("length", "distinct"),
    loss=Amount(1000, 10),
)


def check(rules: dict[str, Any], bounds: PolicyBounds | None = None, **asked: Any) -> None:
    """Check ASKED, with changes, against a policy of these rules."""
    policy = parse_model(Policy, {"version": 1} | rules, "policy.yaml")
    require_allowed(policy.rules_for("clinic"), bounds or PolicyBounds(), replace(ASKED, **asked))


def limits(epsilon: str, delta: str) -> dict[str, Any]:
    return {"release": {"epsilon_max": epsilon, "delta_max": delta}}


def secret(epsilon: str) -> dict[str, Any]:
    return {"release": {"epsilon_max": "4", "delta_max": "1e-7", "epsilon_while_secret_max": epsilon}}


Case = tuple[dict[str, Any], PolicyBounds | None, dict[str, Any], dict[str, Any], str]

CASES: list[Case] = [
    (limits("4", "1e-7"), None, {}, {"epsilon": Decimal("4.000000000001")}, "release.epsilon_max"),
    (limits("4", "1e-7"), None, {}, {"delta": Decimal("1.00000000001e-7")}, "release.delta_max"),
    (secret("2"), None, {"epsilon_while_secret": Decimal(2)}, {"epsilon_while_secret": Decimal("2.000000000001")},
     "release.epsilon_while_secret_max"),
    (secret("2"), None, {"epsilon": Decimal(2)}, {}, "release.epsilon_while_secret_max"),
    (secret("2"), None, {"epsilon": Decimal(1), "epsilon_while_secret": Decimal(3)},
     {"epsilon": Decimal(3), "epsilon_while_secret": Decimal(3)}, "release.epsilon_while_secret_max"),
    ({"delta_below_population": True}, None, {"delta": Decimal("9.99e-7")}, {"delta": Decimal("1e-6")},
     "delta_below_population"),
    ({"delta_below_population": True}, None, {"population": 9_999_999}, {"population": 10**7},
     "delta_below_population"),
    ({"delta_below_population": True}, None, {}, {"population": None}, "delta_below_population"),
    ({"mechanisms": ["invisible_ink", "public_only"]}, None, {}, {"mechanism": "non_private"}, "mechanisms"),
    ({"models": ["tiny"]}, None, {}, {"model": "tiny2"}, "models"),
    ({"models": ["tiny"]}, None, {}, {"model": "Tiny"}, "models"),
    ({"evaluation": {"required": {"length": {}}}}, None, {"evaluation": ("length",)}, {"evaluation": ("distinct",)},
     "evaluation.required"),
    ({"evaluation": {"required": {"length": {}, "distinct": {}}}}, None, {}, {"evaluation": ()},
     "evaluation.required"),
    ({}, PolicyBounds(rho_max=1000), {}, {"loss": Amount(1001, 10)}, "release"),
    ({}, PolicyBounds(delta_max=10), {}, {"loss": Amount(1000, 11)}, "release"),
]  # fmt: skip
"""Rules, integer bounds, what is just inside, what is just outside, and the rule that says no."""


@pytest.mark.parametrize(("rules", "bounds", "inside", "outside", "rule"), CASES)
def test_a_rule_allows_what_is_inside_and_refuses_what_is_outside(
    rules: dict[str, Any], bounds: PolicyBounds | None, inside: dict[str, Any], outside: dict[str, Any], rule: str
) -> None:
    check(rules, bounds, **inside)
    with refusal("PolicyForbids") as refused:
        check(rules, bounds, **outside)
    [broken] = refused.value.facts["broken"]
    assert broken["rule"] == rule
    assert all((broken["asked"], broken["allowed"], broken["advice"]))
    assert f"asked {broken['asked']}, allowed {broken['allowed']}" in refused.value.message
    assert broken["advice"] in refused.value.advice


def test_a_policy_without_rules_allows_everything() -> None:
    check({}, epsilon=Decimal(10**6), delta=Decimal("0.9"), population=None, evaluation=(), mechanism="non_private")


def test_what_charges_nothing_has_no_claim_to_limit() -> None:
    rules = limits("0.001", "1e-18") | {"delta_below_population": True}
    check(rules, PolicyBounds(1, 1), epsilon=None, delta=None, population=None, loss=Amount())


def test_a_dataset_of_its_own_has_its_own_rules() -> None:
    own = {"datasets": {"clinic": limits("2", "1e-7")}}
    with refusal("PolicyForbids", match=r"asked 4, allowed at most 2\b"):
        check(limits("8", "1e-7") | own)
    looser = {"datasets": {"clinic": limits("4", "1e-7")}}
    check(limits("2", "1e-7") | looser)


def test_every_broken_rule_is_named_at_once() -> None:
    rules = limits("1", "1e-9") | {
        "delta_below_population": True,
        "mechanisms": ["public_only"],
        "models": ["other"],
        "evaluation": {"required": {"perplexity": {}}},
    }
    with refusal("PolicyForbids") as refused:
        check(rules, PolicyBounds(rho_max=1), population=10)
    named = ["mechanisms", "models", "evaluation.required", "release.epsilon_max", "release.delta_max"]
    assert [broken["rule"] for broken in refused.value.facts["broken"]] == named
    with refusal("PolicyForbids") as refused:
        check(rules, population=10, delta=Decimal("0.2"))
    told = refused.value.facts["broken"]
    assert isinstance(told, list)
    assert [each["rule"] for each in told] == [*named, "delta_below_population"]
    assert told[-1] == {
        "rule": "delta_below_population",
        "asked": "0.2",
        "allowed": "below 1/10",
        "advice": "ask for a delta below 1/10",
    }


def test_what_a_policy_looks_at_is_read_from_the_canonical_request() -> None:
    part = {"rho": "400", "delta": "3"}
    body = {
        "dataset": {"name": "clinic", "version": 1, "uid": "u"},
        "mechanism": "invisible_ink",
        "model": {"name": "tiny", "revision": "1", "sha256": "d" * 64, "licence": "x"},
        "epsilon": "4",
        "delta": "0.0000001",
        "population": None,
        "evaluation": ["length"],
        "plan": {"blocks": [0], "facts": {}, "invocations": [{"event": {}, "instalments": [part, part]}] * 2},
    }
    found = PolicySubject.from_request(body)
    assert found == replace(ASKED, population=None, evaluation=("length",), loss=Amount(1600, 12))
    free = PolicySubject.from_request(body | {"epsilon": None, "delta": None, "plan": {"invocations": []}})
    assert (free.epsilon, free.delta, free.loss) == (None, None, Amount())
