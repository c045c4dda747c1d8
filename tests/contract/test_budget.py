"""What the budget promises: amounts are held, then spent for good or given back; a refusal leaves no trace."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import Attempt, Driver, InvocationPlan, planned, refusal_of

PLAN = (planned(Amount(10, 1), Amount(20), Amount(30)), planned(Amount(5), mechanism="noisy_count"))
WHOLE = Amount(65, 1)


@pytest.fixture
def driver(database: Database) -> Driver:
    return Driver.on(database)


def started(driver: Driver, *plan: InvocationPlan, dataset: str = "clinic") -> Attempt:
    request = driver.request(plan or PLAN, dataset)
    driver.approve(request)
    return driver.start(request)


def reserved(driver: Driver, *plan: InvocationPlan, dataset: str = "clinic") -> Attempt:
    attempt = started(driver, *plan, dataset=dataset)
    driver.reserve(attempt, *plan or PLAN)
    return attempt


def refused(driver: Driver, act: Callable[[], object], name: str) -> None:
    """An act is refused by a name, and the ledger is what it was."""
    before = driver.everything()
    assert refusal_of(act) == name
    assert driver.everything() == before


def figures(driver: Driver) -> tuple[dict[int, Amount], dict[int, Amount]]:
    return driver.held(), driver.spent()


def both(held: Amount, spent: Amount, blocks: int = 2) -> tuple[dict[int, Amount], dict[int, Amount]]:
    return dict.fromkeys(range(blocks), held), dict.fromkeys(range(blocks), spent)


# --- the way of an amount --------------------------------------------------------------------------------------------


def test_what_is_held_is_armed_part_by_part(driver: Driver) -> None:
    driver.register(cap=Amount(100, 5), blocks=2)
    attempt = reserved(driver)
    assert figures(driver) == both(WHOLE, Amount())
    assert driver.arm_part(attempt, 0, 0) == Amount(10, 1)
    assert figures(driver) == both(Amount(55), Amount(10, 1))
    assert driver.arm_part(attempt, 1, 0) == Amount(5)
    assert driver.arm_part(attempt, 0, 1) == Amount(20)
    assert figures(driver) == both(Amount(30), Amount(35, 1))
    driver.produce(attempt)
    assert figures(driver) == both(Amount(), WHOLE)
    assert driver.sound()


def test_an_attempt_that_dies_keeps_what_it_armed_spent(driver: Driver) -> None:
    driver.register(cap=Amount(100, 5))
    attempt = reserved(driver)
    driver.arm_part(attempt)
    driver.fail(attempt)
    assert figures(driver) == both(Amount(), Amount(10, 1), 1)
    assert driver.state(attempt.request_id) == "approved"
    assert driver.sound()


def test_an_attempt_that_never_armed_costs_nothing(driver: Driver) -> None:
    driver.register(cap=Amount(100, 5))
    driver.fail(reserved(driver))
    assert figures(driver) == both(Amount(), Amount(), 1)


def test_an_attempt_that_begins_anew_is_charged_again(driver: Driver) -> None:
    driver.register(cap=Amount(100, 5))
    first = reserved(driver)
    driver.arm_part(first, 0, 1)
    driver.fail(first)
    second = driver.start(first.request_id)
    driver.reserve(second, *PLAN)
    driver.produce(second)
    assert figures(driver) == both(Amount(), WHOLE + Amount(20), 1)


def test_only_the_blocks_that_are_read_are_charged_and_the_fullest_counts(driver: Driver) -> None:
    driver.register(cap=Amount(100), blocks=3)
    plan = planned(Amount(30), Amount(30))
    attempt = replace(started(driver, plan), blocks=(0, 2))
    driver.reserve(attempt, plan)
    driver.arm_part(attempt)
    assert driver.spent() == {0: Amount(30), 1: Amount(), 2: Amount(30)}
    assert driver.held() == {0: Amount(30), 1: Amount(), 2: Amount(30)}
    assert driver.left() == Amount(40)


def test_datasets_on_one_account_share_its_budget(driver: Driver) -> None:
    driver.register("a", Amount(100))
    driver.register("b", beside="a")
    reserved(driver, planned(Amount(70)), dataset="a")
    attempt = started(driver, planned(Amount(31)), dataset="b")
    refused(driver, lambda: driver.reserve(attempt, planned(Amount(31))), "BudgetExceeded")
    reserved(driver, planned(Amount(30)), dataset="b")
    assert driver.left("a") == driver.left("b") == Amount()


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [Amount(64, 5), Amount(100, 0), Amount(0, 0)], ids=str)
def test_a_plan_over_the_cap_leaves_everything_as_it_was(driver: Driver, cap: Amount) -> None:
    driver.register(cap=cap, blocks=2)
    attempt = started(driver)
    refused(driver, lambda: driver.reserve(attempt, *PLAN), "BudgetExceeded")


def test_a_plan_may_use_the_last_unit(driver: Driver) -> None:
    driver.register(cap=WHOLE)
    reserved(driver)
    assert driver.left() == Amount()


def test_one_full_block_refuses_the_whole_plan(driver: Driver) -> None:
    driver.register(cap=Amount(100), blocks=2)
    fills, asks = planned(Amount(90)), planned(Amount(20))
    driver.reserve(replace(started(driver, fills), blocks=(1,)), fills)
    attempt = started(driver, asks)
    refused(driver, lambda: driver.reserve(attempt, asks), "BudgetExceeded")


# --- out of order ----------------------------------------------------------------------------------------------------


def test_nothing_is_held_for_a_request_that_does_not_run(driver: Driver) -> None:
    driver.register()
    attempt = started(driver)
    driver.fail(attempt)
    refused(driver, lambda: driver.reserve(attempt, *PLAN), "RuleViolated")


def test_one_attempt_holds_its_plan_once(driver: Driver) -> None:
    driver.register()
    attempt = reserved(driver)
    refused(driver, lambda: driver.reserve(attempt, *PLAN), "AlreadyRecorded")


def test_what_is_not_held_is_not_armed(driver: Driver) -> None:
    driver.register()
    attempt = started(driver)
    refused(driver, lambda: driver.arm_part(attempt), "RuleViolated")
    driver.reserve(attempt, *PLAN)
    refused(driver, lambda: driver.arm_part(attempt, 0, 3), "RuleViolated")
    refused(driver, lambda: driver.arm_part(attempt, 2, 0), "RuleViolated")


def test_nothing_is_armed_twice(driver: Driver) -> None:
    driver.register()
    attempt = reserved(driver)
    driver.arm_part(attempt)
    refused(driver, lambda: driver.arm_part(attempt), "AttemptClosed")


def test_a_swept_run_that_comes_back_gets_no_further(driver: Driver) -> None:
    """Swept after arming, before arming, and before holding: whatever it tries, at once and later."""
    driver.register()
    armed, held, begun = reserved(driver), reserved(driver), started(driver)
    driver.arm_part(armed)
    for attempt in (armed, held, begun):
        driver.fail(attempt)
    for _ in ("swept", "started again"):
        for attempt in (armed, held):
            refused(driver, lambda attempt=attempt: driver.arm_part(attempt, 0, 1), "AttemptClosed")
        refused(driver, lambda: driver.reserve(begun, *PLAN), "RuleViolated")
        for attempt in (armed, held, begun):
            refused(driver, lambda attempt=attempt: driver.fail(attempt), "AttemptClosed")
            refused(driver, lambda attempt=attempt: driver.produce(attempt), "AttemptClosed")
        if driver.state(armed.request_id) == "approved":
            for attempt in (armed, held, begun):
                driver.start(attempt.request_id)


def test_every_step_is_in_the_record(driver: Driver) -> None:
    driver.register(blocks=2)
    attempt = reserved(driver)
    driver.arm_part(attempt, 0, 1)
    driver.arm_part(attempt, 1, 0)
    driver.produce(attempt)
    assert driver.record(attempt.request_id) == [
        "request.submitted", "request.approve", "run.started", "ledger.hold", "ledger.arm",
        "ledger.arm", "ledger.commit+run.produced",
    ]  # fmt: skip


# --- runs that go on -------------------------------------------------------------------------------------------------


def interrupted(driver: Driver, *armed: tuple[int, int]) -> int:
    """A request whose first attempt died after it had armed these; the cap affords the plan once."""
    driver.register(cap=Amount(70, 5), blocks=2)
    attempt = reserved(driver)
    for each in armed:
        driver.arm_part(attempt, *each)
    driver.fail(attempt)
    return attempt.request_id


def going_on(driver: Driver, request: int, before: Attempt | None = None) -> Attempt:
    first = Attempt(request, 1 if before is None else before.number, "clinic", 1, (0, 1))
    attempt = driver.go_on(request, first)
    driver.reserve_rest(attempt, *PLAN)
    return attempt


def test_it_holds_what_was_never_armed_and_arms_the_rest(driver: Driver) -> None:
    request = interrupted(driver, (0, 0), (1, 0))
    second = going_on(driver, request)
    assert figures(driver) == both(Amount(50), Amount(15, 1))
    assert driver.arm_part(second, 0, 0) == driver.arm_part(second, 1, 0) == Amount()
    assert driver.arm_part(second, 0, 1) == Amount(20)
    driver.fail(second)
    assert figures(driver) == both(Amount(), Amount(35, 1))
    driver.produce(going_on(driver, request))
    assert figures(driver) == both(Amount(), WHOLE)
    assert driver.sound()


def test_one_that_needs_nothing_more_ends_at_no_charge(driver: Driver) -> None:
    request = interrupted(driver, (0, 0), (0, 1), (0, 2), (1, 0))
    driver.produce(going_on(driver, request))
    assert figures(driver) == both(Amount(), WHOLE)
    assert driver.sound()


def test_another_request_may_have_taken_what_was_given_back(driver: Driver) -> None:
    request = interrupted(driver, (0, 0), (1, 0))
    reserved(driver, planned(Amount(6)))
    assert refusal_of(lambda: going_on(driver, request)) == "BudgetExceeded"
