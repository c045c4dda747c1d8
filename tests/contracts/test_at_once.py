"""Steps that are a whole transaction leave what the same steps leave in several messages, and are refused alike."""

import json
from typing import Any

import pytest

from models_db.database.prepared_statements import PreparedStatement
from models_db.services.lifecycle import attempts, ledger
from models_db.services.lifecycle.ledger import Attempt, AttemptClosed, BudgetExceeded
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
SAID = "SELECT kind, actor, dataset, body FROM audit WHERE request_id = :request AND kind LIKE 'ledger.%' ORDER BY seq"


@pytest.fixture
def world(database: Database) -> World:
    """Its requests are approved for the plan of this file."""
    return World.create(database, approved=PLAN)


@pytest.fixture(params=[True, False], ids=["whole", "in parts"])
def whole(request: pytest.FixtureRequest) -> bool:
    """Both ways."""
    return bool(request.param)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each attempt to do a step in one message did it."""
    done: list[bool] = []
    real = PreparedStatement.execute_as_transaction

    def watched(self: PreparedStatement, *args: Any) -> list[Any]:
        found = real(self, *args)
        done.append(bool(found))
        return found

    monkeypatch.setattr(PreparedStatement, "execute_as_transaction", watched)
    return done


def hold(world: World, attempt: Attempt, whole: bool) -> None:
    with world.database.write() as session:
        ledger.hold(session, world.runner, attempt, PLAN, PROVENANCE, whole=whole)


def arm(world: World, attempt: Attempt, instalment: int, whole: bool, token: str | None = None) -> Amount:
    with world.database.write() as session:
        lease = attempts.lease_renewal(token) if token else None
        return ledger.arm(session, world.runner, attempt, 0, instalment, lease, whole=whole)


def unnumbered(body: str) -> str:
    """What a link tells, without the numbers of its rows and what these are spelled into."""
    told = json.loads(body)
    return json.dumps({**told, "rows": [each["table"] for each in told["rows"]]}, sort_keys=True)


def test_both_ways_leave_the_same(world: World, sent: list[bool]) -> None:
    world.dataset(blocks=3)
    left, said = [], []
    for whole in (True, False):
        attempt = world.running()
        hold(world, attempt, whole)
        assert arm(world, attempt, 0, whole) == Amount(3, 1)
        assert arm(world, attempt, 1, whole) == Amount(4)
        left.append(fetch(world.database, LEFT, request=attempt.request_id))
        said.append(
            [(*row[:3], unnumbered(str(row[3]))) for row in fetch(world.database, SAID, request=attempt.request_id)]
        )
    assert left[0] == left[1]
    assert len(left[0]) == 3 * 5
    assert said[0] == said[1]
    told = json.loads(said[0][1][3])
    assert told == {"attempt": 1, "delta": "1", "instalment": 0, "rho": "3", "sequence": 0, "rows": told["rows"]}
    assert sent == [not world.database.is_sqlite] * 3


def test_of_several_blocks_only_the_eligible(world: World, whole: bool) -> None:
    world.dataset(blocks=3)
    first = world.running()
    attempt = Attempt(first.request_id, first.number, first.dataset, first.account_id, (2, 0))
    hold(world, attempt, whole)
    held = fetch(world.database, LEFT, request=attempt.request_id)
    assert [row[2:5] for row in held] == [(0, 0, 3), (0, 1, 4), (2, 0, 3), (2, 1, 4), (0, 0, 5), (2, 0, 5)]


def test_a_block_without_an_account_is_an_error(world: World, whole: bool) -> None:
    world.dataset()
    first = world.running()
    before = snapshot(world.database)
    with pytest.raises(ValueError, match="have accounts"):
        hold(world, Attempt(first.request_id, 1, first.dataset, first.account_id, (0, 7)), whole)
    assert snapshot(world.database) == before


def test_what_does_not_fit_is_refused_with_figures(world: World, whole: bool) -> None:
    world.dataset(cap=Amount(11, 1))
    attempt = world.running()
    before = snapshot(world.database)
    with pytest.raises(BudgetExceeded) as refusal:
        hold(world, attempt, whole)
    assert (refusal.value.requested, refusal.value.remaining) == (Amount(12, 1), Amount(11, 1))
    assert snapshot(world.database) == before


def test_what_is_armed_or_not_held_is_refused_by_name(world: World, whole: bool) -> None:
    world.dataset()
    attempt = world.running()
    hold(world, attempt, whole)
    arm(world, attempt, 0, whole)
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 0, whole)
    with pytest.raises(RuleViolated, match="nothing is held"):
        arm(world, attempt, 2, whole)
    assert snapshot(world.database) == before


def test_arming_prolongs_the_lease_of_its_holder_only(world: World, whole: bool) -> None:
    world.dataset()
    request_id = world.request()
    world.decide(request_id)
    with world.database.write() as session:
        attempts.start_attempt(session, world.runner, request_id, "mine", "here:1")
        attempt = ledger.load_attempt(session, request_id, 1, (0,))
    hold(world, attempt, whole)
    first = ends(world.database, request_id)
    arm(world, attempt, 0, whole, "mine")
    assert ends(world.database, request_id) > first
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 1, whole, "another's")
    assert snapshot(world.database) == before


def ends(database: Database, request_id: int) -> str:
    with database.read() as session:
        return session.get_one(Lease, request_id).expires_at


def test_what_arrives_after_the_end_of_its_attempt_changes_nothing(world: World, whole: bool) -> None:
    """A statement whose connection was lost may begin on the server when the run has long given up."""
    world.dataset()
    attempt, late = world.running(), world.running()
    hold(world, attempt, whole)
    for ended in (attempt, late):
        world.fail(ended)
    before = snapshot(world.database)
    with pytest.raises(AttemptClosed):
        arm(world, attempt, 0, whole)
    with pytest.raises(RuleViolated, match="only the running attempt"):
        hold(world, late, whole)
    assert snapshot(world.database) == before
