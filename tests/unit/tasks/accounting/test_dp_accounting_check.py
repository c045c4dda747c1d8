"""dp-accounting's figure beside ours, and the JSON both are read from."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    UnsupportedDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, MixtureOfGaussiansDpEvent
from hypothesis import given
from hypothesis import strategies as st
from mpmath import exp, ncdf

from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.dp_accounting_check import dp_event_from_json, plan_report
from tasks.accounting.rounding import float_above
from tasks.accounting.zcdp import InvalidTarget, epsilon_of, independent_coordinates
from tests.refusals import refusal


def dp_event_json(event: DpEvent) -> Json:
    """An event of the library as nested JSON without floats."""
    return encoded(event.to_named_tuple())


def encoded(value: Any) -> Json:
    if hasattr(value, "_fields"):
        return {name: encoded(getattr(value, name)) for name in value._fields}
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    return cast(Json, value)


def draws(rho: int, count: int, relation: str = "add_or_remove_one") -> PrivacyEvent:
    return PrivacyEvent("integer_draw", count, {}, Amount(rho) * count, zcdp.zcdp_event(rho, count), relation)


def gaussians(sigma: str, count: int, delta: int = 0) -> PrivacyEvent:
    rho = round(10**12 / (2 * float(sigma) ** 2)) + 1
    return PrivacyEvent("noisy_count", count, {}, Amount(rho * count, delta), zcdp.gaussian_event(float(sigma), count))


def test_a_zcdp_plan_is_read_by_the_rdp_accountant():
    report = plan_report([draws(5548207, 48)], "1e-7")
    assert report.accountant == "RDP"
    assert report.delta == Decimal("1e-7")
    assert report.zcdp_epsilon == epsilon_of(5548207 * 48, "1e-7")


def test_both_figures_agree_for_zcdp_up_to_the_grid_of_orders():
    report = plan_report([draws(5548207812, 48)], "1e-7")
    assert report.zcdp_epsilon <= report.epsilon <= report.zcdp_epsilon * Decimal("1.01")


def test_a_gaussian_plan_is_read_by_the_pld_accountant_and_is_tighter():
    report = plan_report([gaussians("5", 3)], "1e-6")
    assert report.accountant == "PLD"
    # Its exact delta: Balle and Wang, arXiv 1805.06530, Theorem 8, with mu = sqrt(3)/5.
    epsilon, mu = float(report.epsilon), 3**0.5 / 5
    delta = ncdf(mu / 2 - epsilon / mu) - exp(epsilon) * ncdf(-mu / 2 - epsilon / mu)
    assert float(delta) == pytest.approx(1e-6, rel=1e-3)
    assert report.epsilon < report.zcdp_epsilon


def discrete_laplaces(epsilon: str, k: int, delta: int = 0) -> PrivacyEvent:
    loss = Amount(independent_coordinates(epsilon, k).rho, delta)
    each = float_above(Fraction(epsilon) / k)
    return PrivacyEvent("partition_selection", 1, {}, loss, zcdp.discrete_laplace_event(each, k))


@pytest.mark.parametrize("k", [1, 3])
def test_discrete_laplace_noise_is_read_as_randomised_response(k):
    """Of k answers at a = epsilon/k, j wrong ones lose (k - 2j) a: the exact delta, by summation."""
    report = plan_report([discrete_laplaces("3", k)], "0.01")
    assert report.accountant == "PLD"
    each, epsilon = 3 / k, float(report.epsilon)
    right = 1 / (1 + math.exp(-each))
    delta = math.fsum(
        math.comb(k, j) * right ** (k - j) * (1 - right) ** j * max(0, 1 - math.exp(epsilon - (k - 2 * j) * each))
        for j in range(k + 1)
    )
    assert delta == pytest.approx(0.01, rel=1e-2)
    assert report.epsilon < report.zcdp_epsilon


def test_the_delta_of_a_selection_is_counted_once():
    """At delta 0.02 with a failure of 0.01, the rest is what a mechanism without failure has at 0.01."""
    failing = plan_report([discrete_laplaces("3", 3, delta=10**16)], "0.02")
    sure = plan_report([discrete_laplaces("3", 3)], "0.01")
    assert (failing.epsilon, failing.zcdp_epsilon) == (sure.epsilon, sure.zcdp_epsilon)


def test_discrete_laplace_goes_with_its_zcdp_where_only_the_other_accountant_reads_the_rest():
    plan = [discrete_laplaces("3", 3), draws(10**9, 10), gaussians("5", 3)]
    report = plan_report(plan, "1e-6")
    assert report.accountant == "RDP"
    assert report.zcdp_epsilon <= report.epsilon <= report.zcdp_epsilon * Decimal("1.02")


@pytest.mark.parametrize("events", [[], [PrivacyEvent("public_only", 1, {}, Amount(), dp_event_json(NoOpDpEvent()))]])
def test_a_plan_that_loses_nothing(events):
    report = plan_report(events, "1e-6")
    assert report.epsilon == report.zcdp_epsilon == 0


def test_one_zcdp_event_takes_the_whole_plan_to_rdp():
    report = plan_report([gaussians("5", 3), draws(10**9, 10)], "1e-6")
    assert report.accountant == "RDP"
    assert report.epsilon >= plan_report([gaussians("5", 3)], "1e-6").epsilon


def test_failure_probabilities_come_off_delta():
    assert plan_report([gaussians("5", 1, delta=5 * 10**11)], "1e-6").zcdp_epsilon > (
        plan_report([gaussians("5", 1)], "1e-6").zcdp_epsilon
    )
    with pytest.raises(InvalidTarget):
        plan_report([gaussians("5", 1, delta=10**12)], "1e-6")


def test_what_dp_accounting_cannot_read_is_refused():
    other_relation = draws(1, 1, relation="replace_one")
    unsupported = PrivacyEvent("later", 1, {}, Amount(1), dp_event_json(UnsupportedDpEvent()))
    not_private = PrivacyEvent("non_private", 1, {}, Amount(), dp_event_json(NonPrivateDpEvent()))
    for event in (other_relation, unsupported, not_private):
        with refusal("NotReportable") as refused:
            plan_report([event], "1e-6")
        assert refused.value.exit_code == 1


@given(st.floats(1e-6, 1e3), st.integers(1, 10**6))
def test_the_handwritten_discrete_laplace_form_is_the_librarys(parameter, count):
    stored = zcdp.discrete_laplace_event(parameter, count)
    assert dp_event_from_json(stored) == SelfComposedDpEvent(DiscreteLaplaceDpEvent(parameter, 1), count)
    assert dp_event_json(dp_event_from_json(stored)) == stored


@pytest.mark.parametrize(
    "event",
    [
        ZCDpEvent(0.1),
        GaussianDpEvent(1 / 3),
        NonPrivateDpEvent(),
        SelfComposedDpEvent(PoissonSampledDpEvent(0.25, LaplaceDpEvent(2.0)), 7),
        ComposedDpEvent([ZCDpEvent(0.1, 0.2), GaussianDpEvent(3.0)]),
        MixtureOfGaussiansDpEvent(1.0, [0.5, 1.0], [0.25, 0.75]),
    ],
)
def test_events_survive_the_journey_through_canonical_json(event):
    stored = dp_event_json(event)
    encode_canonical(stored)  # refuses floats
    assert dp_event_from_json(stored) == event


@given(st.integers(0, 10**15), st.integers(1, 10**6))
def test_the_handwritten_zcdp_form_is_the_librarys(rho, count):
    stored = zcdp.zcdp_event(rho, count)
    event = dp_event_from_json(stored)
    assert dp_event_json(event) == stored
    assert event.count == count
    assert event.event.rho * 10**12 >= rho * (1 - 1e-15)


@given(st.floats(1e-3, 1e9), st.integers(1, 10**6))
def test_the_handwritten_gaussian_form_is_the_librarys(sigma, count):
    stored = zcdp.gaussian_event(sigma, count)
    assert dp_event_from_json(stored) == SelfComposedDpEvent(GaussianDpEvent(sigma), count)
    assert dp_event_json(dp_event_from_json(stored)) == stored


ZCDP = {"module_name": "dp_accounting.dp_event", "class_name": "ZCDpEvent", "rho": "0.1", "xi": "0.0"}


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        "ZCDpEvent",
        {},
        {**ZCDP, "module_name": "os"},
        {**ZCDP, "class_name": "importlib"},
        {**ZCDP, "class_name": "DpEventNamedTuple"},
        {**ZCDP, "class_name": "GaussianDpEvent"},
        {**ZCDP, "more": "1"},
        {**ZCDP, "rho": "a lot"},
        {key: value for key, value in ZCDP.items() if key != "xi"},
    ],
)
def test_foreign_json_is_refused(stored):
    with refusal("NotReportable"):
        dp_event_from_json(stored)
