"""Whatever a runner's own client leaves behind, an attempt can be closed by others, and counts for no less than it is.

The ledger refuses to arm a block before what narrows it, and no other deed; then a sweep closes the attempt, and the
request can be run again.
"""

from functools import partial

import pytest
from sqlalchemy.orm import Session

from models_db.services.audit.chain import Actor
from models_db.services.lifecycle import attempts
from models_db.services.lifecycle.ledger import Attempt
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.contract.driver import Driver, planned, refusal_of

BLOCKS = 2
PLAN = (planned(Amount(10), Amount(7)),)
COST = 17
MOST = Amount(100)


def narrowed(driver: Driver, kind: str) -> Attempt:
    """An attempt whose whole plan is reserved, in an envelope or in none."""
    driver.register(blocks=BLOCKS)
    request = driver.request_in_envelope(PLAN, "study", MOST) if kind == "scope" else driver.request(PLAN)
    driver.approve(request)
    attempt = driver.start(request)
    driver.world.hold(attempt, *PLAN)
    return attempt


def each(kind: str, *accounts: str | int) -> tuple[tuple[str, str | int], ...]:
    return tuple((kind, account) for account in accounts)


ALL = ("scope", 0, 1)
CLIENTS: dict[str, tuple[tuple[str, str | int], ...]] = {
    "arms one block alone": each("ARM", 0),
    "arms the last block alone": each("ARM", 1),
    "arms the envelope alone": each("ARM", "scope"),
    "arms the envelope and one block": each("ARM", "scope", 0),
    "arms a block before what narrows it": each("ARM", 0, "scope"),
    "gives back what narrows it and arms": (*each("RELEASE", "scope"), *each("ARM", 0)),
    "arms and gives back what narrows it": (*each("ARM", 0), *each("RELEASE", "scope")),
    "commits what it has armed, by itself": (*each("ARM", "scope", 0), *each("COMMIT", 0)),
    "forfeits what it has armed, by itself": (*each("ARM", "scope", 0), *each("FORFEIT", 0, "scope")),
    "gives one block back": each("RELEASE", 1),
    "gives everything back": each("RELEASE", *ALL),
    "arms and commits everything": (*each("ARM", *ALL), *each("COMMIT", *ALL)),
}
"""What a client records, and on which holds."""
DISTINCT = {
    (kind, tuple((entry, account) for entry, account in deeds if account in (kind, 0, 1))): f"{kind}: {client}"
    for kind in ("nothing", "scope")
    for client, deeds in reversed(CLIENTS.items())
}
"""What is left of that in each kind of ledger, which has no hold on an envelope that it has not."""


@pytest.mark.parametrize(("kind", "deeds"), DISTINCT, ids=DISTINCT.values())
def test_what_a_client_leaves_is_closed_by_a_sweep(
    database: Database, kind: str, deeds: tuple[tuple[str, str | int], ...]
) -> None:
    driver = Driver.on(database)
    attempt = narrowed(driver, kind)
    for number, (entry, account) in enumerate(deeds):
        unnarrowed = entry == "ARM" and kind not in ("nothing", account) and ("ARM", kind) not in deeds[:number]
        refused = refusal_of(partial(driver.enter, attempt, entry, account))
        assert refused == ("RuleViolated" if unnarrowed else None), (entry, account)
    assert driver.sweep() == [attempt.request_id]
    assert driver.state(attempt.request_id) == "approved"
    spent = max(amount.rho for amount in driver.spent().values())
    assert spent in (0, COST)
    assert all(used >= spent for used in driver.used_of_envelopes()), "an envelope counts what its blocks do"
    again = driver.start(attempt.request_id)
    driver.world.hold(again, *PLAN)
    driver.produce(again)
    assert {amount.rho for amount in driver.spent().values()} <= {COST, 2 * COST}


def test_no_block_is_armed_before_what_narrows_it(database: Database) -> None:
    driver = Driver.on(database)
    attempt = narrowed(driver, "scope")
    assert refusal_of(lambda: driver.enter(attempt, "ARM", 0)) == "RuleViolated"
    for account in ALL:
        driver.enter(attempt, "ARM", account)
    assert driver.used_of_envelopes() == [COST]


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
