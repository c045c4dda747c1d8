"""Approvals: how many, by whom, until when, and until they are used; on both backends through the services."""

from datetime import timedelta
from typing import Any

import pytest

from models_db.policies.rules import DatasetTerms
from models_db.services.catalogue import datasets, policies, requests
from models_db.services.catalogue.requests import WrongState
from models_db.services.lifecycle import artifacts, gates
from models_db.services.lifecycle.gates import GateClosed, GateDecision, NothingToWithdraw
from models_db.services.lifecycle.ledger import BudgetExceeded
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.support import FAR, PLAN, SOON, TEN, World, any_amounts, fetch, later, plan_of, planned, snapshot, terms

HOUR = timedelta(hours=1)


@pytest.fixture
def clinic(world: World) -> World:
    world.dataset()
    return world


def governed(database: Database, *rules: DatasetTerms, **given: Any) -> World:
    """A ledger whose policy has rules for datasets."""
    world = World.create(database, rules=rules, **given)
    world.dataset("clinic")
    world.dataset("harbour")
    return world


def rule(dataset: str, **given: int) -> DatasetTerms:
    nothing = {"spend_approvals": None, "publish_approvals": None, "proposal_approvals": None, "rho_max": None,
               "delta_max": None}  # fmt: skip
    return DatasetTerms(dataset=dataset, **nothing | given)  # type: ignore[arg-type]


def publish(world: World, request_id: int) -> None:
    with world.database.write() as session:
        artifacts.record_publication(session, world.runner, request_id)


# --- how many -----------------------------------------------------------------------------------------------------


def test_a_dataset_may_need_more_approvals_than_others(database: Database) -> None:
    world = governed(database, rule("clinic", spend_approvals=2, publish_approvals=3))
    second, third = world.person("second"), world.person("third")
    assert world.decide(world.request("harbour")) == "approved"
    request_id = world.request("clinic")
    assert world.decide(request_id) == "submitted"
    with pytest.raises(GateClosed) as closed:
        world.start(request_id)
    assert closed.value.facts["needed"] == 2
    assert world.decide(request_id, by=second) == "approved"
    attempt = world.start(request_id)
    world.hold(attempt, *PLAN)
    world.arm(attempt)
    world.produce(attempt)
    for by in (world.steward, second):
        world.decide(request_id, "publish", by=by)
        with pytest.raises(GateClosed):
            publish(world, request_id)
    world.decide(request_id, "publish", by=third)
    publish(world, request_id)


def test_the_database_counts_by_the_rule_too(database: Database) -> None:
    world = governed(database, rule("clinic", spend_approvals=2))
    request_id = world.request("clinic")
    world.decide(request_id)
    with pytest.raises(RuleViolated, match="the spend gate is not passed"), database.write() as session:
        requests.record_transition(session, world.runner, request_id, "submitted", "approved")


def test_datasets_of_one_account_need_what_the_strictest_needs(database: Database) -> None:
    world = governed(database, rule("clinic", spend_approvals=2))
    with database.read() as session:
        account_id = datasets.find_dataset(session, "clinic").account_id
    world.dataset("ward", account_id=account_id)
    assert world.decide(world.request("ward")) == "submitted"


@pytest.mark.parametrize(("asked", "refused"), [(Amount(51), True), (Amount(50, 5), False), (Amount(1, 6), True)])
def test_a_release_costs_no_more_than_the_rule_says(database: Database, asked: Amount, refused: bool) -> None:
    world = governed(database, rule("clinic", rho_max=50, delta_max=5), rho_max=200)
    if refused:
        with pytest.raises(RuleViolated, match="allows a release less"):
            world.held(planned(asked))
    else:
        world.held(planned(asked))
    world.held(planned(Amount(200)), dataset="harbour")
    with pytest.raises(RuleViolated, match="allows a release less"):
        world.held(planned(Amount(201)), dataset="harbour")


def test_a_release_of_several_mechanisms_is_one_release(database: Database) -> None:
    world = governed(database, rho_max=50)
    with pytest.raises(RuleViolated, match="allows a release less"):
        world.held(planned(Amount(30)), planned(Amount(21)))
    plan = planned(Amount(30)), planned(Amount(20))
    attempt = world.held(*plan)
    world.arm(attempt, 0)
    world.fail(attempt)
    again = world.start(attempt.request_id)  # another attempt is another release, and costs again
    world.hold(again, *plan)


def test_one_rejection_blocks_whatever_else_is_said(database: Database) -> None:
    world = governed(database, spend_approvals=1)
    second = world.person("second")
    request_id = world.request()
    world.decide(request_id)
    assert world.decide(request_id, verdict="reject", by=second) == "rejected"
    with pytest.raises(WrongState):
        world.decide(request_id, by=world.person("third"))
    with pytest.raises(WrongState):
        world.start(request_id)


def test_a_rejection_after_an_approval_of_ones_own_counts(clinic: World) -> None:
    request_id = clinic.request()
    clinic.decide(request_id)
    assert clinic.decide(request_id, verdict="reject") == "rejected"


# --- until when ---------------------------------------------------------------------------------------------------


