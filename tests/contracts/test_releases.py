"""The life of a request on both backends: which step is open in which state, and who may take it."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import artifacts, attempts, budget, exposures, gates, people
from models_db.services import requests as releases
from models_db.services.attempts import StillRunning
from models_db.services.audit import log, verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt
from models_db.services.gates import GateClosed, GateDecision
from models_db.services.requests import RequestUnknown, WrongState
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.values.request_state import REQUEST_GATES, Gate
from models_db.writes.database_errors import AlreadyRecorded, RuleViolated
from tests.conftest import Ledgers
from tests.support import LATE, PLAN, SOON, World, fetch, later, snapshot


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[World]:
    """One ledger for all tests of this file that need no policy of their own: each has its own requests."""
    with ledgers.new(request.param) as database:
        made = World.create(database)
        made.dataset(cap=Amount(10**6, 10**6))
        yield made


def publish(world: World, request_id: int) -> int:
    with world.database.write() as session:
        return artifacts.record_publication(session, world.runner, request_id).id


def withdraw(world: World, request_id: int) -> None:
    with world.database.write() as session:
        releases.withdraw(session, world.analyst, request_id, "no longer needed")


def test_the_whole_life(world: World) -> None:
    attempt = world.published()
    with world.database.read() as session:
        steps = [(s.from_state, s.to_state) for s in releases.history(session, attempt.request_id)]
        decisions = [(a.gate, p.name) for a, p in gates.decisions_on(session, attempt.request_id, *REQUEST_GATES)]
        spend_only = gates.decisions_on(session, attempt.request_id, Gate.SPEND)
        kinds = [link.kind for link in log.stream_links(session, log.LogFilter(request_id=attempt.request_id))]
        assert verify_chain.verify_chain(session).holds
    assert steps == [
        ("draft", "submitted"),
        ("submitted", "approved"),
        ("approved", "running"),
        ("running", "produced"),
        ("produced", "published"),
    ]
    assert decisions == [("spend", "steward"), ("publish", "steward")]
    assert len(spend_only) == 1
    assert kinds[-3:] == ["ledger.commit+run.produced", "request.approve", "release.published"]


# --- every state against every step ---------------------------------------------------------------------------------

STATES = {
    "submitted": lambda w: w.request(),
    "approved": lambda w: _approved(w),
    "rejected": lambda w: _decided(w, w.request(), "spend"),
    "withdrawn": lambda w: _withdrawn(w),
    "running": lambda w: w.running().request_id,
    "produced": lambda w: w.produced().request_id,
    "discarded": lambda w: _decided(w, w.produced().request_id, "publish"),
    "published": lambda w: w.published().request_id,
}
STEPS: dict[str, tuple[Callable[[World, int], object], set[str]]] = {
    "approve to spend": (lambda w, r: w.decide(r, by=_second(w)), {"submitted", "approved"}),
    "reject to spend": (
        lambda w, r: w.decide(r, verdict="reject", by=_second(w)),
        {"submitted", "approved"},
    ),
    "withdraw": (withdraw, {"submitted", "approved"}),
    "start": (lambda w, r: w.start(r), {"approved"}),
    "fail": (lambda w, r: w.fail(_attempt(w, r)), {"running"}),
    "approve to publish": (
        lambda w, r: _decide_publish(w, r, "approve"),
        {"produced"},
    ),
    "reject to publish": (lambda w, r: _decide_publish(w, r, "reject"), {"produced"}),
    "publish": (publish, {"published"}),  # produced needs its approval; published finds the publication again
}


def _second(world: World) -> Actor:
    """A second steward, who may be here already."""
    with world.database.read() as session:
        known = {principal.name: principal.id for principal in people.list_all(session)}
    return (
        Actor(known["second steward"], "second steward")
        if known.get("second steward")
        else world.person("second steward")
    )


def _approved(world: World) -> int:
    request_id = world.request()
    world.decide(request_id)
    return request_id


def _decided(world: World, request_id: int, gate: str) -> int:
    world.decide(request_id, gate, "reject")
    return request_id


def _withdrawn(world: World) -> int:
    request_id = world.request()
    withdraw(world, request_id)
    return request_id


def _attempt(world: World, request_id: int) -> Attempt:
    with world.database.read() as session:
        return budget.load_attempt(session, request_id, 1, (0,))


def _decide_publish(world: World, request_id: int, verdict: str) -> None:
    with world.database.read() as session:
        artifact = artifacts.artifact_of(session, request_id)
    subject = artifact.digest if artifact else "0" * 64
    decision = GateDecision(request_id, "publish", subject, verdict, "because", SOON)
    with world.database.write() as session:
        gates.record_decision(session, _second(world), decision, "signature")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def town(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[tuple[World, dict[str, int]]]:
    with ledgers.new(request.param) as database:
        world = World.create(database)
        world.dataset()
        world.person("second steward")
        made = {state: make(world) for state, make in STATES.items()}
        assert {state: world.state(request_id) for state, request_id in made.items()} == dict(
            zip(made, made, strict=True)
        )
        yield world, made


@pytest.mark.parametrize("state", STATES)
def test_steps_out_of_their_state_are_refused(town: tuple[World, dict[str, int]], state: str) -> None:
    world, requests = town
    before = snapshot(world.database)
    for step, (take, open_in) in STEPS.items():
        if state not in open_in:
            with pytest.raises(Refused):
                take(world, requests[state])
            assert world.state(requests[state]) == state, step
    assert snapshot(world.database) == before


@pytest.mark.parametrize("step", STEPS)
def test_a_step_in_its_state_is_taken(world: World, step: str) -> None:
    take, open_in = STEPS[step]
    for state in sorted(open_in):
        take(world, STATES[state](world))


# --- gates ----------------------------------------------------------------------------------------------------------


def test_two_of_two(database: Database) -> None:
    world = World.create(database, spend_approvals=2, publish_approvals=2)
    other = world.person("second steward")
    world.dataset()
    request_id = world.request()
    assert world.decide(request_id) == "submitted"
    with pytest.raises(GateClosed) as closed:
        world.start(request_id)
    assert (closed.value.facts["given"], closed.value.facts["needed"]) == (1, 2)
    before = snapshot(database)
    with pytest.raises(RuleViolated, match="that person has approved it already"):
        world.decide(request_id)
    assert snapshot(database) == before
    assert world.decide(request_id, by=other) == "approved"
    attempt = world.start(request_id)
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    world.produce(attempt)
    world.decide(request_id, "publish")
    with pytest.raises(GateClosed):
        publish(world, request_id)
    world.decide(request_id, "publish", by=other)
    publish(world, request_id)
    assert world.state(request_id) == "published"


def test_one_rejection_is_enough(database: Database) -> None:
    world = World.create(database, spend_approvals=2)
    other = world.person("second steward")
    world.dataset()
    request_id = world.request()
    world.decide(request_id)
    assert world.decide(request_id, verdict="reject", by=other) == "rejected"


@pytest.mark.parametrize("several_roles", [False, True])
def test_who_may_decide(database: Database, several_roles: bool) -> None:
    world = World.create(database, several_roles=several_roles)
    for name in ("analyst", "runner"):
        world.grant(name, "steward")
    world.dataset()
    request_id = world.request()
    before = snapshot(database)
    if several_roles:
        assert world.decide(request_id, by=world.analyst) == "approved"
        return
    with pytest.raises(RuleViolated, match="nobody approves what they requested or ran"):
        world.decide(request_id, by=world.analyst)
    assert snapshot(database) == before
    world.decide(request_id)
    attempt = world.start(request_id)
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    world.produce(attempt)
    with pytest.raises(RuleViolated, match="nobody approves what they requested or ran"):
        world.decide(request_id, "publish", by=world.runner)


def test_an_approval_is_for_exact_bytes(world: World) -> None:
    one, two = world.request(), world.request()
    decision = GateDecision(one, "spend", world.subject(two, "spend"), "approve", "because", SOON)
    with pytest.raises(RuleViolated, match="not for what is waiting"), world.database.write() as session:
        gates.record_decision(session, world.steward, decision, "signature")


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_decision_needs_a_reason(world: World, reason: str) -> None:
    request_id = world.request()
    before = snapshot(world.database)
    decision = GateDecision(request_id, "spend", world.subject(request_id, "spend"), "approve", reason, SOON)
    with (
        pytest.raises(RuleViolated, match="not of the form of its column, approval_reason"),
        world.database.write() as session,
    ):
        gates.record_decision(session, world.steward, decision, "signature")
    assert snapshot(world.database) == before


def test_an_expired_approval_is_none(world: World) -> None:
    request_id = world.request()
    with pytest.raises(RuleViolated, match="approval ends after it is given"):
        world.decide(request_id, valid=timedelta(seconds=-1))
    world.decide(request_id, valid=timedelta(hours=1))
    with later(timedelta(hours=2)):
        with pytest.raises(GateClosed):
            world.start(request_id)
        world.decide(request_id, by=_second(world))
        world.start(request_id)


def test_an_expired_publish_approval_is_none(world: World) -> None:
    attempt = world.produced()
    world.decide(attempt.request_id, "publish", valid=timedelta(hours=1))
    before = snapshot(world.database)
    with later(timedelta(hours=2)), pytest.raises(GateClosed):
        publish(world, attempt.request_id)
    assert snapshot(world.database) == before


def test_an_expired_request_is_not_run(world: World) -> None:
    request_id = world.request(valid=timedelta(hours=1))
    world.decide(request_id)
    with later(timedelta(hours=2)), pytest.raises(WrongState, match="expired"):
        world.start(request_id)
    world.start(request_id)


def test_the_signed_statement_holds_everything() -> None:
    decision = GateDecision(3, "spend", "d" * 64, "approve", "because", LATE)
    assert decision.statement("steward") == (
        b'{"approver":"steward","decision":"approve","expires_at":"9999-01-01T00:00:00.000000Z","gate":"spend",'
        b'"reason":"because","request":3,"subject_sha256":"' + b"d" * 64 + b'"}'
    )


# --- running --------------------------------------------------------------------------------------------------------


def test_a_lease_is_its_holders(world: World) -> None:
    request_id = world.request()
    world.decide(request_id)
    with world.database.write() as session:
        attempts.start_attempt(session, world.runner, request_id, "mine", "here:1")
    with pytest.raises(StillRunning, match="here:1"):
        world.start(request_id)
    with world.database.read() as session:
        [lease] = [one for one in attempts.running_leases(session) if one.request_id == request_id]
        assert (lease.request_id, lease.attempt, lease.owner) == (request_id, 1, "here:1")


def test_a_finished_request_has_no_living_lease(world: World) -> None:
    attempt = world.produced()
    with world.database.read() as session:
        assert attempt.request_id not in {lease.request_id for lease in attempts.running_leases(session)}


def test_the_lease_of_a_second_attempt_is_new(world: World) -> None:
    attempt = world.running()
    query = f"SELECT attempt, token FROM lease WHERE request_id = {attempt.request_id}"
    [(_, token)] = fetch(world.database, query)
    world.fail(attempt)
    world.start(attempt.request_id)
    [(number, new)] = fetch(world.database, query)
    assert number == 2
    assert new != token


# --- metrics, publication, look-ups ---------------------------------------------------------------------------------


def test_internal_metrics_wait_for_the_decision(world: World) -> None:
    attempt = world.running(world.dataset("measured"))
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    before = snapshot(world.database)
    with pytest.raises(RuleViolated, match="unprotected figures"):
        world.produce(attempt, [("overlap", "internal", {"longest": 3})])
    assert snapshot(world.database) == before
    artifact = world.produce(attempt, [("length", "public", {"mean": 3})])
    with pytest.raises(RuleViolated), world.database.write() as session:
        artifacts.record_metrics(session, world.steward, artifact, [("overlap", "internal", {"longest": 3})])
    world.decide(attempt.request_id, "publish")
    publish(world, attempt.request_id)
    with world.database.write() as session:
        exposures.record_view(session, world.steward, artifact, "computed")
        artifacts.record_metrics(session, world.steward, artifact, [("overlap", "internal", {"longest": 3})])
    with world.database.read() as session:
        found = [(e.metric, e.exposure, e.result) for e in artifacts.evaluations(session, artifact)]
    assert found == [("length", "public", '{"mean":3}'), ("overlap", "internal", '{"longest":3}')]


def test_a_charged_metric_names_its_charge(world: World) -> None:
    attempt = world.running()
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    with pytest.raises(RuleViolated):
        world.produce(attempt, [("count", "charged", {"n": 3})])


def test_publishing_again_finds_the_first(world: World) -> None:
    attempt = world.published()
    before = snapshot(world.database)
    publish(world, attempt.request_id)
    assert snapshot(world.database) == before


def test_a_delivery_is_recorded(world: World) -> None:
    attempt = world.published()
    with world.database.write() as session:
        publication = artifacts.record_publication(session, world.runner, attempt.request_id)
        artifacts.record_delivery(session, world.runner, publication, "out/1", "b" * 64)
    query = f"SELECT destination, bundle_digest FROM delivery WHERE publication_id = {publication.id}"
    assert fetch(world.database, query) == [("out/1", "b" * 64)]


def test_a_long_reason_is_kept_whole(world: World) -> None:
    request_id = world.request()
    reason = "é" * 5000
    with world.database.write() as session:
        releases.withdraw(session, world.analyst, request_id, reason)
    with world.database.read() as session:
        assert releases.history(session, request_id)[-1].detail == reason


def test_an_unknown_request_is_named(world: World) -> None:
    for take in (withdraw, publish, lambda w, r: w.start(r)):
        with pytest.raises(RequestUnknown):
            take(world, 10**6)


def test_the_same_request_is_submitted_once(world: World) -> None:
    world.request(number=-1)
    before = snapshot(world.database)
    with pytest.raises(AlreadyRecorded):
        world.request(number=-1)
    assert snapshot(world.database) == before


def test_look_ups(world: World) -> None:
    one, two = world.request(), world.produced().request_id
    with world.database.read() as session:
        assert [r.id for r in releases.list_all(session)][-2:] == [one, two]
        assert releases.state_of(session, 10**6) == "draft"
        assert artifacts.artifact_of(session, one) is None
        assert artifacts.list_all(session)[-1].request_id == two
        assert releases.principal_name(session, world.steward.id) == "steward"
        assert releases.find_request(session, one).created_at <= utc_now()
