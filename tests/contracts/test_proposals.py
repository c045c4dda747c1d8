"""What the services of proposals say to their callers: days without hours, differences by name, altered rows."""

from datetime import UTC, datetime, timedelta

import pytest

from models_db.database.base import utc_now
from models_db.services import datasets, gates, proposals, requests
from models_db.services.audit.chain import Actor
from models_db.services.datasets import LifetimeClaim
from models_db.services.gates import GateDecision
from models_db.services.proposals import AuthorisationTerms
from models_db.sessions.database import Database
from models_db.tables import PolicyVersion
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from tests.refusals import refusal
from tests.support import FAR, LATE, World, any_amounts, event_of, execute, fetch

WEEK = timedelta(days=7)


def body(rho: int = 10, **changes: Json) -> dict[str, Json]:
    parts: list[Json] = [{"rho": str(part), "delta": "0"} for part in (rho - rho // 2, rho // 2)]
    plan: Json = {"blocks": [0], "invocations": [{"event": event_of("integer_draw").to_json(), "instalments": parts}]}
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


def test_a_proposal_tells_no_hour(world: World) -> None:
    world.dataset()
    propose_cap(world, cap(2000))
    ((expires,),) = fetch(world.database, "SELECT expires_at FROM proposal")
    assert str(expires).endswith("T23:59:59.000000Z")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": "2"}, "the request has another `epsilon`"),
        ({"code": "d"}, "almoner itself has changed since"),
        ({"policy": "q", "kind": "l"}, "another policy is in force since .*another `kind`"),
        ({"model": "m"}, "another `model`"),
    ],
)
def test_what_differs_is_named(world: World, changes: dict[str, Json], said: str) -> None:
    world.dataset()
    number = propose_standing(world)
    decide(world, number)
    with refusal("AuthorisationExhausted", match=said) as other:
        submit(world, number, **changes)
    assert other.value.facts["differs"] == sorted(changes)


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
    with world.database.read() as session, refusal("ProposalAltered"):
        proposals.require_authorisation_intact(session, requests.find_request(session, request))
