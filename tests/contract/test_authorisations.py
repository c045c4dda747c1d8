"""What stewards decide besides releases: authorisations of runs, another cap, a retraction; and what these never do."""

from typing import Any

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import Driver, planned, refusal_of

RUN = planned(Amount(10))
YESTERDAY = "2020-06-30T23:59:59.000000Z"


@pytest.fixture
def driver(database: Database) -> Driver:
    made = Driver.on(database)
    made.register()
    made.enrol("second")
    return made


def authorised(driver: Driver, **terms: Any) -> int:
    number = driver.propose_authorisation(**terms)
    assert driver.approve(number, "proposal") == "carried"
    return number


# --- authorisations of runs ------------------------------------------------------------------------------------------


def test_runs_are_drawn_one_by_one_and_a_failed_one_counts(driver: Driver) -> None:
    number = driver.propose_authorisation(runs=2)
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"
    driver.approve(number, "proposal")
    first, second = driver.request_run(number), driver.request_run(number)
    attempt = driver.start(first)
    driver.reserve(attempt, RUN)
    driver.fail(attempt)
    driver.start(first)
    assert refusal_of(lambda: driver.start(second)) == "AuthorisationExhausted"
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"


@pytest.mark.parametrize(
    "change", [{"epsilon": "2"}, {"code": "another"}, {"policy": "another"}, {"kind": "insights"}], ids=str
)
def test_it_is_for_one_configuration(driver: Driver, change: dict[str, str]) -> None:
    number = authorised(driver)
    assert refusal_of(lambda: driver.request_run(number, **change)) == "AuthorisationExhausted"
    driver.request_run(number)


@pytest.mark.parametrize("most", [Amount(9), Amount(0)], ids=str)
def test_it_covers_no_more_than_it_says(driver: Driver, most: Amount) -> None:
    number = authorised(driver, most=most)
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"


def test_after_its_last_day_it_covers_nothing(driver: Driver) -> None:
    number = authorised(driver, until=YESTERDAY)
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"


def test_a_steward_ends_it_and_what_runs_arms_no_more(driver: Driver) -> None:
    number = authorised(driver)
    attempt = driver.start(driver.request_run(number))
    driver.reserve(attempt, RUN)
    assert driver.reject(number, "proposal", "second") == "ended"
    assert refusal_of(lambda: driver.arm_part(attempt)) == "RuleViolated"
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"
    assert driver.spent() == {0: Amount()}


def test_who_approved_it_neither_requests_nor_runs_under_it(driver: Driver) -> None:
    driver.enrol("both", "steward", "analyst", "runner")
    number = driver.propose_authorisation()
    driver.approve(number, "proposal", "both")
    assert refusal_of(lambda: driver.request_run(number, by="both")) == "OwnAuthorisation"
    request = driver.request_run(number)
    assert refusal_of(lambda: driver.start(request, by="both")) == "OwnAuthorisation"
    assert driver.state(request) == "approved"


def test_no_other_proposal_is_an_authorisation(driver: Driver) -> None:
    number = driver.propose_cap(Amount(2000, 200))
    driver.approve(number, "proposal")
    assert refusal_of(lambda: driver.request_run(number)) == "AuthorisationExhausted"


# --- another cap -----------------------------------------------------------------------------------------------------


def test_another_cap_leaves_what_is_spent(driver: Driver) -> None:
    driver.release()
    number = driver.propose_cap(Amount(2000, 200))
    assert driver.cap() == Amount(1000, 100)
    assert driver.approve(number, "proposal") == "carried"
    assert (driver.cap(), driver.spent()) == (Amount(2000, 200), {0: Amount(10)})
    assert driver.sound()


def test_a_cap_below_what_is_taken_is_refused_also_when_it_is_carried(driver: Driver) -> None:
    waiting = driver.propose_cap(Amount(5, 100))
    driver.release()
    assert refusal_of(lambda: driver.propose_cap(Amount(9, 100))) == "CapTooLow"
    assert refusal_of(lambda: driver.approve(waiting, "proposal")) == "CapTooLow"
    assert (driver.proposal_state(waiting), driver.cap()) == ("open", Amount(1000, 100))
    driver.approve(driver.propose_cap(Amount(10, 0)), "proposal")
    assert driver.left() == Amount()


def test_two_of_two_approve_and_one_rejects(database: Database) -> None:
    driver = Driver.on(database, proposal_approvals=2)
    driver.register()
    for name in ("second", "third"):
        driver.enrol(name)
    first, other = driver.propose_cap(Amount(2000, 100)), driver.propose_cap(Amount(3000, 100))
    assert driver.approve(first, "proposal") == "open"
    assert refusal_of(lambda: driver.approve(first, "proposal")) == "RuleViolated"
    assert driver.approve(first, "proposal", "second") == "carried"
    driver.approve(other, "proposal")
    assert driver.reject(other, "proposal", "second") == "rejected"
    assert driver.cap() == Amount(2000, 100)
    for number in (first, other):
        assert refusal_of(lambda number=number: driver.approve(number, "proposal", "third")) == "ProposalDecided"


def test_an_approval_is_taken_back_until_the_proposal_is_carried(database: Database) -> None:
    driver = Driver.on(database, proposal_approvals=2)
    driver.register()
    driver.enrol("second")
    number = driver.propose_cap(Amount(2000, 100))
    driver.approve(number, "proposal")
    assert driver.take_back(number, "proposal") == "open"
    assert driver.approve(number, "proposal", "second") == "open"
    assert refusal_of(lambda: driver.take_back(number, "proposal")) == "NothingToWithdraw"
    assert driver.approve(number, "proposal") == "carried"
    assert refusal_of(lambda: driver.take_back(number, "proposal", "second")) == "RuleViolated"


def test_who_proposes_does_not_decide_and_not_everybody_proposes(driver: Driver) -> None:
    own = driver.propose_cap(Amount(2000, 100), by="steward")
    assert refusal_of(lambda: driver.approve(own, "proposal")) == "RuleViolated"
    assert refusal_of(lambda: driver.propose_cap(Amount(2000, 100), by="runner")) == "RoleDenied"


# --- retractions -----------------------------------------------------------------------------------------------------


def test_a_retraction_leaves_what_was_spent(driver: Driver) -> None:
    request, waiting = driver.release(), driver.request()
    driver.approve(request, "publish")
    driver.publish(request)
    assert refusal_of(lambda: driver.propose_retraction(waiting)) == "NotPublished"
    number = driver.propose_retraction(request)
    assert driver.state(request) == "published"
    assert driver.approve(number, "proposal") == "carried"
    assert (driver.state(request), driver.spent()) == ("retracted", {0: Amount(10)})
