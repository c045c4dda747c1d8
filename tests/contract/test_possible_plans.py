"""A plan that cannot be charged is refused when it is submitted: nobody approves it, and nothing is paid for it."""

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import Driver, planned, refusal_of

MOST = 9 * 10**18
"""Plans that cost more are refused; a counter holds 2^63 - 1."""


@pytest.fixture
def driver(database: Database) -> Driver:
    made = Driver.on(database)
    made.register(blocks=2)
    return made


@pytest.mark.parametrize("blocks", [[], [2], [0, 1, 2], [0, 5], [2147483647]], ids=str)
def test_a_plan_of_blocks_without_accounts(driver: Driver, blocks: list[int]) -> None:
    assert refusal_of(lambda: driver.request_blocks(blocks)) == "RuleViolated"


@pytest.mark.parametrize("blocks", [[0], [1], [1, 0], [0, 0]], ids=str)
def test_a_plan_of_some_blocks(driver: Driver, blocks: list[int]) -> None:
    assert refusal_of(lambda: driver.request_blocks(blocks)) is None


@pytest.mark.parametrize(
    "amounts",
    [
        [Amount(MOST), Amount(MOST // 100)],
        [Amount(1, MOST), Amount(1, MOST // 100)],
        [Amount(MOST // 4)] * 5,
        [Amount(2**63 - 1)] * 3,
        [Amount(2**63 - 1, 2**63 - 1)],
    ],
    ids=str,
)
def test_a_plan_that_no_counter_holds(driver: Driver, amounts: list[Amount]) -> None:
    assert refusal_of(lambda: driver.request([planned(*amounts)])) == "RuleViolated"
    several = [planned(each) for each in amounts]
    assert refusal_of(lambda: driver.request(several)) == "RuleViolated"


def test_a_plan_beyond_every_cap_is_started_and_not_reserved(driver: Driver) -> None:
    """It can be counted, so that it is refused by name wherever it is too much."""
    plan = [planned(*[Amount(MOST // 4, MOST // 4)] * 4)]
    request = driver.request(plan)
    driver.approve(request)
    attempt = driver.start(request)
    held = {(0, part, block): Amount(MOST // 4, MOST // 4) for part in range(4) for block in range(2)}
    assert refusal_of(lambda: driver.hold(attempt, plan, held)) == "CapExceeded"
    driver.fail(attempt)
    assert driver.spent() == {0: Amount(), 1: Amount()}
