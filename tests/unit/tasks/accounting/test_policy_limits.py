"""A policy's limits as integers: rounded down, and wide enough for every claim within the limits."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from models_db.policies.checks import PolicyBounds
from models_db.policies.policy import EffectiveRules, LifetimeLimit, Policy
from models_db.policies.rules import DatasetTerms
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json, parse_model
from tasks.accounting.renyi_account import bounds_of, curve_limits, terms_of
from tasks.accounting.zcdp import InvalidTarget, release_amount
from tests.golden.accounting_oracle import delta_at


def rules(**written: Any) -> EffectiveRules:
    return parse_model(Policy, {"version": 1} | written, "policy.yaml").rules_for("clinic")


def limited(epsilon: str, delta: str) -> EffectiveRules:
    return rules(release={"epsilon_max": epsilon, "delta_max": delta})


def test_no_limits_are_no_integers() -> None:
    assert bounds_of(rules()) == PolicyBounds()


def test_the_largest_rho_is_the_largest() -> None:
    """The formula of PRIVACY §2 at the bound is within delta_max, one unit above it is not."""
    bounds = bounds_of(limited("4", "1e-7"))
    assert bounds.rho_max is not None
    below, above = (delta_at(mpf(rho) / 10**12, mpf(4)) for rho in (bounds.rho_max, bounds.rho_max + 1))
    assert below <= mpf("1e-7") * (1 + mpf("1e-22"))
    assert above > mpf("1e-7")
    assert bounds.rho_max == release_amount("4", "1e-7").rho
    assert bounds.delta_max == 10**11


def test_a_delta_is_counted_down_to_the_ledgers_unit() -> None:
    assert bounds_of(limited("4", "1e-18")).delta_max == 1


@settings(max_examples=30)
@given(
    most=st.decimals("0.01", "20", places=3),
    share=st.decimals("0.01", "1", places=2),
    exponent=st.integers(4, 12),
    smaller=st.integers(0, 3),
)
def test_whatever_claims_less_charges_less(most: Decimal, share: Decimal, exponent: int, smaller: int) -> None:
    bounds = bounds_of(limited(str(most), f"1e-{exponent}"))
    assert bounds.rho_max is not None
    assert release_amount(most * share, f"1e-{exponent + smaller}").rho <= bounds.rho_max
    assert release_amount(most, f"1e-{exponent}").rho == bounds.rho_max


def test_limits_that_buy_nothing_are_refused() -> None:
    with pytest.raises(InvalidTarget):
        bounds_of(limited("1e-12", "1e-18"))


def test_the_ledger_keeps_what_the_database_enforces() -> None:
    policy = parse_model(
        Policy,
        {
            "version": 1,
            "approvals": {"spend": 2},
            "release": {"epsilon_max": 4, "delta_max": 1e-7},
            "datasets": {
                "ward": {"release": {"epsilon_max": 1, "delta_max": 1e-8}},
                "clinic": {"approvals": {"publish": 3, "proposal": 4}},
            },
        },
        "policy.yaml",
    )
    terms = terms_of(policy)
    assert terms.digest == digest(model_to_json(policy)) == digest(json.loads(terms.body))
    assert (terms.spend_approvals, terms.publish_approvals, terms.proposal_approvals) == (2, 1, 2)
    assert (terms.rho_max, terms.delta_max) == (release_amount("4", "1e-7").rho, 10**11)
    assert terms.rules == (
        DatasetTerms("clinic", None, 3, 4, None, None),
        DatasetTerms("ward", None, None, None, release_amount("1", "1e-8").rho, 10**10),
    )


def test_what_a_dataset_has_in_the_ledger_is_what_its_rules_say() -> None:
    """A None in its row leaves the policy's own figure; so the database and `rules_for` agree."""
    for general in ({}, {"release": {"epsilon_max": 4, "delta_max": 1e-7}}):
        for own in ({}, {"release": {"epsilon_max": 1, "delta_max": 1e-8}}):
            policy = parse_model(Policy, {"version": 1, "datasets": {"clinic": own}} | general, "policy.yaml")
            terms, bounds = terms_of(policy), bounds_of(policy.rules_for("clinic"))
            assert (terms.rules[0].rho_max or terms.rho_max) == bounds.rho_max
            assert (terms.rules[0].delta_max or terms.delta_max) == bounds.delta_max


def test_rules_that_a_policy_does_not_have_leave_their_columns_empty() -> None:
    terms = terms_of(Policy())
    assert terms.proposal_approvals == 2
    assert (terms.rho_max, terms.delta_max, terms.rules) == (None, None, ())


def test_a_limit_on_the_second_claim_is_stored_at_each_order_for_all_and_for_one() -> None:
    fields = {"version": 1, "lifetime_while_secret": {"epsilon": 4, "delta": 1e-6},
              "datasets": {"clinic": {"lifetime_while_secret": {"epsilon": 1, "delta": 1e-7}}, "ward": {}}}  # fmt: skip
    policy = parse_model(Policy, fields, "policy.yaml")
    terms = terms_of(policy)
    assert terms.renyi_limits == curve_limits("4", "1e-6")
    assert [rule.renyi_limits for rule in terms.rules] == [curve_limits("1", "1e-7"), None]
    assert policy.rules_for("clinic").lifetime_while_secret == LifetimeLimit(epsilon=Decimal(1), delta=Decimal("1e-7"))
    assert policy.rules_for("ward").lifetime_while_secret == policy.lifetime_while_secret
    assert terms_of(Policy()).renyi_limits is None
    with pytest.raises(InvalidTarget):
        terms_of(
            parse_model(Policy, fields | {"lifetime_while_secret": {"epsilon": 0.01, "delta": 1e-9}}, "policy.yaml")
        )
