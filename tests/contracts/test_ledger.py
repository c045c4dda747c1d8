"""What the budget promises on both backends: states, counters, and refusals that leave no trace."""

from datetime import timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.services.audit import log, verify_chain
from models_db.services.lifecycle import ledger
from models_db.services.lifecycle.gates import GateClosed
from models_db.services.lifecycle.ledger import Attempt, AttemptClosed, BudgetExceeded, InvocationPlan, Provenance
from models_db.sessions.database import Database
from models_db.tables import Invocation
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.writes.database_errors import RuleViolated
from tests.support import PROVENANCE, World, execute, fetch, later, planned, snapshot

PLAN = (planned(Amount(10, 1), Amount(20), Amount(30)), planned(Amount(5), mechanism="noisy_count"))


@pytest.fixture
def world(database: Database) -> World:
    """Its requests are approved for the plan of this file."""
    return World.create(database, approved=PLAN)


def invocations(session: Session, request_id: int) -> list[Invocation]:
    """The mechanisms that a request invoked, in order."""
    query = select(Invocation).where(Invocation.request_id == request_id)
    return list(session.scalars(query.order_by(Invocation.attempt, Invocation.sequence)))


def counters(world: World) -> list[tuple[object, ...]]:
    """(rho held, rho spent, delta held, delta spent) of every block."""
    return fetch(
        world.database,
        "SELECT rho_held, rho_spent, delta_held, delta_spent FROM account WHERE kind = 'block' ORDER BY id",
    )


def recomputed(world: World) -> list[tuple[int, str]]:
    with world.database.read() as session:
        return ledger.differing_counters(session)


def test_the_way_of_a_hold(world: World) -> None:
    world.dataset(cap=Amount(100, 5), blocks=2)
    attempt = world.held()
    assert counters(world) == [(65, 0, 1, 0)] * 2
    assert world.arm(attempt, 0, 0) == Amount(10, 1)
    assert counters(world) == [(55, 10, 0, 1)] * 2
    assert world.arm(attempt, 1, 0) == Amount(5)
    assert world.arm(attempt, 0, 1) == Amount(20)
    assert counters(world) == [(30, 35, 0, 1)] * 2
    world.produce(attempt)
    assert counters(world) == [(0, 65, 0, 1)] * 2
    kinds = fetch(world.database, "SELECT kind, count(*) FROM entry GROUP BY kind ORDER BY kind")
    assert kinds == [("ARM", 8), ("COMMIT", 8), ("HOLD", 8)]
    assert recomputed(world) == []


def test_an_attempt_that_dies_keeps_what_it_armed_spent(world: World) -> None:
    world.dataset(cap=Amount(100, 5))
    attempt = world.held()
    world.arm(attempt, 0, 0)
    world.fail(attempt)
    assert counters(world) == [(0, 10, 0, 1)]
    kinds = fetch(world.database, "SELECT kind, count(*) FROM entry GROUP BY kind ORDER BY kind")
    assert kinds == [("ARM", 1), ("FORFEIT", 1), ("HOLD", 4), ("RELEASE", 3)]
    assert world.state(attempt.request_id) == "approved"
    assert recomputed(world) == []


def test_an_attempt_that_never_armed_costs_nothing(world: World) -> None:
    world.dataset(cap=Amount(100, 5))
    attempt = world.held()
    world.fail(attempt)
    assert counters(world) == [(0, 0, 0, 0)]


def test_a_second_attempt_is_charged_again(world: World) -> None:
    world.dataset(cap=Amount(100, 5))
    first = world.running()
    world.hold(first, *PLAN)
    world.arm(first, 0, 1)
    world.fail(first)
    second = world.start(first.request_id)
    assert second.number == 2
    world.hold(second, *PLAN)
    world.arm(second, 0, 1)
    world.arm(second, 1, 0)
    world.produce(second)
    assert counters(world) == [(0, 85, 0, 1)]
    with world.database.read() as session:
        assert ledger.spent_by(session, first.request_id) == Amount(85, 1)
        assert [i.attempt for i in invocations(session, first.request_id)] == [1, 1, 2, 2]


def test_only_eligible_blocks_are_charged_and_the_fullest_counts(world: World) -> None:
    world.dataset(cap=Amount(100), blocks=3)
    plan = planned(Amount(30), Amount(30))
    attempt = world.running("clinic", plan)
    some = Attempt(attempt.request_id, attempt.number, attempt.dataset, attempt.account_id, (0, 2))
    world.hold(some, plan)
    world.arm(some)
    assert counters(world) == [(30, 30, 0, 0), (0, 0, 0, 0), (30, 30, 0, 0)]
    whole = world.balance()
    assert (whole.cap, whole.spent, whole.held, whole.remaining) == (Amount(100), Amount(30), Amount(30), Amount(40))
    with world.database.read() as session:
        assert ledger.balance(session, attempt.account_id, (1,)).remaining == Amount(100)
        assert ledger.spent_by(session, attempt.request_id) == Amount(30)


