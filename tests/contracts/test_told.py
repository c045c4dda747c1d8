"""What the chain tells is what the tables say, on both backends, through everything that the services do."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from models_db.base import moment
from models_db.budgets import Amount
from models_db.engine import Database
from models_db.services import artifacts, datasets, envelopes, people, policies, told
from models_db.services.people import Mandate
from tests.conftest import Ledgers
from tests.contracts.tampering import superuser
from tests.support import TEN, World, planned, terms


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def worked(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[Database]:
    """A ledger in which everything was done that is told of."""
    with ledgers.new(request.param) as database:
        story(World.create(database))
        yield database


def story(world: World) -> None:
    second, dora = world.person("second steward"), world.person("dora", "auditor")
    world.dataset(blocks=2)
    world.dataset("estate")
    with world.database.write() as session:
        for given in (terms(spend_approvals=2), terms(pacing_period="week", pacing_permille=900), terms()):
            policies.adopt(session, world.admin, given)
        now = datetime.now(UTC)
        mandate = Mandate("clinic", "dora", moment(now), moment(now + timedelta(days=9)), "away")
        lent = people.delegate(session, world.steward, mandate, "s")
        estate = datasets.find(session, "estate")
        envelopes.open_scope(session, world.steward, estate, "study", Amount(100, 10), "a study")
        envelopes.open_scope(session, world.steward, estate, "other", Amount(100, 10), "a study")
        envelopes.close_scope(session, world.steward, estate, "other", "over")
    world.decide(world.request(), by=dora, on_behalf_of="steward")
    with world.database.write() as session:
        people.end_delegation(session, world.steward, lent.id)
    _runs(world)
    request_id = world.request()
    world.decide(request_id)
    world.take_back(request_id)
    world.decide(request_id, verdict="reject", by=second)
    world.revoke("second steward", "steward")


def _runs(world: World) -> None:
    inside = world.request("estate", scope="study")
    world.decide(inside)
    scoped = world.start(inside)
    world.hold(scoped, planned(TEN, TEN))
    world.arm(scoped)
    world.fail(scoped)
    again = world.start(inside)
    world.hold(again, planned(TEN), planned(Amount(3, 1)))
    world.arm(again, 1)
    routine = world.start(world.routine(world.standing()))
    world.hold(routine, planned(TEN))
    world.arm(routine)
    world.cap(Amount(2000, 200))
    attempt = world.published()
    with world.database.write() as session:
        publication = artifacts.publish(session, world.runner, attempt.request_id)
        artifacts.delivered(session, world.runner, publication, "out", "b" * 64)
    world.retraction(attempt.request_id)


def test_what_the_services_do_is_told(worked: Database) -> None:
    with worked.read() as session:
        assert told.differences(session) == []


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ("UPDATE approval SET decision = 'approve' WHERE decision = 'reject'", "decisions"),
        ("UPDATE approval SET expires_at = '9999-01-01T00:00:00.000000Z'", "decisions"),
        ("UPDATE approval SET on_behalf_of = NULL", "decisions"),
        ("DELETE FROM withdrawal", "withdrawn approvals"),
        ("UPDATE role_grant SET role = 'admin' WHERE role = 'auditor'", "roles"),
        ("DELETE FROM role_revocation", "revoked roles"),
        ("UPDATE principal SET public_key = 'mine' WHERE name = 'steward'", "people"),
        ("DELETE FROM policy_adoption WHERE id = (SELECT max(id) FROM policy_adoption)", "the policy in force"),
        ("UPDATE hold SET rho = rho - 1 WHERE rho > 0", "what was spent"),
        ("UPDATE hold SET delta = 0", "what was spent"),
        ("DELETE FROM entry WHERE id = (SELECT min(id) FROM entry WHERE kind = 'ARM')", "what was spent"),
        ("DELETE FROM transition WHERE to_state = 'running' AND request_id = 2", "attempts"),
        ("DELETE FROM delegation_end", "ended delegations"),
        ("DELETE FROM scope_end", "closed envelopes"),
        ("DELETE FROM carried WHERE id = 1", "carried motions"),
        ("DELETE FROM delivery", "deliveries"),
    ],
)
def test_what_is_not_told_is_named(worked: Database, ledgers: Ledgers, change: str, seen: str) -> None:
    with ledgers.new("sqlite" if worked.is_sqlite else "postgresql", like=worked) as copy:
        superuser(copy, change)
        with copy.read() as session:
            assert told.differences(session) == [seen]


def test_a_link_that_is_not_json_is_no_crash(worked: Database, ledgers: Ledgers) -> None:
    with ledgers.new("sqlite" if worked.is_sqlite else "postgresql", like=worked) as copy:
        superuser(copy, "UPDATE audit SET body = 'no json' WHERE kind LIKE '%.granted' OR kind = 'ledger.arm'",
                  "UPDATE audit SET body = '[]' WHERE kind = 'request.approve'")  # fmt: skip
        with copy.read() as session:
            assert set(told.differences(session)) == {"roles", "decisions", "what was spent"}
