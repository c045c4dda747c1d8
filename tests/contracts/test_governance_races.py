"""What stewards and admins change while somebody works: whoever is second decides on what the first has done."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from models_db.services import artifacts, attempts, budget, gates, people, policies, requests
from models_db.services.attempts import StillRunning
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import Attempt, AttemptClosed, BudgetExceeded
from models_db.services.gates import GateClosed, GateDecision
from models_db.services.people import PasskeySignature
from models_db.services.requests import WrongState
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.contracts.meeting import meanwhile
from tests.support import PLAN, PROVENANCE, SOON, TEN, World, any_amounts, fetch, planned, terms

Act = Callable[[Session], object]


def deciding(world: World, number: int, gate: str = "spend", verdict: str = "approve", by: Actor | None = None) -> Act:
    made = GateDecision(number, gate, world.subject(number, gate), verdict, f"{verdict}, while others work", SOON)
    return lambda session: gates.record_decision(
        session, by or world.steward, made, f"signature of {verdict}", amount_check=any_amounts
    )


def withdrawing(world: World, number: int, gate: str) -> Act:
    return lambda session: gates.withdraw_approval(session, world.steward, number, gate, "a doubt", "signature")


def revoking(world: World, name: str, role: str) -> Act:
    return lambda session: people.revoke(session, world.admin, name, role, "left us")


def holding(world: World, attempt: Attempt, rho: int) -> Act:
    return lambda session: budget.hold(session, world.runner, attempt, [planned(Amount(rho))], PROVENANCE)


def starting(world: World, number: int) -> Act:
    return lambda session: attempts.start_attempt(session, world.runner, number, f"token of {number}", "here")


def arming(world: World, attempt: Attempt) -> Act:
    return lambda session: budget.arm(session, world.runner, attempt, 0, 0)


def publishing(world: World, number: int) -> Act:
    return lambda session: artifacts.record_publication(session, world.runner, number)


def alone(database: Database, act: Act) -> Callable[[], None]:
    """The act in a transaction of its own."""

    def run() -> None:
        with database.write() as session:
            act(session)

    return run


def sound(world: World) -> None:
    with world.database.read() as session:
        assert budget.differing_counters(session) == []
        assert verify_chain.verify_chain(session).sound


# --- the spend gate


def test_two_stewards_approve_at_once_where_one_is_enough(world: World) -> None:
    world.dataset()
    request = world.request()
    other = world.person("second steward")
    second = alone(world.database, deciding(world, request, by=other))
    assert meanwhile(world.database, deciding(world, request), second) == "done"
    steps = fetch(world.database, "SELECT from_state, to_state FROM transition ORDER BY number")
    assert steps == [("draft", "submitted"), ("submitted", "approved")]
    assert len(fetch(world.database, "SELECT id FROM approval")) == 2


@pytest.mark.parametrize("withdrawn_first", [True, False])
def test_an_approval_is_withdrawn_while_a_run_starts(world: World, withdrawn_first: bool) -> None:
    world.dataset()
    request = world.request()
    world.decide(request)
    withdraw, start = withdrawing(world, request, "spend"), starting(world, request)
    if withdrawn_first:
        refusal = meanwhile(world.database, withdraw, alone(world.database, start))
        assert refusal in (GateClosed.__name__, WrongState.__name__)
    else:
        refusal = meanwhile(world.database, start, alone(world.database, withdraw))
        assert refusal in (RuleViolated.__name__, "NothingToWithdraw")
    assert world.state(request) == ("submitted" if withdrawn_first else "running")


@pytest.mark.parametrize("withdrawn_first", [True, False])
def test_a_request_is_withdrawn_while_a_run_starts(world: World, withdrawn_first: bool) -> None:
    world.dataset()
    request = world.request()
    world.decide(request)
    start = starting(world, request)

    def withdraw(session: Session) -> None:
        requests.withdraw(session, world.analyst, request, "not needed")

    first, second = (withdraw, start) if withdrawn_first else (start, withdraw)
    assert meanwhile(world.database, first, alone(world.database, second)) == WrongState.__name__
    assert world.state(request) == ("withdrawn" if withdrawn_first else "running")


def test_two_runs_of_one_request(world: World) -> None:
    world.dataset()
    request = world.request()
    world.decide(request)
    second = alone(world.database, starting(world, request))
    assert meanwhile(world.database, starting(world, request), second) == StillRunning.__name__


def test_a_policy_is_adopted_while_a_request_is_made(world: World) -> None:
    """Nothing is requested under a policy that was replaced a moment ago."""
    world.dataset()

    def adopt(session: Session) -> None:
        policies.adopt(session, world.admin, terms(spend_approvals=2))

    assert meanwhile(world.database, adopt, world.request) == "done"
    needed = fetch(world.database, "SELECT spend_approvals FROM policy_version p JOIN request r ON r.policy_id = p.id")
    assert needed in ([], [(2,)])


# --- arming


@pytest.mark.parametrize(
    ("name", "role", "code"), [("steward", "steward", "RuleViolated"), ("runner", "runner", "RoleDenied")]
)
def test_a_role_is_taken_away_while_an_instalment_is_armed(world: World, name: str, role: str, code: str) -> None:
    world.dataset()
    attempt = world.held()
    outcome = meanwhile(world.database, revoking(world, name, role), lambda: world.arm(attempt))
    assert outcome == code
    assert world.balance().spent == Amount()


def test_a_role_is_taken_away_after_the_instalment(world: World) -> None:
    world.dataset()
    attempt = world.held()
    second = alone(world.database, revoking(world, "steward", "steward"))
    assert meanwhile(world.database, arming(world, attempt), second) == "done"
    assert world.balance().spent == TEN


def test_a_passkey_is_revoked_while_an_instalment_is_armed(world: World) -> None:
    world.dataset()
    number, request = world.passkey(world.steward), world.request()
    made = GateDecision(request, "spend", world.subject(request, "spend"), "approve", "by passkey", SOON)
    with world.database.write() as session:
        gates.record_decision(session, world.steward, made, "signature", passkey=PasskeySignature(number, "", ""))
    attempt = world.start(request)
    world.hold(attempt, *PLAN)
    outcome = meanwhile(
        world.database,
        lambda session: people.revoke_passkey(session, world.admin, number, "the telephone is lost"),
        lambda: world.arm(attempt),
    )
    assert outcome == RuleViolated.__name__
    assert world.balance().spent == Amount()


def test_a_standing_authorisation_is_ended_while_an_instalment_is_armed(world: World) -> None:
    world.dataset()
    standing = world.standing()
    attempt = world.start(world.routine(standing))
    world.hold(attempt, *PLAN)
    ending = deciding(world, standing, "proposal", "reject")
    assert meanwhile(world.database, ending, lambda: world.arm(attempt)) == RuleViolated.__name__
    assert world.balance().spent == Amount()


def test_one_instalment_is_armed_once(world: World) -> None:
    world.dataset()
    attempt = world.held()
    assert meanwhile(world.database, arming(world, attempt), lambda: world.arm(attempt)) == AttemptClosed.__name__
    assert world.balance().spent == TEN


@pytest.mark.parametrize("first", ["COMMIT", "FORFEIT"])
def test_what_was_settled_is_not_committed(world: World, first: str) -> None:
    world.dataset()
    attempt = world.held()
    world.arm(attempt)
    outcome = meanwhile(
        world.database,
        lambda session: budget.settle(session, world.runner, attempt, first),
        lambda: world.settle(attempt, "COMMIT"),
    )
    assert outcome == AttemptClosed.__name__
    assert fetch(world.database, "SELECT kind FROM entry WHERE kind IN ('COMMIT', 'FORFEIT')") == [(first,)]


# --- budgets


@pytest.mark.parametrize("cap_first", [True, False])
def test_the_cap_goes_down_while_something_is_held(world: World, cap_first: bool) -> None:
    world.dataset(cap=Amount(1000, 100))
    attempt = world.running("clinic", planned(Amount(600)))
    proposal = world.cap(Amount(500, 100), carry=False)
    carry, hold = deciding(world, proposal, "proposal"), holding(world, attempt, 600)
    if cap_first:
        assert meanwhile(world.database, carry, alone(world.database, hold)) == BudgetExceeded.__name__
    else:
        assert meanwhile(world.database, hold, alone(world.database, carry)) == "CapTooLow"
    assert world.balance().cap.rho == (500 if cap_first else 1000)
    sound(world)


@pytest.mark.parametrize(("uses", "outcome"), [(1, "AuthorisationExhausted"), (2, "done")])
def test_two_runs_draw_on_one_standing_authorisation(world: World, uses: int, outcome: str) -> None:
    world.dataset()
    standing = world.standing(runs=uses)
    one, two = world.routine(standing), world.routine(standing)
    second = alone(world.database, starting(world, two))
    assert meanwhile(world.database, starting(world, one), second) == outcome
    assert len(fetch(world.database, "SELECT id FROM transition WHERE to_state = 'running'")) == uses
    assert world.state(two) == ("running" if uses == 2 else "approved")


# --- proposals and publications


@pytest.mark.parametrize(("needed", "outcome"), [(1, "ProposalDecided"), (2, "done")])
def test_two_stewards_carry_one_proposal(database: Database, needed: int, outcome: str) -> None:
    world = World.create(database, proposal_approvals=needed)
    other = world.person("second steward")
    world.dataset()
    proposal = world.cap(Amount(2000, 100), carry=False)
    second = alone(database, deciding(world, proposal, "proposal", by=other))
    assert meanwhile(database, deciding(world, proposal, "proposal"), second) == outcome
    assert len(fetch(database, "SELECT id FROM carried")) == 1
    assert world.balance().cap.rho == 2000


def test_one_carries_while_one_rejects(world: World) -> None:
    other = world.person("second steward")
    world.dataset()
    proposal = world.cap(Amount(2000, 100), carry=False)
    second = alone(world.database, deciding(world, proposal, "proposal", by=other))
    reject = deciding(world, proposal, "proposal", "reject")
    assert meanwhile(world.database, reject, second) == "ProposalDecided"
    assert world.balance().cap.rho == 1000


def test_two_publish_at_once(world: World) -> None:
    world.dataset()
    request = world.produced().request_id
    world.decide(request, "publish")
    second = alone(world.database, publishing(world, request))
    assert meanwhile(world.database, publishing(world, request), second) == "done"
    assert len(fetch(world.database, "SELECT id FROM publication")) == 1
    assert world.state(request) == "published"


def taken_back(world: World, request: int, how: str) -> Act:
    acts: dict[str, Any] = {
        "rejected": lambda: deciding(world, request, "publish", "reject"),
        "withdrawn": lambda: withdrawing(world, request, "publish"),
        "no steward any more": lambda: revoking(world, "steward", "steward"),
    }
    made: Act = acts[how]()
    return made


@pytest.mark.parametrize("how", ["rejected", "withdrawn", "no steward any more"])
def test_an_approval_ends_while_it_is_published(world: World, how: str) -> None:
    world.dataset()
    request = world.produced().request_id
    world.decide(request, "publish")
    second = alone(world.database, publishing(world, request))
    refusal = meanwhile(world.database, taken_back(world, request, how), second)
    assert refusal in (WrongState.__name__, GateClosed.__name__, RuleViolated.__name__)
    assert fetch(world.database, "SELECT id FROM publication") == []


@pytest.mark.parametrize("how", ["rejected", "withdrawn"])
def test_an_approval_cannot_end_once_it_is_published(world: World, how: str) -> None:
    world.dataset()
    request = world.produced().request_id
    world.decide(request, "publish")
    second = alone(world.database, taken_back(world, request, how))
    refusal = meanwhile(world.database, publishing(world, request), second)
    assert refusal in (WrongState.__name__, RuleViolated.__name__, "NothingToWithdraw")
    assert world.state(request) == "published"
