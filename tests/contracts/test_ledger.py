"""What the services of the budget say to their callers: errors of plans and blocks, and what an invocation stores."""

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.services.budget import Attempt, InvocationPlan
from models_db.sessions.database import Database
from models_db.tables import Invocation
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tests.support import PROVENANCE, World, planned

PLAN = (planned(Amount(10, 1), Amount(20), Amount(30)), planned(Amount(5), mechanism="noisy_count"))


@pytest.fixture
def world(database: Database) -> World:
    """Its requests are approved for the plan of this file."""
    return World.create(database, approved=PLAN)


def invocations(session: Session, request_id: int) -> list[Invocation]:
    """The mechanisms that a request invoked, in order."""
    query = select(Invocation).where(Invocation.request_id == request_id)
    return list(session.scalars(query.order_by(Invocation.attempt, Invocation.sequence)))


def test_a_block_without_an_account_is_an_error(world: World) -> None:
    world.dataset(blocks=2)
    attempt = world.running()
    wrong = Attempt(attempt.request_id, attempt.number, attempt.dataset, attempt.account_id, (0, 1, 2))
    with pytest.raises(ValueError, match="have accounts"):
        world.hold(wrong, *PLAN)


@pytest.mark.parametrize("instalments", [(), (Amount(9),), (Amount(5), Amount(4))])
def test_instalments_cover_the_event(instalments: tuple[Amount, ...]) -> None:
    event = PrivacyEvent("integer_draw", 1, {}, Amount(10), {"kind": "NoOp"})
    with pytest.raises(ValueError, match="do not cover"):
        InvocationPlan(event, instalments)
    InvocationPlan(event, (*instalments, Amount(10)))


def test_provenance_is_stored(world: World) -> None:
    world.dataset()
    attempt = world.held()
    with world.database.read() as session:
        stored = invocations(session, attempt.request_id)[0]
    assert (stored.device, stored.code_digest, stored.rng_kind) == (PROVENANCE.device, PROVENANCE.code_digest, "os")
    assert stored.created_by == world.runner.id
