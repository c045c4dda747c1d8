"""Clocks that are set back or run ahead: nothing expired comes back, and the ledger says why.

On SQLite the time is this machine's, and every fact is compared with the newest link of the chain. On PostgreSQL the
server's clock dates whatever an application role records; only the owner of the tables brings times of its own, which
may not be five minutes behind the chain.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from models_db.database.base import utc_now
from models_db.services import gates, policies, requests
from models_db.services.audit import verify_chain
from models_db.services.gates import GateClosed
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import ClockWentBack, RuleViolated
from tests.contracts.moving_clock import MovingClock
from tests.refusals import refusal
from tests.support import PLAN, SOON, TEN, World, append_link, execute, planned, snapshot, terms

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
AHEAD = "clock went backwards"


@pytest.fixture
def clock() -> Iterator[MovingClock]:
    with MovingClock() as moving:
        yield moving


def written(database: Database, act: Callable[[Any], object]) -> None:
    with database.write() as session:
        act(session)


def commands(world: World) -> dict[str, Callable[[], object]]:
    """What people do, each to something that waits for it."""
    waiting, approved, running = world.request(), world.request(), world.held(planned(TEN, TEN))
    world.decide(approved)
    world.arm(running)
    ready = world.produced().request_id
    proposal = world.cap(Amount(2000, 100), carry=False)
    account = world.account()
    return {
        "request": world.request,
        "approve": lambda: world.decide(waiting),
        "withdraw an approval": lambda: written(
            world.database, lambda s: gates.withdraw_approval(s, world.steward, approved, "spend", "doubt", "signature")
        ),
        "withdraw": lambda: written(world.database, lambda s: requests.withdraw(s, world.analyst, waiting, "no")),
        "start": lambda: world.start(approved),
        "arm": lambda: world.arm(running, 0, 1),
        "fail": lambda: world.fail(running),
        "produce": lambda: world.produce(running),
        "approve the release": lambda: world.decide(ready, "publish"),
        "carry": lambda: world.decide(proposal, "proposal"),
        "new person": lambda: world.person("newcomer"),
        "register": lambda: world.dataset("harbour", account_id=account),
        "adopt": lambda: written(world.database, lambda s: policies.adopt(s, world.admin, terms(spend_approvals=2))),
    }


def test_a_clock_that_was_set_back_changes_nothing(sqlite_database: Database, clock: MovingClock) -> None:
    world = World.create(sqlite_database)
    clock.ahead += DAY  # roles are older than what the clock is set back to
    world.dataset()
    found = commands(world)
    before = snapshot(sqlite_database)
    clock.ahead -= HOUR
    for name, command in found.items():
        with pytest.raises(ClockWentBack) as refused:
            command()
        assert "nothing was changed" in refused.value.message, name
        assert "clock" in refused.value.advice, name
        assert snapshot(sqlite_database) == before, name
    clock.ahead += HOUR
    for name in ("withdraw an approval", "arm", "produce", "approve the release", "carry", "adopt"):
        found[name]()


def test_a_clock_before_all_roles_is_named_too(sqlite_database: Database, clock: MovingClock) -> None:
    """Nobody is told that they lack a role which has only not begun yet."""
    world = World.create(sqlite_database)
    world.dataset()
    clock.ahead -= HOUR
    with pytest.raises(ClockWentBack):
        world.request()


BY_HAND = "ba" * 32
BACKDATED = {
    "entry": "INSERT INTO entry (hold_id, kind, at, actor_id) SELECT h.id, 'ARM', :at, :runner FROM hold h"
    " JOIN invocation i ON i.id = h.invocation_id WHERE i.request_id = :running",
    "transition": "INSERT INTO transition (request_id, number, from_state, to_state, detail, at, actor_id)"
    " VALUES (:approved, 3, 'approved', 'running', '', :at, :runner)",
    "approval": "INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
    f" signature) SELECT id, 'spend', digest, :steward, 'approve', 'because', :at, '{SOON}', 's' FROM request"
    " WHERE id = :waiting",
    "withdrawal": "INSERT INTO withdrawal (approval_id, reason, signature, at) SELECT id, 'a doubt', 's', :at"
    " FROM approval WHERE request_id = :approved",
    "publication": "INSERT INTO publication (artifact_id, at, actor_id) SELECT id, :at, :runner FROM artifact",
    "carried": "INSERT INTO carried (proposal_id, actor_id, at) SELECT id, :steward, :at FROM proposal",
    "audit": "INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, body)"
    " SELECT seq + 1, hash, substr(hash, 2) || 'e', :at, 'runner', 'k', '{}' FROM audit_head",
}


@pytest.mark.parametrize("table", BACKDATED)
def test_a_row_with_an_old_time_is_refused(database: Database, clock: MovingClock, table: str) -> None:
    """Written by hand, by whoever may write tables at all; the same row with the right time is let pass."""
    clock.ahead = -DAY  # roles are older than what the row says
    world = World.create(database)
    clock.ahead = timedelta()
    world.dataset()
    running = world.running()
    given = {
        "waiting": world.request(), "approved": world.request(), "running": running.request_id,
        "runner": world.runner.id, "steward": world.steward.id,
    }  # fmt: skip
    world.decide(given["approved"])
    world.hold(running, *PLAN)
    world.decide(world.produced().request_id, "publish")
    proposal = world.cap(Amount(2000, 100), carry=False)
    statement = BACKDATED[table]
    if table == "carried":
        _approve_without_carrying(world, proposal)
    with pytest.raises(IntegrityError, match=AHEAD):
        execute(
            database, statement, at=utc_now(datetime.now(UTC) - 6 * timedelta(minutes=1)), **_used(statement, given)
        )
    execute(database, statement, at=utc_now(), **_used(statement, given))


def _used(statement: str, given: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in given.items() if f":{name}" in statement}


def _approve_without_carrying(world: World, proposal: int) -> None:
    execute(
        world.database,
        "INSERT INTO approval (proposal_id, gate, subject_digest, approver_id, decision, reason, at, expires_at,"
        f" signature) SELECT id, 'proposal', digest, :steward, 'approve', 'because', :at, '{SOON}', 's' FROM proposal"
        " WHERE id = :proposal",
        steward=world.steward.id, at=utc_now(), proposal=proposal,
    )  # fmt: skip


def test_an_expired_approval_is_not_revived_by_a_back_dated_arm(database: Database, clock: MovingClock) -> None:
    world = World.create(database)
    world.dataset()
    request = world.request()
    world.decide(request, valid=10 * timedelta(minutes=1))
    attempt = world.start(request)
    world.hold(attempt, *PLAN)
    before = utc_now()
    clock.ahead += HOUR
    with pytest.raises(RuleViolated, match="spend gate"):
        world.arm(attempt)
    if database.is_sqlite:  # any command at the true time closes the way back
        written(database, lambda s: append_link(s, world.admin, "time.passed", {}))
        with pytest.raises(IntegrityError, match=AHEAD):
            execute(
                database,
                "INSERT INTO entry (hold_id, kind, at, actor_id) SELECT id, 'ARM', :at, :runner FROM hold",
                at=before,
                runner=world.runner.id,
            )
        clock.ahead -= HOUR
        with pytest.raises(ClockWentBack):
            world.arm(attempt)
    assert world.balance().spent == Amount()


def test_a_role_that_is_over_is_not_revived_by_a_back_dated_decision(database: Database, clock: MovingClock) -> None:
    """On PostgreSQL the server dates what a login records (test_application_role.py)."""
    world = World.create(database)
    world.dataset()
    dora, request = world.person("dora", "auditor"), world.request()
    world.grant("dora", "steward", valid_to=utc_now(datetime.now(UTC) + HOUR))
    before = utc_now()
    clock.ahead += 2 * HOUR
    with refusal("RoleDenied", match="only a steward records an approval"):
        world.decide(request, by=dora)
    if database.is_sqlite:
        written(database, lambda s: append_link(s, world.admin, "time.passed", {}))
        with pytest.raises(IntegrityError, match=AHEAD):
            execute(database, BACKDATED["approval"], at=before, waiting=request, steward=dora.id)


# --- a clock that was ahead


def test_a_clock_that_was_far_ahead_and_is_right_again(sqlite_database: Database, clock: MovingClock) -> None:
    """The chain keeps the wrong time, so the ledger waits for it; one can read on, and the error says what to do."""
    world = World.create(sqlite_database)
    world.dataset()
    request = world.request()
    clock.ahead = timedelta(days=400)
    world.person("newcomer")
    clock.ahead = timedelta()
    with pytest.raises(ClockWentBack) as refused:
        world.decide(request)
    for word in ("newest entry", "clock", "almoner audit log"):
        assert word in refused.value.diagnostics()
    with sqlite_database.read() as session:
        assert verify_chain.verify_chain(session).sound
        assert requests.state_of(session, request) == "submitted"
    clock.ahead = timedelta(days=400, minutes=1)
    with pytest.raises((RuleViolated, GateClosed)):  # by then the request's time is over
        world.start(request)


def test_what_was_approved_by_a_clock_ahead_has_expired_by_it(sqlite_database: Database, clock: MovingClock) -> None:
    world = World.create(sqlite_database)
    world.dataset()
    request = world.request()
    world.decide(request, valid=DAY)
    clock.ahead = 2 * DAY
    with pytest.raises(GateClosed):
        world.start(request)
    clock.ahead = timedelta()
    world.start(request)  # the clock ahead has written nothing
