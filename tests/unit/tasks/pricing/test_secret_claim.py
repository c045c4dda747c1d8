"""Requests by the epsilon while the assignment is secret: what they cost, what they claim, and what is refused."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from models_db.values.canonical_json import encode_canonical
from tasks.accounting.random_allocation import RandomAllocation, allocation_figures, claims_at_most
from tasks.accounting.zcdp import release_amount
from tasks.pricing.quote import Quote, quote, written_request
from tasks.pricing.secret_claim import PRECISION, SecretClaim
from tasks.release.approved_request import ApprovedRequest
from tasks.release.claim import SecretClaimTooSmall
from tasks.release.record import claim_of_plan, planned_events
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import Plan, PlanInputs
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts, parameters, priced

pytestmark = [pytest.mark.dear, pytest.mark.contract]
CONCERNS = ("tasks/accounting", "tasks/pricing")

SETTINGS = {"samples": 100, "references": 7, "max_new_tokens": 48, "temperature": 1.0}
DECLARED = facts(population=700)


def asked(claim: str = "1", dataset: Any = DECLARED, **changes: Any) -> Quote:
    return priced(dataset, **{"epsilon": None, "epsilon_while_secret": claim, "parameters": SETTINGS} | changes)


def second(quoted: Quote) -> Decimal:
    assert quoted.secret_assignment is not None
    return Decimal(quoted.secret_assignment.epsilon)


@pytest.mark.slow_except("8-1", "100-4")
@pytest.mark.parametrize("claim", ["0.5", "1", "4"])
@pytest.mark.parametrize("samples", [8, 100])
def test_the_unconditional_epsilon_is_the_largest_that_keeps_the_claim(claim: str, samples: int) -> None:
    system = SYSTEMS["invisible_ink"]
    settings = system.parameters.model_validate(SETTINGS | {"samples": samples})
    delta = Decimal("1e-6")

    def plan_at(epsilon: Decimal) -> Plan:
        return system.plan(PlanInputs(release_amount(epsilon, delta), settings, 1, 7 * samples, governed=True))

    def figure(epsilon: Decimal) -> Decimal:
        plan = plan_at(epsilon)
        assert plan.assignment is not None
        whole = RandomAllocation(plan.loss.rho, plan.assignment.batches, plan.assignment.read)
        return allocation_figures(whole, delta).epsilon

    found = SecretClaim(Decimal(claim), delta, None, system.name).unconditional_epsilon(plan_at)
    assert figure(found) <= Decimal(claim) < figure(found * (1 + Decimal(2) / PRECISION))
    assert found > Decimal(claim)
    again = SecretClaim(Decimal(claim), delta, found, system.name)
    assert again.unconditional_epsilon(plan_at) == found
    less = replace(again, most=found / 2)
    assert less.unconditional_epsilon(plan_at) == found / 2


def test_a_price_states_both_and_is_made_again_from_what_is_stored() -> None:
    quoted = asked()
    body = dict(quoted.body)
    assert (body["epsilon_while_secret"], quoted.to_json()["epsilon_while_secret"]) == ("1", "1")
    assert Decimal(str(body["epsilon"])) == quoted.request.epsilon
    assert Decimal("0.99") < second(quoted) <= 1 < Decimal("3.5") < Decimal(str(body["epsilon"]))
    again = quote(written_request(body), DECLARED, MODEL, "p" * 64, "c" * 64)
    assert encode_canonical(again.body) == encode_canonical(body)
    plain = asked(None, epsilon=body["epsilon"])
    assert plain.body["plan"] == body["plan"], "it costs what the unconditional epsilon costs"
    assert "epsilon_while_secret" not in plain.body
    ApprovedRequest.model_validate(body | {"nonce": "n", "policy": "0" * 64, "code": "0" * 64}).require_planned()


def test_the_unconditional_epsilon_may_be_limited() -> None:
    limited = asked(epsilon=2)
    assert limited.request.epsilon == 2
    assert second(limited) < Decimal("0.5")
    assert asked(epsilon=7).body["plan"] == asked().body["plan"]


def test_parameters_that_are_left_out_are_chosen_for_the_epsilon_that_follows() -> None:
    few = {"max_new_tokens": 48, "temperature": 1.0}
    quoted, unconditional = (
        asked(dataset=facts(population=2000), parameters=few),
        priced(facts(population=2000), epsilon=1.0, parameters=few),
    )
    assert second(quoted) <= 1
    samples = [dict(one.request.parameters)["samples"] for one in (quoted, unconditional)]
    assert samples[0] > samples[1], "a larger clip norm needs fewer references for each text"


def test_other_mechanisms_of_the_release_count_whole() -> None:
    """Without a declared population a noisy count is bought, and N is no more than the texts."""
    quoted = asked(dataset=facts())
    assert quoted.secret_assignment is not None
    assert (quoted.secret_assignment.batches, quoted.secret_assignment.rho_other) != (100, "0")
    assert Decimal("0.98") < second(quoted) <= 1


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "public data": ({"dataset": facts(population=700, governed=False)}, "NoSecretClaim"),
    "a system with a secret state": (
        {"mechanism": "private_prediction", "parameters": SETTINGS | {"public_temperature": 1.0}},
        "NoSecretClaim",
    ),
    "a system that charges nothing": ({"mechanism": "public_only", "parameters": {**SETTINGS}}, "NoSecretClaim"),
    "one batch": ({"parameters": parameters(samples=1), "dataset": facts(population=7)}, "NoSecretClaim"),
    "no delta": ({"delta": None}, "ClaimMissing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_claims_nothing_while_secret_cannot_be_asked_by_it(case: str) -> None:
    changes, error = REFUSED[case]
    if case == "a system that charges nothing":
        changes = changes | {
            "parameters": {name: SETTINGS[name] for name in ("samples", "max_new_tokens", "temperature")}
        }
    with refusal(error):
        asked(**changes)


@pytest.mark.parametrize("stated", ["0.9", "0.000001"])
def test_a_stored_request_that_says_less_than_its_plan_costs_is_refused(stated: str) -> None:
    body = dict(asked().body)
    assert claim_of_plan(planned_events(body), body) is not None
    body["epsilon_while_secret"] = stated
    with pytest.raises(SecretClaimTooSmall):
        claim_of_plan(planned_events(body), body)
    plan: Any = body["plan"]
    without = {**body, "plan": {name: value for name, value in plan.items() if name != "assignment"}}
    with pytest.raises(SecretClaimTooSmall):
        claim_of_plan(planned_events(without), without)


@pytest.mark.slow_except(
    "1000-100-1000000000-1",
    "8-8-100000000-30000000000",
    "2-1-0-30000000000",
    "2-1-0-1000000000000",
    "8-8-100000000-1000000000000",
    "100-100-0-1000000000000",
    "1000-100-1000000000-1000000000000",
)
@pytest.mark.parametrize("rho", [1, 10**9, 3 * 10**10, 10**12])
@pytest.mark.parametrize(("batches", "read", "other"), [(2, 1, 0), (8, 8, 10**8), (100, 100, 0), (1000, 100, 10**9)])
def test_comparing_a_figure_agrees_with_computing_it(rho: int, batches: int, read: int, other: int) -> None:
    allocation = RandomAllocation(rho, batches, read, other)
    figure = allocation_figures(allocation, "1e-6").epsilon
    step = Decimal("1e-12")
    for epsilon in (figure, figure + step, 2 * figure, figure / 2, figure - step):
        assert claims_at_most(allocation, epsilon, "1e-6") == (figure <= epsilon)