def test_datasets_on_one_account_share_its_budget(world: World) -> None:
    account = world.account(Amount(100))
    world.dataset("a", account_id=account)
    world.dataset("b", account_id=account)
    world.held(planned(Amount(70)), dataset="a")
    with pytest.raises(BudgetExceeded) as refusal:
        world.held(planned(Amount(31)), dataset="b")
    assert refusal.value.remaining == Amount(30)
    world.held(planned(Amount(30)), dataset="b")


@pytest.mark.parametrize(
    ("cap", "asked"),
    [
        (Amount(64, 5), "rho"),
        (Amount(100, 0), "delta"),
        (Amount(0, 0), "both"),
    ],
)
def test_a_plan_over_the_cap_leaves_every_table_unchanged(world: World, cap: Amount, asked: str) -> None:
    world.dataset(cap=cap, blocks=2)
    attempt = world.running()
    before = snapshot(world.database)
    with pytest.raises(BudgetExceeded) as refusal:
        world.hold(attempt, *PLAN)
    assert snapshot(world.database) == before
    assert refusal.value.requested == Amount(65, 1)
    assert refusal.value.remaining == cap
    assert refusal.value.facts["left_rho"] == cap.rho_text


def test_a_plan_may_use_the_last_unit(world: World) -> None:
    world.dataset(cap=Amount(65, 1))
    world.held()
    assert world.balance().remaining == Amount(0)


