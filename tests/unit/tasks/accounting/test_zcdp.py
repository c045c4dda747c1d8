"""Conversions between zCDP and (epsilon, delta), against golden values and an independent oracle."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from models_db.values.amounts import Amount
from tasks.accounting.rounding import InexactNumber
from tasks.accounting.zcdp import (
    InvalidTarget,
    epsilon_of,
    lifetime_cap,
    release_amount,
    rho_of,
    spent_epsilon,
)
from tests.golden.accounting_oracle import GOLDEN, delta_at

pytestmark = [pytest.mark.dear, pytest.mark.contract]

EPSILONS = st.decimals("0.01", "60", places=3)
DELTAS = st.integers(1, 12).flatmap(lambda e: st.integers(1, 9).map(lambda d: Decimal(f"{d}e-{e}")))


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(row["arguments"], row["value"]) for row in json.loads(GOLDEN.read_text()) if row["function"] == "rho_of"],
)
def test_golden_caps(arguments, value):
    assert rho_of(*arguments) == value


@pytest.mark.parametrize(
    ("epsilon", "delta", "stated"), [("10", "1e-5", 1.78270), ("4", "1e-7", 0.266314), ("8", "1e-6", 1.052358)]
)
def test_the_figures_of_the_contract(epsilon, delta, stated):
    assert rho_of(epsilon, delta) / 1e12 == pytest.approx(stated, abs=6e-6)


@settings(max_examples=25)
@given(EPSILONS, DELTAS)
def test_the_cap_holds_and_one_unit_more_does_not(epsilon, delta):
    rho = rho_of(epsilon, delta)
    target, limit = mpf(str(epsilon)), mpf(str(delta))
    assert delta_at(mpf(rho) / 10**12, target) <= limit * (1 + mpf("1e-22"))
    assert delta_at(mpf(rho + 1) / 10**12, target) > limit


@settings(max_examples=25)
@given(st.integers(10**6, 10**13), DELTAS)
def test_epsilon_holds_and_a_little_less_does_not(rho, delta):
    epsilon = epsilon_of(rho, delta)
    loss, limit = mpf(rho) / 10**12, mpf(str(delta))
    assert delta_at(loss, mpf(str(epsilon))) <= limit * (1 + mpf("1e-22"))
    if epsilon > 0:
        assert delta_at(loss, mpf(str(epsilon)) - mpf("2e-12")) > limit


@given(EPSILONS, EPSILONS, DELTAS)
def test_more_epsilon_buys_more_rho(one, other, delta):
    low, high = sorted((one, other))
    assert rho_of(low, delta) <= rho_of(high, delta)


@given(EPSILONS, DELTAS, DELTAS)
def test_more_delta_buys_more_rho(epsilon, one, other):
    low, high = sorted((one, other))
    assert rho_of(epsilon, low) <= rho_of(epsilon, high)


@given(st.integers(0, 10**13), st.integers(0, 10**13), DELTAS)
def test_more_rho_costs_more(one, other, delta):
    low, high = sorted((one, other))
    assert epsilon_of(low, delta) <= epsilon_of(high, delta)


@given(EPSILONS, DELTAS)
def test_the_way_there_and_back_never_gains(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert epsilon - Decimal("1e-6") < epsilon_of(rho, delta) <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("1000000", "1e-18"), ("1e-6", "1e-6"), ("1e-3", "0.999999999"), ("1000", "1e-300"), ("0.5", "0.9")],
)
def test_the_corners_of_the_range(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert rho > 0
    assert epsilon_of(rho, delta) <= Decimal(epsilon) < epsilon_of(rho + 1, delta)


def test_no_loss_is_no_epsilon():
    assert epsilon_of(0, "1e-6") == 0


def test_a_lifetime_keeps_a_tenth_of_delta_for_failures():
    cap = lifetime_cap("8", "1e-6")
    assert (cap.epsilon, cap.delta, cap.delta_conv) == (Decimal(8), Decimal("1e-6"), Decimal("9e-7"))
    assert cap.amount == Amount(rho_of("8", "9e-7"), 10**11)
    assert Fraction(cap.delta_conv) + Fraction(cap.amount.delta, 10**18) == Fraction(1, 10**6)


def test_the_parts_of_delta_add_up_where_a_tenth_is_no_whole_unit():
    cap = lifetime_cap("8", "1.00000000000000019e-6")
    assert cap.amount.delta == 100000000000
    assert cap.delta_conv == Decimal("9.0000000000000019e-7")


def test_a_full_account_shows_the_claimed_epsilon():
    cap = lifetime_cap("8", "1e-6")
    assert Decimal("7.99999999") < spent_epsilon(cap.amount, cap.delta_conv) <= 8


def test_a_lifetime_without_failures_has_all_of_delta_for_the_conversion():
    assert lifetime_cap("8", "1e-6", fail_share=0).amount == release_amount("8", "1e-6")


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "1e-5"), ("-1", "1e-5"), ("1000001", "1e-5"), ("1", "0"), ("1", "1"), ("1", "-1e-5"), ("1e-12", "1e-18")],
)
def test_impossible_targets_are_refused(epsilon, delta):
    for buy in (release_amount, lifetime_cap):
        with pytest.raises(InvalidTarget) as refused:
            buy(epsilon, delta)
        assert refused.value.exit_code == 2
        assert refused.value.advice


def test_other_refusals():
    with pytest.raises(InvalidTarget):
        lifetime_cap("1", "1e-5", fail_share="1")
    with pytest.raises(InvalidTarget):
        epsilon_of(1, "2")
    with pytest.raises(ValueError, match="negative"):
        epsilon_of(-1, "1e-5")
    with pytest.raises(InexactNumber):
        lifetime_cap("1", "1/3000000")
    with pytest.raises(InexactNumber):
        rho_of(4.0, "1e-7")
