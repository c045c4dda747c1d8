"""Eight processes race for a nearly spent account: exactly what is affordable is spent, on both backends."""

import pytest

from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.contract.driver import Attempt, Driver, planned
from tests.contract.racing import race

CONCERNS = ("migrations/schema", "models_db/services", "models_db/writes")

PROCESSES = 8
ATTEMPTS = 3
AFFORDABLE = 14
PLAN = (planned(Amount(60, 1), Amount(40, 1)),)
LOSS = Amount(100, 2)
BLOCKS = 2


def started(driver: Driver) -> Attempt:
    request = driver.request(PLAN)
    driver.approve(request)
    return driver.start(request)


@pytest.mark.slow
def test_exactly_the_affordable_releases_succeed(database: Database) -> None:
    driver = Driver.on(database)
    driver.register(cap=LOSS * AFFORDABLE + Amount(99, 1), blocks=BLOCKS)
    outcomes = race(driver, [started(driver) for _ in range(PROCESSES * ATTEMPTS)], PLAN, PROCESSES)
    refused = PROCESSES * ATTEMPTS - AFFORDABLE
    assert sorted(outcomes) == ["BudgetExceeded"] * refused + ["produced"] * AFFORDABLE
    assert driver.spent() == dict.fromkeys(range(BLOCKS), LOSS * AFFORDABLE)
    assert driver.held() == dict.fromkeys(range(BLOCKS), Amount())
    assert driver.left() == Amount(99, 1)
    assert driver.sound()