def test_the_database_refuses_what_the_service_would_let_pass(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the service's own comparison said yes to everything, the CHECK keeps the cap, all or nothing."""
    world.dataset(cap=Amount(64, 5), blocks=2)
    attempt = world.running()
    before = snapshot(world.database)
    monkeypatch.setattr(Amount, "fits", lambda self, room: True)
    with pytest.raises(BudgetExceeded):
        world.hold(attempt, *PLAN)
    assert snapshot(world.database) == before


def test_one_full_block_refuses_the_whole_plan(world: World) -> None:
    world.dataset(cap=Amount(100), blocks=2)
    fills, asks = planned(Amount(90)), planned(Amount(20))
    attempt = world.running("clinic", fills)
    only = Attempt(attempt.request_id, attempt.number, attempt.dataset, attempt.account_id, (1,))
    world.hold(only, fills)
    other = world.running("clinic", asks)
    before = snapshot(world.database)
    with pytest.raises(BudgetExceeded) as refusal:
        world.hold(other, asks)
    assert refusal.value.remaining == Amount(10)
    assert snapshot(world.database) == before


def test_a_block_without_an_account_is_an_error(world: World) -> None:
    world.dataset(blocks=2)
    attempt = world.running()
    wrong = Attempt(attempt.request_id, attempt.number, attempt.dataset, attempt.account_id, (0, 1, 2))
    with pytest.raises(ValueError, match="have accounts"):
        world.hold(wrong, *PLAN)


@pytest.mark.parametrize("instalments", [(), (Amount(9),), (Amount(5), Amount(4))])
def test_instalments_cover_the_event(instalments: tuple[Amount, ...]) -> None:
    event = PrivacyEvent("token_draw", 1, {}, Amount(10), {"kind": "NoOp"})
    with pytest.raises(ValueError, match="do not cover"):
        InvocationPlan(event, instalments)
    InvocationPlan(event, (*instalments, Amount(10)))


def test_a_deterministic_generator_is_refused(world: World) -> None:
    world.dataset()
    attempt = world.running()
    before = snapshot(world.database)
    seeded = Provenance("cpu", "c" * 64, {}, rng_kind="seeded")
    with pytest.raises(RuleViolated, match="randomness of the operating system"), world.database.write() as session:
        ledger.hold(session, world.runner, attempt, PLAN, seeded)
    assert snapshot(world.database) == before


def test_nothing_is_held_for_a_request_that_does_not_run(world: World) -> None:
    world.dataset()
    request_id = world.request()
    with world.database.read() as session:
        attempt = ledger.load_attempt(session, request_id, 1, (0,))
    for _ in ("submitted", "approved"):
        before = snapshot(world.database)
        with pytest.raises(RuleViolated, match="only the running attempt"):
            world.hold(attempt, *PLAN)
        assert snapshot(world.database) == before
        if world.state(request_id) == "submitted":
            world.decide(request_id)


def test_one_attempt_holds_its_plan_once(world: World) -> None:
    world.dataset()
    attempt = world.held()
    before = snapshot(world.database)
    with pytest.raises(ledger.Refused):
        world.hold(attempt, *PLAN)
    assert snapshot(world.database) == before


class TestOrder:
    """Each step out of its order is refused and leaves no trace."""

    def refused(self, world: World, kind: type[Exception], step: str, *arguments: object) -> None:
        before = snapshot(world.database)
        with pytest.raises(kind):
            getattr(world, step)(*arguments)
        assert snapshot(world.database) == before

    def test_arming_what_is_not_held(self, world: World) -> None:
        world.dataset()
        attempt = world.running()
        self.refused(world, RuleViolated, "arm", attempt)
        world.hold(attempt, *PLAN)
        self.refused(world, RuleViolated, "arm", attempt, 0, 3)
        self.refused(world, RuleViolated, "arm", attempt, 2, 0)

    def test_arming_twice(self, world: World) -> None:
        world.dataset()
        attempt = world.held()
        world.arm(attempt)
        self.refused(world, AttemptClosed, "arm", attempt)

    @pytest.mark.parametrize("outcome", ["COMMIT", "FORFEIT"])
    def test_after_settling(self, world: World, outcome: str) -> None:
        world.dataset()
        attempt = world.held()
        world.arm(attempt)
        world.settle(attempt, outcome)
        self.refused(world, AttemptClosed, "arm", attempt, 0, 0)
        self.refused(world, AttemptClosed, "arm", attempt, 0, 1)
        self.refused(world, AttemptClosed, "settle", attempt, "COMMIT")
        before = snapshot(world.database)
        world.settle(attempt, "FORFEIT")
        assert snapshot(world.database) == before

    def test_a_swept_run_that_comes_back(self, world: World) -> None:
        """Swept after arming, before arming, and before holding: whatever it tries, it is fenced, at once and later."""
        world.dataset()
        armed, held, begun = world.running(), world.running(), world.running()
        world.hold(armed, *PLAN)
        world.arm(armed)
        world.hold(held, *PLAN)
        for attempt in (armed, held, begun):
            world.fail(attempt)
        for _ in ("swept", "started again"):
            for attempt in (armed, held):
                self.refused(world, AttemptClosed, "arm", attempt, 0, 1)
            self.refused(world, RuleViolated, "hold", begun, *PLAN)
            for attempt in (armed, held, begun):
                self.refused(world, AttemptClosed, "fail", attempt)
                self.refused(world, AttemptClosed, "produce", attempt)
            if world.state(armed.request_id) == "approved":
                for attempt in (armed, held, begun):
                    world.start(attempt.request_id)


def test_an_approval_that_expires_during_the_run_stops_it(world: World) -> None:
    world.dataset()
    request_id = world.request()
    world.decide(request_id, valid=timedelta(hours=1))
    attempt = world.start(request_id)
    world.hold(attempt, *PLAN)
    world.arm(attempt, 0, 0)
    before = snapshot(world.database)
    with later(timedelta(hours=2)), pytest.raises(RuleViolated, match="the spend gate is not passed"):
        world.arm(attempt, 0, 1)
    assert snapshot(world.database) == before
    world.fail(attempt)
    with later(timedelta(hours=2)), pytest.raises(GateClosed):
        world.start(request_id)


def test_every_step_is_in_the_record(world: World) -> None:
    world.dataset(blocks=2)
    attempt = world.held()
    world.arm(attempt, 0, 1)
    world.arm(attempt, 1, 0)
    world.produce(attempt)
    with world.database.read() as session:
        kinds = [link.kind for link in log.stream_links(session, log.LogFilter(request_id=attempt.request_id))]
        assert verify_chain.verify_chain(session).holds
    assert kinds == ["request.submitted", "request.approve", "run.started", "ledger.hold", "ledger.arm",
                     "ledger.arm", "ledger.arm", "ledger.arm", "ledger.commit", "run.produced"]  # fmt: skip


def test_damaged_counters_are_recomputed(world: World) -> None:
    world.dataset()
    world.produced()
    assert recomputed(world) == []
    if world.database.is_sqlite:
        execute(world.database, "DROP TRIGGER account_moves_by_entry", "UPDATE account SET rho_spent = 3")
    else:
        execute(world.database, "SET LOCAL session_replication_role = replica", "UPDATE account SET rho_spent = 3")
    assert {counter for _, counter in recomputed(world)} == {"rho_spent"}


def test_provenance_is_stored(world: World) -> None:
    world.dataset()
    attempt = world.held()
    with world.database.read() as session:
        stored = invocations(session, attempt.request_id)[0]
    assert (stored.device, stored.code_digest, stored.rng_kind) == (PROVENANCE.device, PROVENANCE.code_digest, "os")
    assert stored.created_by == world.runner.id
