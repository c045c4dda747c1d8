"""Envelopes on both backends: what narrows a budget, and never widens it."""

from typing import Any

import pytest

from models_db.services.catalogue import datasets, requests
from models_db.services.catalogue.principals import RoleRequired
from models_db.services.lifecycle import envelopes
from models_db.services.lifecycle.envelopes import EnvelopeClosed, EnvelopeExists, EnvelopeTooLarge, EnvelopeUnknown
from models_db.services.lifecycle.ledger import BudgetExceeded, InvocationPlan
from models_db.tables import PolicyVersion
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.support import FAR, PLAN, World, fetch, plan_of, planned


def spend(world: World, rho: int) -> None:
    world.arm(world.held(planned(Amount(rho))))


def opened(world: World, name: str, rho: int, delta: int = 0) -> int:
    with world.database.write() as session:
        dataset = datasets.find_dataset(session, "clinic")
        return envelopes.open_envelope(session, world.steward, dataset, name, Amount(rho, delta), "a study").id


def closed(world: World, name: str) -> None:
    with world.database.write() as session:
        envelopes.close_envelope(
            session, world.steward, datasets.find_dataset(session, "clinic"), name, "the study is over"
        )


def request_in(world: World, name: str, *approved: InvocationPlan) -> int:
    with world.database.write() as session:
        dataset = datasets.find_dataset(session, "clinic")
        scope = envelopes.find_envelope(session, dataset, name)
        policy = session.get_one(PolicyVersion, world.policy_id)
        version = datasets.newest_version(session, dataset)
        body: dict[str, Any] = {
            "kind": "k", "mechanism": "m", "epsilon": "1", "scope": name, "number": next(world._numbers),
            "plan": plan_of([0], approved or PLAN),
        }  # fmt: skip
        made = requests.submit(session, world.analyst, dataset, version, policy, body, FAR, scope=scope)
    world.decide(made.id)
    return made.id


def test_an_envelope_is_kept_from_all_others(world: World) -> None:
    world.dataset(cap=Amount(1000, 100))
    opened(world, "study", 600)
    assert world.balance().remaining == Amount(400, 100)
    assert world.balance().reserved == Amount(600)
    with pytest.raises(BudgetExceeded):
        world.held(planned(Amount(401)))
    spend(world, 400)
    beyond, most = planned(Amount(601)), planned(Amount(250))
    with pytest.raises(BudgetExceeded, match="in the envelope 'study'"):
        world.hold(world.start(request_in(world, "study", beyond)), beyond)
    inside = world.start(request_in(world, "study", most))
    world.hold(inside, most)
    world.arm(inside)
    world.produce(inside)
    closed(world, "study")
    assert world.balance().remaining == Amount(350, 100)
    assert world.balance().spent == Amount(650)
    spend(world, 350)


def test_the_database_keeps_an_envelope_without_the_services(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.dataset(cap=Amount(1000, 100))
    opened(world, "study", 600)
    beyond = planned(Amount(401))
    attempt = world.running("clinic", beyond)
    monkeypatch.setattr(Amount, "fits", lambda self, room: True)
    with pytest.raises((BudgetExceeded, RuleViolated), match=r"envelope|left"):
        world.hold(attempt, beyond)
    assert world.balance().held == Amount()


def test_an_envelope_must_fit_beside_the_others_and_what_is_spent(world: World) -> None:
    world.dataset(cap=Amount(1000, 100))
    spend(world, 300)
    opened(world, "study", 600, 50)
    for rho, delta in ((101, 0), (0, 51)):
        with pytest.raises(EnvelopeTooLarge, match="has left"):
            opened(world, "another", rho, delta)
    opened(world, "another", 100, 50)
    assert world.balance().remaining == Amount()


def test_names_are_not_used_twice_and_closed_ones_are_gone(world: World) -> None:
    world.dataset()
    opened(world, "study", 10)
    waiting = request_in(world, "study")
    closed(world, "study")
    with pytest.raises(EnvelopeExists):
        opened(world, "study", 10)
    opened(world, "other", 10)
    with pytest.raises(EnvelopeUnknown, match="'study'") as unknown:
        request_in(world, "study")
    assert "other" in unknown.value.advice
    with pytest.raises(EnvelopeClosed, match="'study'"):
        world.hold(world.start(waiting), *PLAN)


@pytest.mark.parametrize(("end", "remaining"), [("produce", 700), ("fail", 900)])
def test_what_a_running_release_holds_in_an_envelope_outlives_its_end(world: World, end: str, remaining: int) -> None:
    world.dataset(cap=Amount(1000, 100))
    opened(world, "study", 600)
    plan = planned(Amount(100), Amount(200))
    inside = world.start(request_in(world, "study", plan))
    world.hold(inside, plan)
    closed(world, "study")
    assert world.balance().remaining == Amount(700, 100)
    world.arm(inside)
    getattr(world, end)(inside)
    assert world.balance().remaining == Amount(remaining, 100)


def test_only_a_steward_opens_and_closes(world: World) -> None:
    world.dataset()
    opened(world, "study", 10)
    for actor in (world.analyst, world.runner):
        with world.database.write() as session:
            dataset = datasets.find_dataset(session, "clinic")
            with pytest.raises(RoleRequired):
                envelopes.open_envelope(session, actor, dataset, "more", Amount(1), "because")
            with pytest.raises(RoleRequired):
                envelopes.close_envelope(session, actor, dataset, "study", "because")
    assert fetch(world.database, "SELECT count(*) FROM account WHERE kind = 'scope'") == [(1,)]
    assert fetch(world.database, "SELECT count(*) FROM scope_end") == [(0,)]
