"""Looking at figures that no mechanism protects: after the decision, between releases, on record for good."""

import pytest

from models_db.sessions.database import Database
from tests.contract.driver import Driver, refusal_of


@pytest.fixture
def driver(database: Database) -> Driver:
    made = Driver.on(database)
    made.register()
    made.register("ward", beside="clinic")
    made.register("harbour")
    return made


def published(driver: Driver, dataset: str = "clinic") -> int:
    request = driver.release(dataset)
    driver.approve(request, "publish")
    driver.publish(request)
    return request


def test_nobody_looks_before_the_decision(driver: Driver) -> None:
    request = driver.release()
    before = driver.everything()
    assert refusal_of(lambda: driver.look(request)) == "ReleaseUndecided"
    assert driver.everything() == before


def test_nobody_looks_while_another_release_of_the_account_runs_or_waits(driver: Driver) -> None:
    request, other = published(driver), driver.request(dataset="ward")
    driver.approve(other)
    attempt = driver.start(other)
    assert refusal_of(lambda: driver.look(request)) == "ReleaseUndecided"
    driver.reserve(attempt)
    driver.arm_part(attempt)
    driver.produce(attempt)
    assert refusal_of(lambda: driver.look(request)) == "ReleaseUndecided"
    driver.reject(other, "publish")
    assert driver.look(request)


def test_a_look_is_on_record_for_the_whole_account_and_for_good(driver: Driver) -> None:
    request = published(driver)
    assert driver.viewers() == ()
    driver.look(request, by="admin")
    for _ in range(2):
        assert driver.viewers("clinic") == driver.viewers("ward") == ("admin",)
        published(driver, "ward")
    driver.look(request)
    assert driver.viewers() == ("admin", "steward")
    assert driver.viewers("harbour") == ()
    assert driver.sound()
