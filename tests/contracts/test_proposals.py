"""Proposals on both backends: what they ask for, who may decide, and what they never do."""

from datetime import UTC, datetime, timedelta

import pytest

from models_db.database.base import utc_now
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import datasets, policies, requests
from models_db.services.catalogue.datasets import LifetimeClaim
from models_db.services.lifecycle import attempts, envelopes, gates, proposals
from models_db.services.lifecycle.gates import GateDecision
from models_db.services.lifecycle.proposals import (
    AuthorisationExhausted,
    AuthorisationTerms,
    CapTooLow,
    OwnAuthorisation,
    ProposalAltered,
    ProposalDecided,
)
from models_db.sessions.database import Database
from models_db.tables import PolicyVersion
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.writes.database_errors import RoleDenied, RuleViolated
from tests.support import FAR, LATE, World, any_amounts, event_of, execute, fetch, planned, terms

WEEK = timedelta(days=7)


def body(rho: int = 10, **changes: Json) -> dict[str, Json]:
    parts: list[Json] = [{"rho": str(part), "delta": "0"} for part in (rho - rho // 2, rho // 2)]
    plan: Json = {"blocks": [0], "invocations": [{"event": event_of("token_draw").to_json(), "instalments": parts}]}
    return {"kind": "k", "mechanism": "m", "epsilon": "1", "code": "c", "policy": "p", "plan": plan, **changes}


def cap(rho: int, delta: int = 100, epsilon: str = "9") -> LifetimeClaim:
    return LifetimeClaim(epsilon, "0.000001", 9 * 10**11, Amount(rho, delta))


def propose_cap(world: World, claim: LifetimeClaim, by: Actor | None = None) -> int:
    with world.database.write() as session:
        dataset, policy = datasets.find_dataset(session, "clinic"), session.get_one(PolicyVersion, world.policy_id)
        return proposals.propose_cap(session, by or world.analyst, dataset, policy, claim, "a study", WEEK).id


def propose_standing(world: World, rho: int = 10, runs: int = 2, until: str = LATE, by: Actor | None = None) -> int:
    with world.database.write() as session:
        dataset, policy = datasets.find_dataset(session, "clinic"), session.get_one(PolicyVersion, world.policy_id)
        wanted = AuthorisationTerms(requests.configuration(body(nonce="x")), rho, 0, runs, until)
        return proposals.propose_standing(session, by or world.analyst, dataset, policy, wanted, "monthly", WEEK).id


def decide(world: World, number: int, verdict: str = "approve", by: Actor | None = None) -> str:
    with world.database.write() as session:
        subject = proposals.find_proposal(session, number).digest
        expires = utc_now(datetime.now(UTC) + FAR)
        decision = GateDecision(number, "proposal", subject, verdict, "because", expires)
        return gates.record_decision(
            session, by or world.steward, decision, f"signature {number} {verdict}", amount_check=any_amounts
        )


def submit(world: World, number: int, by: Actor | None = None, **changes: Json) -> int:
    asked = body(nonce=str(next(world._numbers)), **changes)
    with world.database.write() as session:
        dataset, policy = datasets.find_dataset(session, "clinic"), session.get_one(PolicyVersion, world.policy_id)
        version = datasets.newest_version(session, dataset)
        actor = by or world.analyst
        proposal = proposals.find_authorisation(session, number, asked, actor)
        return requests.submit(session, actor, dataset, version, policy, asked, FAR, standing=proposal).id


def state(world: World, number: int) -> str:
    with world.database.read() as session:
        return proposals.state_of(session, proposals.find_proposal(session, number))


# --- caps


def test_a_new_cap_moves_root_and_blocks_and_nothing_that_is_spent(world: World) -> None:
    world.dataset(blocks=2)
    world.produced()
    number = propose_cap(world, cap(2000, 200))
    assert world.balance().cap == Amount(1000, 100)
    assert decide(world, number) == "carried"
    assert fetch(world.database, "SELECT rho_cap, delta_cap FROM account ORDER BY id") == [(2000, 200)] * 3
    assert world.balance().spent == Amount(10)
    with world.database.read() as session:
        claims = datasets.list_claims(session, datasets.find_dataset(session, "clinic"))
        assert [claim.epsilon for claim in claims] == ["8", "9"]
        assert verify_chain.verify_chain(session).holds


def test_a_cap_below_what_is_taken_is_refused_with_figures(world: World) -> None:
    world.dataset()
    world.produced()
    world.held(planned(Amount(20)))
    with world.database.write() as session:
        envelopes.open_envelope(
            session, world.steward, datasets.find_dataset(session, "clinic"), "study", Amount(300, 40), "why"
        )
    for asked in (cap(329), cap(330, 39)):
        with pytest.raises(CapTooLow) as low:
            propose_cap(world, asked)
        assert low.value.facts["taken_rho"] == Amount(330).rho_text
        assert low.value.facts["taken_delta_fail"] == Amount(0, 40).delta_text
    assert decide(world, propose_cap(world, cap(330, 40))) == "carried"
    assert world.balance().remaining == Amount()


def test_a_cap_is_compared_again_when_it_is_carried(world: World) -> None:
    world.dataset()
    number = propose_cap(world, cap(5))
    world.produced()
    with pytest.raises(CapTooLow):
        decide(world, number)
    assert (state(world, number), world.balance().cap) == ("open", Amount(1000, 100))
    assert fetch(world.database, "SELECT count(*) FROM approval WHERE gate = 'proposal'") == [(0,)]


def test_two_of_two_approve_and_one_rejects(world: World) -> None:
    with world.database.write() as session:
        policy = policies.adopt(session, world.admin, terms(proposal_approvals=2)).id
    two = World(world.database, policy, world.admin, world.analyst, world.steward, world.runner, world._numbers)
    two.dataset()
    second = two.person("second")
    first, other = propose_cap(two, cap(2000)), propose_cap(two, cap(3000))
    assert decide(two, first) == "open"
    with pytest.raises(RuleViolated, match="already"):
        decide(two, first)
    assert decide(two, first, by=second) == "carried"
    assert decide(two, other) == "open"
    assert decide(two, other, "reject", by=second) == "rejected"
    assert two.balance().cap == Amount(2000, 100)
    for number in (first, other):
        with pytest.raises(ProposalDecided):
            decide(two, number, by=two.person(f"third {number}"))


def test_an_approval_is_taken_back_until_the_proposal_is_carried(database: Database) -> None:
    world = World.create(database, proposal_approvals=2)
    world.dataset()
    second = world.person("second")
    number = propose_cap(world, cap(2000))
    decide(world, number)

    def take_back(by: Actor) -> str:
        with database.write() as session:
            return gates.withdraw_approval(session, by, number, "proposal", "a doubt", "signature of it")

    assert take_back(world.steward) == "open"
    assert decide(world, number, by=second) == "open"  # one of two again
    with pytest.raises(gates.NothingToWithdraw):
        take_back(world.steward)
    with database.write() as session:
        expires = utc_now(datetime.now(UTC) + FAR)
        decision = GateDecision(
            number, "proposal", proposals.find_proposal(session, number).digest, "approve", "after all", expires
        )
        assert (
            gates.record_decision(session, world.steward, decision, "another signature", amount_check=any_amounts)
            == "carried"
        )
    with pytest.raises(RuleViolated, match="taken back only before it is used"):
        take_back(second)


def test_who_proposes_does_not_decide_and_not_everybody_proposes(world: World) -> None:
    world.dataset()
    with pytest.raises(RuleViolated, match="requested"):
        decide(world, propose_cap(world, cap(2000), by=world.steward))
    with pytest.raises(RoleDenied):
        propose_cap(world, cap(2000), by=world.runner)


def test_a_proposal_tells_no_hour(world: World) -> None:
    world.dataset()
    propose_cap(world, cap(2000))
    ((expires,),) = fetch(world.database, "SELECT expires_at FROM proposal")
    assert str(expires).endswith("T23:59:59.000000Z")


# --- standing authorisations


def test_runs_are_drawn_one_by_one_and_a_failed_one_counts(world: World) -> None:
    world.dataset()
    number = propose_standing(world, runs=2)
    with pytest.raises(AuthorisationExhausted, match="waits for approvals"):
        submit(world, number)
    decide(world, number)
    first, second = submit(world, number), submit(world, number)
    attempt = world.start(first)
    world.hold(attempt, planned(Amount(5), Amount(5)))
    world.arm(attempt)
    world.fail(attempt)
    assert world.start(first).number == 2
    with pytest.raises(AuthorisationExhausted, match="all 2 runs are used"):
        world.start(second)
    with pytest.raises(AuthorisationExhausted, match="all 2 runs are used"):
        submit(world, number)
    assert fetch(world.database, "SELECT number, request_id, attempt FROM standing_use ORDER BY id") == [
        (1, first, 1),
        (2, first, 2),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": "2"}, "the request has another `epsilon`"),
        ({"code": "d"}, "almoner itself has changed since"),
        ({"policy": "q", "kind": "l"}, "another policy is in force since .*another `kind`"),
        ({"scope": "study"}, "another `scope`"),
    ],
)
def test_what_differs_is_named(world: World, changes: dict[str, Json], said: str) -> None:
    world.dataset()
    number = propose_standing(world)
    decide(world, number)
    with pytest.raises(AuthorisationExhausted, match=said) as other:
        submit(world, number, **changes)
    assert other.value.facts["differs"] == sorted(changes)


def test_it_covers_no_more_than_it_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.dataset()
    number = propose_standing(world, rho=9)
    decide(world, number)
    with pytest.raises(AuthorisationExhausted, match=r"a run costs rho 0\.00000000001 .* allows rho 0\.000000000009"):
        submit(world, number)
    monkeypatch.setattr(proposals, "_require_covered", lambda proposal, cost: None)
    attempt = world.start(submit(world, number))
    with pytest.raises(RuleViolated, match="allows a release less than this"):  # the database looks again
        world.hold(attempt, planned(Amount(5), Amount(5)))


def test_after_its_last_day_it_covers_nothing(world: World) -> None:
    world.dataset()
    number = propose_standing(world, until="2020-06-30T23:59:59.000000Z")
    decide(world, number)
    with pytest.raises(AuthorisationExhausted, match="ran until 2020-06-30"):
        submit(world, number)


def test_a_steward_ends_it_and_what_runs_arms_no_more(world: World) -> None:
    world.dataset()
    number = propose_standing(world)
    decide(world, number)
    attempt = world.start(submit(world, number))
    world.hold(attempt, planned(Amount(5), Amount(5)))
    world.arm(attempt)
    assert decide(world, number, "reject", by=world.person("second")) == "ended"
    with pytest.raises(RuleViolated, match="the spend gate is not passed"):
        world.arm(attempt, instalment=1)
    with pytest.raises(AuthorisationExhausted, match="stewards have ended it"):
        submit(world, number)
    assert world.balance().spent == Amount(5)


def test_who_approved_it_neither_requests_nor_runs_under_it(world: World) -> None:
    """The check of a bundle would refuse such a release, and by then it would have spent."""
    world.dataset()
    both = world.person("both", "steward", "analyst", "runner")
    number = propose_standing(world)
    decide(world, number, by=both)
    with pytest.raises(OwnAuthorisation):
        submit(world, number, by=both)
    request = submit(world, number)
    with world.database.write() as session, pytest.raises(OwnAuthorisation):
        attempts.start_attempt(session, both, request, "token", "here")
    assert world.state(request) == "approved"


def test_no_cap_proposal_is_a_standing_authorisation(world: World) -> None:
    world.dataset()
    number = propose_cap(world, cap(2000))
    decide(world, number)
    with pytest.raises(AuthorisationExhausted, match="proposal 1 is not one"):
        submit(world, number)


def test_an_altered_proposal_opens_nothing(sqlite_database: Database) -> None:
    """Whoever goes past the guards changes what was approved; the digest tells, before anything is armed."""
    world = World.create(sqlite_database)
    world.dataset()
    number = propose_standing(world)
    decide(world, number)
    request = submit(world, number)
    with world.database.read() as session:
        proposals.require_authorisation_intact(session, requests.find_request(session, request))
    execute(world.database, "DROP TRIGGER proposal_no_update", "UPDATE proposal SET runs = 99")
    with world.database.read() as session, pytest.raises(ProposalAltered):
        proposals.require_authorisation_intact(session, requests.find_request(session, request))


# --- retractions


def test_a_retraction_leaves_what_was_spent(world: World) -> None:
    world.dataset()
    attempt, waiting = world.published(), world.request()
    with world.database.write() as session:
        policy = session.get_one(PolicyVersion, world.policy_id)
        with pytest.raises(proposals.NotPublished):
            proposals.propose_retraction(session, world.analyst, waiting, policy, "a street", WEEK)
        number = proposals.propose_retraction(session, world.analyst, attempt.request_id, policy, "a street", WEEK).id
        assert proposals.retracted_artifacts(session) == ()
    assert decide(world, number) == "carried"
    assert world.state(attempt.request_id) == "retracted"
    assert world.balance().spent == Amount(10)
    with world.database.read() as session:
        assert proposals.retracted_artifacts(session) == (world.subject(attempt.request_id, "publish"),)
        assert requests.history(session, attempt.request_id)[-1].detail == "a street"
