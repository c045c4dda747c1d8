"""Whatever a runner's own client leaves behind, an attempt can be closed by others, and counts for no less than it is.

A sweep closes the attempt, and the request can be run again.
"""

import pytest
from sqlalchemy.orm import Session

from models_db.services import attempts
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.contract.driver import Driver, planned, refusal_of

BLOCKS = 2
PLAN = (planned(Amount(10), Amount(7)),)
COST = 17


def each(kind: str, *blocks: int) -> tuple[tuple[str, int], ...]:
    return tuple((kind, block) for block in blocks)


ALL = (0, 1)
CLIENTS: dict[str, tuple[tuple[str, int], ...]] = {
    "arms one block alone": each("ARM", 0),
    "arms the last block alone": each("ARM", 1),
    "arms one block and gives the other back": (*each("ARM", 0), *each("RELEASE", 1)),
    "commits what it has armed, by itself": (*each("ARM", 0), *each("COMMIT", 0)),
    "forfeits what it has armed, by itself": (*each("ARM", 0), *each("FORFEIT", 0)),
    "gives one block back": each("RELEASE", 1),
    "gives everything back": each("RELEASE", *ALL),
    "arms and commits everything": (*each("ARM", *ALL), *each("COMMIT", *ALL)),
}
"""What a client records, and on the holds of which blocks."""


@pytest.mark.parametrize("deeds", CLIENTS.values(), ids=CLIENTS)
def test_what_a_client_leaves_is_closed_by_a_sweep(database: Database, deeds: tuple[tuple[str, int], ...]) -> None:
    driver = Driver.on(database)
    driver.register(blocks=BLOCKS)
    request = driver.request(PLAN)
    driver.approve(request)
    attempt = driver.start(request)
    driver.world.hold(attempt, *PLAN)
    for entry, block in deeds:
        driver.enter(attempt, entry, block)
    assert driver.sweep() == [request]
    assert driver.state(request) == "approved"
    assert {amount.rho for amount in driver.spent().values()} <= {0, COST}
    again = driver.start(request)
    driver.world.hold(again, *PLAN)
    driver.produce(again)
    assert {amount.rho for amount in driver.spent().values()} <= {COST, 2 * COST}


def test_an_attempt_without_a_lease_is_closed_by_a_sweep(database: Database) -> None:
    driver = Driver.on(database)
    driver.register()
    request = driver.request(PLAN)
    driver.approve(request)
    for _ in ("it never had one", "the lease is that of the first attempt"):
        driver.start_without_lease(request)
        assert refusal_of(lambda: driver.start(request)) == "StillRunning"
        assert driver.sweep() == [request]
        driver.fail(driver.start(request))


def test_one_attempt_that_cannot_be_closed_keeps_no_other_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver.on(database)
    driver.register()
    running = []
    for _ in range(3):
        request = driver.request(PLAN)
        driver.approve(request)
        running.append(driver.start(request).request_id)
    close = attempts.fail_attempt

    def closes(session: Session, actor: Actor, attempt: Attempt, reason: str) -> None:
        if attempt.request_id == running[1]:
            raise RuleViolated("a rule")
        close(session, actor, attempt, reason)

    monkeypatch.setattr(attempts, "fail_attempt", closes)
    assert refusal_of(driver.sweep) == "RuleViolated"
    assert [driver.state(request) for request in running] == ["approved", "running", "approved"]
