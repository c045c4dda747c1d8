"""The gates: how many approvals, by whom, of what, until when, and until they are used."""

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import Driver, planned, refusal_of


@pytest.fixture
def driver(database: Database) -> Driver:
    made = Driver.on(database)
    made.register()
    made.enrol("second")
    made.enrol("third")
    return made


def governed(database: Database, datasets: dict[str, dict[str, int]], **policy: int) -> Driver:
    made = Driver.on(database, datasets=datasets, **policy)
    for dataset in ("clinic", "harbour"):
        made.register(dataset)
    made.enrol("second")
    made.enrol("third")
    return made


# --- how many, and by whom -------------------------------------------------------------------------------------------


def test_a_dataset_may_need_more_approvals_than_others(database: Database) -> None:
    driver = governed(database, {"clinic": {"spend_approvals": 2, "publish_approvals": 3}})
    assert driver.approve(driver.request(dataset="harbour")) == "approved"
    request = driver.request()
    assert driver.approve(request) == "submitted"
    assert refusal_of(lambda: driver.start(request)) == "GateClosed"
    assert refusal_of(lambda: driver.open_gate(request)) == "RuleViolated"
    assert driver.approve(request, by="second") == "approved"
    attempt = driver.start(request)
    driver.reserve(attempt)
    driver.arm_part(attempt)
    driver.produce(attempt)
    for by in ("steward", "second"):
        driver.approve(request, "publish", by)
        assert refusal_of(lambda: driver.publish(request)) == "GateClosed"
    driver.approve(request, "publish", "third")
    driver.publish(request)
    assert driver.state(request) == "published"


def test_datasets_of_one_account_need_what_the_strictest_needs(database: Database) -> None:
    driver = governed(database, {"clinic": {"spend_approvals": 2}})
    driver.register("ward", beside="clinic")
    assert driver.approve(driver.request(dataset="ward")) == "submitted"


def test_one_person_counts_once(database: Database) -> None:
    driver = governed(database, {"clinic": {"spend_approvals": 2}})
    request = driver.request()
    driver.approve(request)
    assert refusal_of(lambda: driver.approve(request)) == "RuleViolated"
    assert driver.state(request) == "submitted"


@pytest.mark.parametrize("by", ["analyst", "runner", "admin"])
def test_nobody_but_stewards_decides(driver: Driver, by: str) -> None:
    assert refusal_of(lambda: driver.approve(driver.request(), by=by)) in ("RoleDenied", "RuleViolated")


def test_a_steward_who_leaves_takes_the_approval_along(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request, by="second")
    driver.dismiss("second", "steward")
    assert refusal_of(lambda: driver.start(request)) == "GateClosed"
    driver.approve(request)
    driver.start(request)


# --- one rejection ends it -------------------------------------------------------------------------------------------


def test_one_rejection_ends_a_request_whatever_else_is_said(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request)
    assert driver.reject(request, by="second") == "rejected"
    assert refusal_of(lambda: driver.approve(request, by="third")) == "WrongState"
    assert refusal_of(lambda: driver.start(request)) == "WrongState"


def test_a_rejection_after_an_approval_of_ones_own_counts(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request)
    assert driver.reject(request) == "rejected"


def test_a_rejected_release_is_never_published_and_stays_paid(driver: Driver) -> None:
    request = driver.release()
    driver.approve(request, "publish", "second")
    assert driver.reject(request, "publish") == "discarded"
    assert refusal_of(lambda: driver.publish(request)) == "WrongState"
    assert driver.spent() == {0: Amount(10)}


# --- of what ---------------------------------------------------------------------------------------------------------


def test_only_the_digest_of_the_request_is_approved(driver: Driver) -> None:
    request = driver.request()
    before = driver.everything()
    assert refusal_of(lambda: driver.approve_another(request, "d" * 64)) is not None
    assert driver.everything() == before


def test_a_request_is_made_under_the_policy_in_force(driver: Driver) -> None:
    assert refusal_of(lambda: driver.request_under(spend_approvals=2)) == "RuleViolated"


def test_a_request_keeps_the_policy_that_it_was_made_under(driver: Driver) -> None:
    waiting = driver.request()
    driver.adopt(spend_approvals=2)
    assert driver.approve(waiting) == "approved"
    assert driver.approve(driver.request()) == "submitted"
    driver.adopt()
    assert driver.approve(driver.request()) == "approved"


# --- until when ------------------------------------------------------------------------------------------------------


