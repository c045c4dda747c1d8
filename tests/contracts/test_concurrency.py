"""Two transactions at once: the second waits for the first, then sees what it did. On both backends.

On SQLite the second writer waits at its beginning; on PostgreSQL at the lock it needs. Each test fails if that lock is
taken away: the second would then decide on what it saw before the first had ended.
"""

from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from models_db.services import artifacts, attempts, budget, datasets, gates, people
from models_db.services.attempts import StillRunning
from models_db.services.audit import chain, verify_chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import AttemptClosed, BudgetExceeded
from models_db.services.gates import GateDecision
from models_db.services.requests import WrongState
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from tests.contracts.meeting import meanwhile
from tests.support import PROVENANCE, SOON, World, any_amounts, fetch, planned


def decision(world: World, request_id: int, by: Actor, verdict: str = "approve") -> Callable[[Session], str]:
    made = GateDecision(request_id, "spend", world.subject(request_id, "spend"), verdict, "because", SOON)
    return lambda session: gates.record_decision(session, by, made, "signature", amount_check=any_amounts)


def test_two_stewards_approve_at_once(database: Database) -> None:
    world = World.create(database, spend_approvals=2)
    other = world.person("second steward")
    world.dataset()
    request_id = world.request()
    outcome = meanwhile(
        database, decision(world, request_id, world.steward), lambda: world.decide(request_id, by=other)
    )
    assert outcome == "done"
    assert world.state(request_id) == "approved"


def test_one_approves_while_one_rejects(world: World) -> None:
    other = world.person("second steward")
    world.dataset()
    request_id = world.request()
    reject = decision(world, request_id, other, "reject")
    assert meanwhile(world.database, reject, lambda: world.decide(request_id)) == WrongState.__name__
    assert world.state(request_id) == "rejected"


def test_two_runners_start_at_once(world: World) -> None:
    world.dataset()
    request_id = world.request()
    world.decide(request_id)
    outcome = meanwhile(
        world.database,
        lambda session: attempts.start_attempt(session, world.runner, request_id, "one", "here"),
        lambda: world.start(request_id),
    )
    assert outcome in (StillRunning.__name__, WrongState.__name__)
    assert world.state(request_id) == "running"


def test_the_last_of_the_budget_is_held_once(world: World) -> None:
    world.dataset(cap=Amount(100))
    plan = planned(Amount(60))
    one, two = world.running("clinic", plan), world.running("clinic", plan)
    outcome = meanwhile(
        world.database,
        lambda session: budget.hold(session, world.runner, one, [plan], PROVENANCE),
        lambda: world.hold(two, plan),
    )
    assert outcome == BudgetExceeded.__name__
    assert world.balance().held == Amount(60)


@pytest.mark.parametrize("sweeper_first", [True, False])
def test_a_sweeper_meets_the_end_of_the_run(world: World, sweeper_first: bool) -> None:
    world.dataset()
    attempt = world.held()
    world.arm(attempt)
    if sweeper_first:
        outcome = meanwhile(
            world.database,
            lambda session: attempts.fail_attempt(session, world.runner, attempt, "swept"),
            lambda: world.produce(attempt),
        )
    else:
        outcome = meanwhile(
            world.database,
            lambda session: artifacts.record_artifact(session, world.runner, attempt, {"f": "0"}, 1, []),
            lambda: world.fail(attempt),
        )
    assert outcome == AttemptClosed.__name__
    assert world.state(attempt.request_id) == ("approved" if sweeper_first else "produced")
    assert world.balance().spent == Amount(10)


def test_a_sweeper_meets_a_run_that_arms(world: World) -> None:
    world.dataset()
    attempt = world.held()
    outcome = meanwhile(
        world.database,
        lambda session: attempts.fail_attempt(session, world.runner, attempt, "swept"),
        lambda: world.arm(attempt),
    )
    assert outcome == AttemptClosed.__name__
    assert world.balance().remaining == Amount(1000, 100)


def ingest(world: World, dataset: str, marks: list[bytes], source: str) -> Callable[[Session], object]:
    return lambda session: datasets.add_version(
        session, world.runner, datasets.find_dataset(session, dataset),
        uid=digest(dataset)[:32], source_mark=source, manifest_mark="e" * 64, units=[(mark, 1) for mark in marks],
    )  # fmt: skip


def marks(*names: str) -> list[bytes]:
    return [name.encode().ljust(32, b"\0") for name in names]


def test_two_ingests_share_a_unit(world: World) -> None:
    world.dataset("clinic")
    world.dataset("harbour")
    outcome = meanwhile(
        world.database,
        ingest(world, "clinic", marks("a", "b"), "1" * 64),
        lambda: world.version("harbour", marks("c", "b")),
    )
    assert outcome == "UnitsOverlap"


def test_two_ingests_of_one_file(world: World) -> None:
    """Without a unit field every record has a new random mark, so only the source tells them apart."""
    world.dataset("clinic", unit_field=None)
    world.dataset("harbour", unit_field=None)
    outcome = meanwhile(
        world.database,
        ingest(world, "clinic", marks("a"), "5" * 64),
        lambda: world.version("harbour", marks("b"), source="5" * 64),
    )
    assert outcome == "UnitsOverlap"


def test_two_ingests_of_one_dataset_both_succeed(world: World) -> None:
    world.dataset("clinic")
    outcome = meanwhile(
        world.database,
        ingest(world, "clinic", marks("a", "b"), "1" * 64),
        lambda: world.version("clinic", marks("b", "c")),
    )
    assert outcome == "done"
    with world.database.read() as session:
        found = datasets.list_versions(session, datasets.find_dataset(session, "clinic"))
    assert [version.number for version in found] == [1, 2, 3]


def test_one_person_is_enrolled_once(world: World) -> None:
    outcome = meanwhile(
        world.database,
        lambda session: people.enrol(session, world.admin, "newcomer", "key of newcomer"),
        lambda: world.person("newcomer"),
    )
    assert outcome == "NameTaken"
    assert len(fetch(world.database, "SELECT id FROM principal WHERE name = 'newcomer'")) == 1


def test_of_two_names_that_read_alike_one_is_enrolled(world: World) -> None:
    outcome = meanwhile(
        world.database,
        lambda session: people.enrol(session, world.admin, "Newcomer", "key of one"),
        lambda: world.person("newcomer"),
    )
    assert outcome == "NameTaken"
    assert fetch(world.database, "SELECT name FROM principal WHERE lower(name) = 'newcomer'") == [("Newcomer",)]


def test_a_reader_sees_one_moment(world: World) -> None:
    """While a chain is verified somebody appends to it; the reader's chain and head are of one moment."""
    world.dataset()
    with world.database.read() as session:
        before = chain.read_chain_head(session)
        world.request()
        report = verify_chain.verify_chain(session)
        assert (report.holds, report.head) == (True, before)
    with world.database.read() as session:
        assert chain.read_chain_head(session).seq == before.seq + 1
