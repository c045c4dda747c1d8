"""The claim of a release, as stated and as recomputed."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import exp, mp

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import InvalidTarget, epsilon_of, rho_of
from tasks.release.claim import ClaimTooSmall, implied_epsilon, state_claim
from tests.unit.tasks.publishing.builders import event


def test_the_claim_of_the_example_request():
    claim = state_claim([event()], "4.0", "1.0e-7")
    assert (claim.epsilon, claim.delta) == ("4", "0.0000001")
    assert claim.rho == "0.266311880304"
    assert claim.delta_fail == "0"
    # Replacing is removing and adding: four times rho, converted at the same delta.
    assert claim.replace_one.rho == "1.065247521216"
    assert claim.replace_one.epsilon == str(epsilon_of(4 * 266311880304, "1e-7"))
    assert claim.replace_one.delta == "0.0000001"


def test_the_sum_of_the_events_counts():
    half = event(24)
    assert state_claim([half, half], "4", "1e-7").rho == state_claim([event(48)], "4", "1e-7").rho


@given(st.integers(1, 400), st.sampled_from(["1e-9", "1e-7", "1e-3"]))
def test_a_claim_never_understates(draws, delta):
    spent = event(draws).loss
    implied = implied_epsilon(spent, Fraction(Decimal(delta)))
    assert Decimal(state_claim([event(draws)], implied, delta).epsilon) == implied
    assert spent.rho <= rho_of(implied, delta)
    with pytest.raises(ClaimTooSmall):
        state_claim([event(draws)], implied - Decimal("1e-12"), delta)


def test_a_failure_probability_is_taken_out_of_delta_and_reconverted_for_replace_one():
    failing = replace(event(), loss=Amount(event().loss.rho // 2, 10**10))  # 1e-8
    claim = state_claim([failing], "4", "1e-7")
    assert claim.delta_fail == "0.00000001"
    assert claim.replace_one.rho is None
    assert claim.replace_one.epsilon == "8"
    with mp.workdps(40):
        assert abs(Decimal(claim.replace_one.delta) - Decimal(str((1 + exp(4)) * mp.mpf("1e-7")))) < Decimal("1e-29")


def test_a_failure_probability_that_eats_delta_is_refused():
    with pytest.raises(InvalidTarget):
        state_claim([replace(event(), loss=Amount(1, 10**11))], "4", "1e-7")


def test_where_nothing_is_charged_nothing_is_lost():
    claim = state_claim([], 0, 0)
    assert (claim.epsilon, claim.delta, claim.rho, claim.replace_one.epsilon) == ("0", "0", "0", "0")