def test_an_approval_is_given_again_after_it_expired(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request, hours=1)
    assert refusal_of(lambda: driver.approve(request)) == "RuleViolated"
    with driver.later(hours=2):
        assert refusal_of(lambda: driver.start(request)) == "GateClosed"
        driver.approve(request)
        driver.start(request)


def test_what_expired_arms_nothing(driver: Driver) -> None:
    plan = planned(Amount(10), Amount(10))
    request = driver.request([plan])
    driver.approve(request, hours=1)
    attempt = driver.start(request)
    driver.reserve(attempt, plan)
    driver.arm_part(attempt)
    before = driver.everything()
    with driver.later(hours=2):
        assert refusal_of(lambda: driver.arm_part(attempt, instalment=1)) == "RuleViolated"
    assert driver.everything() == before
    driver.fail(attempt)
    with driver.later(hours=2):
        assert refusal_of(lambda: driver.start(request)) == "GateClosed"


def test_a_request_that_expired_is_not_started(driver: Driver) -> None:
    request = driver.request(hours=1)
    driver.approve(request)
    with driver.later(hours=2):
        assert refusal_of(lambda: driver.start_without_lease(request)) == "RuleViolated"


# --- until it is used ------------------------------------------------------------------------------------------------


def test_an_approval_is_taken_back_and_the_request_waits_again(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request)
    assert driver.take_back(request) == "submitted"
    assert refusal_of(lambda: driver.start(request)) == "GateClosed"
    assert refusal_of(lambda: driver.take_back(request)) == "NothingToWithdraw"
    assert driver.approve(request) == "approved"
    driver.start(request)
    assert refusal_of(lambda: driver.take_back(request)) == "RuleViolated"


def test_a_taken_back_approval_does_not_return_by_its_signature(driver: Driver) -> None:
    request = driver.request()
    assert driver.sign(request, "the same") == "approved"
    driver.take_back(request)
    assert refusal_of(lambda: driver.sign(request, "the same")) == "RuleViolated"


def test_more_than_enough_approvals_outlive_one(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request)
    driver.approve(request, by="second")
    assert driver.take_back(request, by="second") == "approved"
    assert driver.take_back(request) == "submitted"


def test_a_publish_approval_is_taken_back_until_it_is_published(driver: Driver) -> None:
    request = driver.release()
    driver.approve(request, "publish")
    assert driver.take_back(request, "publish") == "produced"
    assert refusal_of(lambda: driver.publish(request)) == "GateClosed"
    driver.approve(request, "publish")
    driver.publish(request)
    assert refusal_of(lambda: driver.take_back(request, "publish")) == "RuleViolated"


def test_nobody_takes_back_what_another_gave(driver: Driver) -> None:
    request = driver.request()
    driver.approve(request)
    before = driver.everything()
    assert refusal_of(lambda: driver.take_back(request, by="second")) == "NothingToWithdraw"
    assert driver.everything() == before


# --- how much --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "refused"), [(Amount(51), "RuleViolated"), (Amount(50, 5), None), (Amount(1, 6), "RuleViolated")]
)
def test_a_release_costs_no_more_than_the_rule_says(database: Database, asked: Amount, refused: str | None) -> None:
    driver = governed(database, {"clinic": {"rho_max": 50, "delta_max": 5}}, rho_max=200)
    assert refusal_of(lambda: driver.release("clinic", planned(asked))) == refused
    assert refusal_of(lambda: driver.release("harbour", planned(Amount(200)))) is None
    assert refusal_of(lambda: driver.release("harbour", planned(Amount(201)))) == "RuleViolated"


def test_a_release_of_several_mechanisms_is_one_release(database: Database) -> None:
    driver = governed(database, {}, rho_max=50)
    assert refusal_of(lambda: driver.release("clinic", planned(Amount(30)), planned(Amount(21)))) == "RuleViolated"
    plan = planned(Amount(30)), planned(Amount(20))
    request = driver.request(plan)
    driver.approve(request)
    attempt = driver.start(request)
    driver.reserve(attempt, *plan)
    driver.arm_part(attempt)
    driver.fail(attempt)
    again = driver.start(request)  # another attempt is another release, and costs again
    driver.reserve(again, *plan)


def test_a_release_beyond_the_cap_is_refused(driver: Driver) -> None:
    assert refusal_of(lambda: driver.release("clinic", planned(Amount(1001)))) == "BudgetExceeded"
    assert driver.left() == Amount(1000, 100)
