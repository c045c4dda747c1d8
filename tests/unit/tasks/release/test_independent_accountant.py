"""Somebody else's accountant reads the events of every mechanism, those that may fail included."""

from decimal import Decimal
from fractions import Fraction

import pytest

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.mechanisms.counts.partition_selection import calibrate_selection
from tasks.mechanisms.counts.set_histogram import calibrate_set_histogram
from tasks.publishing.documents.card import card
from tasks.release.claim import implied_epsilon
from tasks.release.record import second_opinion
from tests.unit.tasks.publishing.builders import a_record, a_request, charging, event
from tests.unit.tasks.publishing.forging import failures

pytestmark = pytest.mark.contract

ROOM = release_amount("4", "1e-7", "1/10")
QUARTER = ROOM.rho // 4
INSIGHTS = [
    calibrate_selection(Amount(QUARTER, ROOM.delta), 5).event(),
    calibrate_histogram(QUARTER, 64).event(),
    calibrate_set_histogram(QUARTER, 64 * 200, 5).event(),
    calibrate_set_histogram(QUARTER, 64 * 200, 5, "laplace").event(),
]


def test_nothing_is_read_out_of_nothing():
    assert second_opinion([], "1e-7") is None


@pytest.mark.parametrize(
    ("events", "accountant"),
    [(INSIGHTS, "PLD"), ([*INSIGHTS[:3], event(11)], "RDP"), (INSIGHTS[:1], "PLD"), (INSIGHTS[3:], "PLD")],
)
def test_selections_and_histograms_are_read_at_what_they_leave_of_delta(events: list[PrivacyEvent], accountant: str):
    spent = sum((one.loss for one in events), Amount())
    found = second_opinion(events, "1e-7")
    assert found is not None
    assert (found.accountant, found.delta) == (accountant, "0.0000001")
    ours = implied_epsilon(spent, Fraction(1, 10**7))
    assert ours / 4 < Decimal(found.epsilon) <= ours * Decimal("1.02")


def test_the_failure_of_a_selection_is_part_of_the_claims_delta():
    record = a_record(a_request(plan=charging(*INSIGHTS)), second_opinion=second_opinion(INSIGHTS, "1e-7"))
    assert record.claim is not None
    assert record.claim.delta_fail == "0.00000001"
    assert record.claim.replace_one.rho is None  # re-converted from (2 epsilon, (1 + e^epsilon) delta)
    assert "0.00000001" in card(record, ())


@pytest.mark.parametrize("events", [INSIGHTS, [*INSIGHTS[:3], event(11)]])
def test_a_release_with_a_selection_passes_every_check_but_that_of_the_plan(make_release, tmp_path, events):
    """The plan is another system's; claim, events and the independent accountant agree with it all the same."""
    request = a_request(plan=charging(*events))
    record = a_record(request, second_opinion=second_opinion(events, "1e-7"))
    assert failures(make_release(record), tmp_path / "out") == {"plan"}


def test_a_rosier_opinion_on_a_selection_is_found(make_release, tmp_path):
    request = a_request(plan=charging(*INSIGHTS))
    record = a_record(request, second_opinion=second_opinion(INSIGHTS[1:], "1e-7"))
    assert failures(make_release(record), tmp_path / "out") == {"plan", "independent accountant"}
