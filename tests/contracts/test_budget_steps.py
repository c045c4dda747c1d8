"""Holds and arms are refused by name, with figures, and change nothing."""

import pytest

from models_db.services import attempts, budget
from models_db.services.budget import Attempt, AttemptClosed, BudgetExceeded
from models_db.sessions.database import Database
from models_db.tables import Lease
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.support import PROVENANCE, World, fetch, planned, snapshot

PLAN = (planned(Amount(3, 1), Amount(4)), planned(Amount(5), mechanism="noisy_count"))
LEFT = """
SELECT i.sequence, i.mechanism, a.block, h.instalment, h.rho, h.delta, e.kind
FROM entry e JOIN hold h ON h.id = e.hold_id JOIN invocation i ON i.id = h.invocation_id
JOIN account a ON a.id = h.account_id WHERE i.request_id = :request ORDER BY e.id
"""


@pytest.fixture
def world(database: Database) -> World:
    """Its requests are approved for the plan of this file."""
    return World.create(database, approved=PLAN)


def hold(world: World, attempt: Attempt) -> None:
    with world.database.write() as session:
        budget.hold(session, world.runner, attempt, PLAN, PROVENANCE)


def arm(world: World, attempt: Attempt, instalment: int, token: str | None = None) -> Amount:
    with world.database.write() as session:
        lease = attempts.lease_renewal(token) if token else None
        return budget.arm(session, world.runner, attempt, 0, instalment, lease)


def test_of_several_blocks_only_the_eligible(world: World) -> None:
    world.dataset(blocks=3)
    first = world.running()
    attempt = Attempt(first.request_id, first.number, first.dataset, first.account_id, (2, 0))
    hold(world, attempt)
    held = fetch(world.database, LEFT, request=attempt.request_id)
    assert [row[2:5] for row in held] == [(0, 0, 3), (0, 1, 4), (2, 0, 3), (2, 1, 4), (0, 0, 5), (2, 0, 5)]


def test_a_block_without_an_account_is_an_error(world: World) -> None:
    world.dataset()
    first = world.running()
    before = snapshot(world.database)
    with pytest.raises(ValueError, match="have accounts"):
        hold(world, Attempt(first.request_id, 1, first.dataset, first.account_id, (0, 7)))
    assert snapshot(world.database) == before


def test_what_does_not_fit_is_refused_with_figures(world: World) -> None:
    world.dataset(cap=Amount(11, 1))
    attempt = world.running()
    before = snapshot(world.database)
    with pytest.raises(BudgetExceeded) as refusal:
        hold(world, attempt)
    assert (refusal.value.requested, refusal.value.remaining) == (Amount(12, 1), Amount(11, 1))
    assert snapshot(world.database) == before


def test_what_is_armed_or_not_held_is_refused_by_name(world: World) -> None:
    world.dataset()
    attempt = world.running()
    hold(world, attempt)
    arm(world, attempt, 0)
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 0)
    with pytest.raises(RuleViolated, match="nothing is held"):
        arm(world, attempt, 2)
    assert snapshot(world.database) == before


def test_arming_prolongs_the_lease_of_its_holder_only(world: World) -> None:
    world.dataset()
    request_id = world.request()
    world.decide(request_id)
    with world.database.write() as session:
        attempts.start_attempt(session, world.runner, request_id, "mine", "here:1")
        attempt = budget.load_attempt(session, request_id, 1, (0,))
    hold(world, attempt)
    first = ends(world.database, request_id)
    arm(world, attempt, 0, "mine")
    assert ends(world.database, request_id) > first
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 1, "another's")
    assert snapshot(world.database) == before


def ends(database: Database, request_id: int) -> str:
    with database.read() as session:
        return session.get_one(Lease, request_id).expires_at


def test_what_arrives_after_the_end_of_its_attempt_changes_nothing(world: World) -> None:
    """A statement whose connection was lost may begin on the server when the run has long given up."""
    world.dataset()
    attempt, late = world.running(), world.running()
    hold(world, attempt)
    for ended in (attempt, late):
        world.fail(ended)
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 0)
    with pytest.raises(RuleViolated, match="only the running attempt"):
        hold(world, late)
    assert snapshot(world.database) == before