def test_an_approval_is_given_again_after_it_expired(clinic: World) -> None:
    request_id = clinic.request()
    clinic.decide(request_id, valid=HOUR)
    with pytest.raises(RuleViolated, match="approved it already"):
        clinic.decide(request_id)
    with later(2 * HOUR):
        with pytest.raises(GateClosed):
            clinic.start(request_id)
        clinic.decide(request_id)
        clinic.start(request_id)


def test_what_expired_arms_nothing(clinic: World) -> None:
    plan = planned(TEN, TEN)
    request_id = clinic.request(approved=[plan])
    clinic.decide(request_id, valid=HOUR)
    attempt = clinic.start(request_id)
    clinic.hold(attempt, plan)
    clinic.arm(attempt)
    with later(2 * HOUR), pytest.raises(RuleViolated, match="the spend gate is not passed"):
        clinic.arm(attempt, instalment=1)


def test_the_database_starts_no_request_that_expired(clinic: World) -> None:
    request_id = clinic.request(valid=HOUR)
    clinic.decide(request_id)
    with later(2 * HOUR), pytest.raises(RuleViolated, match="has expired"), clinic.database.write() as session:
        requests.record_transition(session, clinic.runner, request_id, "approved", "running")


# --- until it is used ---------------------------------------------------------------------------------------------


def test_an_approval_is_taken_back_and_the_request_waits_again(clinic: World) -> None:
    request_id = clinic.request()
    clinic.decide(request_id)
    assert clinic.take_back(request_id) == "submitted"
    with pytest.raises(GateClosed):
        clinic.start(request_id)
    with pytest.raises(NothingToWithdraw):
        clinic.take_back(request_id)
    assert clinic.decide(request_id) == "approved"
    clinic.start(request_id)
    with pytest.raises(RuleViolated, match="only before it is used"):
        clinic.take_back(request_id)


def test_a_taken_back_approval_does_not_return_by_its_signature(clinic: World) -> None:
    request_id = clinic.request()
    decision = GateDecision(request_id, "spend", clinic.subject(request_id, "spend"), "approve", "because", SOON)
    for expected in ("approved", None):
        with clinic.database.write() as session:
            if expected:
                assert (
                    gates.record_decision(session, clinic.steward, decision, "the same", amount_check=any_amounts)
                    == expected
                )
            else:
                with pytest.raises(RuleViolated, match="was taken back"):
                    gates.record_decision(session, clinic.steward, decision, "the same", amount_check=any_amounts)
        if expected:
            clinic.take_back(request_id)


def test_more_than_enough_approvals_outlive_one(database: Database) -> None:
    world = governed(database)
    second = world.person("second")
    request_id = world.request()
    world.decide(request_id)
    world.decide(request_id, by=second)
    assert world.take_back(request_id, by=second) == "approved"
    assert world.take_back(request_id) == "submitted"


def test_a_publish_approval_is_taken_back_until_it_is_published(clinic: World) -> None:
    request_id = clinic.produced().request_id
    clinic.decide(request_id, "publish")
    assert clinic.take_back(request_id, gate="publish") == "produced"
    with pytest.raises(GateClosed):
        publish(clinic, request_id)
    clinic.decide(request_id, "publish")
    publish(clinic, request_id)
    with pytest.raises(RuleViolated, match="only before it is used"):
        clinic.take_back(request_id, gate="publish")


def test_nobody_takes_back_what_another_gave(clinic: World) -> None:
    second = clinic.person("second")
    request_id = clinic.request()
    clinic.decide(request_id)
    before = snapshot(clinic.database)
    with pytest.raises(NothingToWithdraw):
        clinic.take_back(request_id, by=second)
    assert snapshot(clinic.database) == before


# --- the policy ---------------------------------------------------------------------------------------------------


def test_a_request_is_made_under_the_policy_in_force(clinic: World) -> None:
    with clinic.database.read() as session:
        old = policies.policy_in_force(session)
    waiting = clinic.request()
    with clinic.database.write() as session:
        policies.adopt(session, clinic.admin, terms(spend_approvals=2))
    assert old is not None
    body: dict[str, Any] = {"kind": "k", "mechanism": "m", "epsilon": "1", "plan": plan_of([0])}
    with clinic.database.write() as session:
        found = datasets.find_dataset(session, "clinic")
        version = datasets.newest_version(session, found)
    with pytest.raises(RuleViolated, match="under the policy in force"), clinic.database.write() as session:
        requests.submit(session, clinic.analyst, found, version, old, body, FAR)
    assert clinic.decide(waiting) == "approved"  # as its own policy has it
    assert clinic.decide(clinic.request()) == "submitted"


def test_an_adopted_policy_comes_back(clinic: World) -> None:
    """Adoptions are counted, not versions; the last one is in force."""
    with clinic.database.write() as session:
        policies.adopt(session, clinic.admin, terms(spend_approvals=2))
        again = policies.adopt(session, clinic.admin, terms())
        assert policies.policy_in_force(session) == again
    assert again.id == clinic.policy_id
    assert fetch(clinic.database, "SELECT count(*) FROM policy_adoption") == [(3,)]
    assert clinic.decide(clinic.request()) == "approved"


def test_the_cap_is_refused_with_figures(clinic: World) -> None:
    with pytest.raises(BudgetExceeded) as exceeded:
        clinic.held(planned(Amount(1001)))
    assert exceeded.value.remaining == Amount(1000, 100)
