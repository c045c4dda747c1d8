"""What the ledger says to an attempt that goes on from others: nothing is paid twice, and it can be committed."""

import pytest

from models_db.services.lifecycle import ledger
from models_db.services.lifecycle.ledger import Attempt
from models_db.services.queries import health
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.contracts.test_ledger import counters, recomputed
from tests.support import PROVENANCE, World, planned

PLAN = (planned(Amount(5), mechanism="noisy_count"), planned(Amount(10, 1), Amount(20, 1), Amount(30, 1)))


@pytest.fixture
def world(database: Database) -> World:
    """Its requests are approved for the plan of this file."""
    return World.create(database, approved=PLAN)


def interrupted(world: World, *armed: tuple[int, int]) -> Attempt:
    """A first attempt that died after it had armed these."""
    world.dataset(cap=Amount(70, 5), blocks=2)
    attempt = world.running()
    world.hold(attempt, *PLAN)
    for each in armed:
        world.arm(attempt, *each)
    world.fail(attempt)
    return attempt


def going_on(world: World, request_id: int, *paid: int) -> Attempt:
    attempt = world.start(request_id, goes_on_from=1)
    with world.database.write() as session:
        ledger.hold(session, world.runner, attempt, PLAN, PROVENANCE, paid)
    return attempt


def armed_by(world: World, request_id: int, *attempts: int) -> dict[int, set[int]]:
    with world.database.read() as session:
        return ledger.armed_instalments(session, request_id, attempts)


def sound(world: World) -> bool:
    with world.database.read() as session:
        return all(finding.ok for finding in health.check_health(session))


def test_it_holds_what_was_never_armed_and_arms_the_rest(world: World) -> None:
    """The cap affords the plan once: a second hold of all of it would be refused."""
    first = interrupted(world, (0, 0), (1, 0))
    assert armed_by(world, first.request_id, 1) == {0: {0}, 1: {0}}
    second = going_on(world, first.request_id, 1, 1)
    assert counters(world) == [(50, 15, 2, 1)] * 2
    assert world.arm(second, 0, 0) == world.arm(second, 1, 0) == Amount()
    assert world.arm(second, 1, 1) == Amount(20, 1)
    world.fail(second)
    assert counters(world) == [(0, 35, 0, 2)] * 2
    assert armed_by(world, first.request_id, 1, 2) == {0: {0}, 1: {0, 1}}
    third = going_on(world, first.request_id, 1, 2)
    world.arm(third, 0, 0)
    world.arm(third, 1, 0)
    world.arm(third, 1, 2)
    world.produce(third)
    assert counters(world) == [(0, 65, 0, 3)] * 2
    assert recomputed(world) == []
    assert sound(world)


def test_one_that_needs_nothing_more_can_be_committed(world: World) -> None:
    first = interrupted(world, (0, 0), (1, 0), (1, 1), (1, 2))
    second = going_on(world, first.request_id, 1, 3)
    world.arm(second, 0, 0)
    world.arm(second, 1, 0)
    world.produce(second)
    assert counters(world) == [(0, 65, 0, 3)] * 2
    assert sound(world)


@pytest.mark.parametrize("instalment", [0, 1])
def test_what_is_paid_is_not_armed_again(world: World, instalment: int) -> None:
    first = interrupted(world, (0, 0), (1, 0), (1, 1))
    second = going_on(world, first.request_id, 1, 2)
    if instalment == 0:
        world.arm(second, 1, 0)
    with pytest.raises((RuleViolated, ledger.AttemptClosed)):
        world.arm(second, 1, instalment)
    assert counters(world) == [(30, 35, 1, 2)] * 2


def test_another_request_may_have_taken_what_was_given_back(world: World) -> None:
    first = interrupted(world, (0, 0), (1, 0))
    world.held(planned(Amount(6)))
    with pytest.raises(ledger.BudgetExceeded) as refusal:
        going_on(world, first.request_id, 1, 1)
    assert (refusal.value.requested, refusal.value.remaining) == (Amount(50, 2), Amount(49, 4))
