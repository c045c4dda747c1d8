"""Every mechanism of the catalogue can be audited, and an audit catches one whose noise is gone."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tasks.accounting.rounding import decimal_above
from tasks.auditing.audit import CASES, FEWEST_TRIALS, WITHOUT_CLAIM, audit, case_of
from tasks.mechanisms.registry import MECHANISMS, recompute
from tests.refusals import refusal


def test_no_mechanism_of_the_catalogue_is_left_out():
    assert set(CASES) | set(WITHOUT_CLAIM) == set(MECHANISMS)
    assert not set(CASES) & set(WITHOUT_CLAIM)


@pytest.mark.parametrize("mechanism", CASES)
def test_a_case_claims_what_its_event_is_charged(mechanism):
    case = case_of(mechanism)
    assert case.mechanism == mechanism
    assert recompute(case.event) == case.event.loss
    assert 0 < case.epsilon <= 1
    assert len(case.sample(True, 3)) == 3


@pytest.mark.parametrize("mechanism", WITHOUT_CLAIM)
def test_what_claims_nothing_is_refused_with_the_reason(mechanism):
    with refusal("MechanismWithoutClaim", match="private text"):
        case_of(mechanism)


def test_an_unknown_mechanism_is_named():
    with refusal("NoAudit", match="'token_drawn'"):
        case_of("token_drawn")


def test_a_mechanism_without_noise_is_caught_by_the_fewest_trials():
    """That is what the fewest are for."""
    case = replace(case_of("noisy_count"), sample=lambda present, trials: [100 + present] * trials)
    found = audit(case, FEWEST_TRIALS, 0.9999)
    assert not found.holds
    assert found.bound.epsilon > 3
    assert str(decimal_above(found.case.epsilon, 12)) == "0.999999328195"
    assert found.case.delta == Fraction(3, 100)
    assert found.bound.hits == (500, 0)


def test_a_mechanism_that_ignores_the_unit_proves_nothing():
    case = replace(case_of("noisy_count"), sample=lambda present, trials: list(range(trials)))
    found = audit(case, FEWEST_TRIALS)
    assert found.holds
    assert found.bound.epsilon == 0


def test_a_pure_claim_needs_no_delta():
    case = case_of("sparse_vector")
    assert (case.epsilon, case.delta) == (Fraction(163, 63) / Fraction(2652, 1024), 0)
    assert Fraction(999, 1000) < case.epsilon < 1


def test_too_few_trials_are_refused():
    with refusal("TooFewTrials"):
        audit(case_of("noisy_count"), FEWEST_TRIALS - 1)
