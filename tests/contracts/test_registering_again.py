"""A dataset is registered again until something is in it: by whom, until when, and who comes first of two at once."""

from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from models_db.services import datasets, erasures, policies, proposals
from models_db.services.audit import verify_chain
from models_db.services.datasets import LifetimeClaim, Registration
from models_db.services.erasures import ErasureRequest
from models_db.services.queries import health, lists
from models_db.services.verification import verify_rows
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from tests.contracts.meeting import meanwhile
from tests.refusals import refusal
from tests.support import FAR, World, fetch, snapshot

Act = Callable[[Session], object]


@pytest.fixture
def vacant(world: World) -> World:
    """A ledger with an empty dataset beside one with a version."""
    world.dataset("clinic")
    world.empty_dataset("vacant")
    return world


def registering(world: World, name: str = "vacant") -> Act:
    account = world.account()
    wanted = Registration(name, "other_id", "text", True, None, None)
    return lambda session: datasets.register(session, world.steward, wanted, account)


def ingesting(world: World) -> Act:
    return lambda session: datasets.add_version(
        session, world.runner, datasets.find_dataset(session, "vacant"), uid=digest("vacant")[:32],
        source_mark="a" * 64, manifest_mark="b" * 64, units=[(b"somebody".ljust(32, b"\0"), 1)],
    )  # fmt: skip


def proposing(world: World) -> Act:
    def propose(session: Session) -> object:
        policy = policies.policy_in_force(session)
        assert policy is not None
        claim = LifetimeClaim("9", "0.000002", 10**12, Amount(10**6))
        found = datasets.find_dataset(session, "vacant")
        return proposals.propose_cap(session, world.analyst, found, policy, claim, "because", FAR)

    return propose


def erasing(world: World) -> Act:
    wanted = ErasureRequest("all", "asked", {})
    return lambda session: erasures.record_erasure(
        session, world.steward, datasets.find_dataset(session, "vacant"), wanted
    )


ACTS = pytest.mark.parametrize("act", [ingesting, proposing, erasing])


def do(world: World, act: Act) -> None:
    with world.database.write() as session:
        act(session)


def sound(world: World) -> None:
    """The chain holds, every row is told, and the ledger's own checks pass."""
    with world.database.read() as session:
        assert verify_chain.verify_chain(session).sound
        assert verify_rows.compare_rows_with_chain(session) == []
        assert [each for each in health.check_health(session) if not each.ok] == []


def unit_fields(world: World, name: str = "vacant") -> list[object]:
    query = "SELECT unit_field FROM dataset WHERE name = :name ORDER BY id"
    return [field for (field,) in fetch(world.database, query, name=name)]


def test_the_newest_registration_counts_and_each_stays_in_the_record(vacant: World) -> None:
    before = snapshot(vacant.database)
    vacant.empty_dataset("vacant", "other_id", by=vacant.admin)
    after = snapshot(vacant.database)
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"account", "audit", "audit_head", "dataset"}
    assert set(before["dataset"]) < set(after["dataset"]), "no row is deleted or changed"
    with vacant.database.read() as session:
        assert datasets.find_dataset(session, "vacant").unit_field == "other_id"
        assert [one.name for one in datasets.list_all(session)] == ["clinic", "vacant"]
        assert [one.name for one in datasets.list_all(session, replaced=True)] == ["clinic", "vacant", "vacant"]
        assert [one.unit_field for one in lists.dataset_page(session, 9)] == ["patient_id", "other_id"]
    link = fetch(vacant.database, "SELECT kind, actor, dataset FROM audit ORDER BY seq DESC LIMIT 1")[0]
    assert link == ("dataset.registered", "admin", "vacant")
    do(vacant, ingesting(vacant))
    sound(vacant)


@ACTS
def test_a_registration_is_final_with_what_comes_in(vacant: World, act: Callable[[World], Act]) -> None:
    do(vacant, registering(vacant))
    do(vacant, act(vacant))
    again = registering(vacant)
    before = snapshot(vacant.database)
    with refusal("DatasetExists"):
        do(vacant, again)
    assert snapshot(vacant.database) == before


def test_nothing_is_requested_or_approved_before_the_first_version(vacant: World) -> None:
    """So a further registration voids no request, and no approval of one."""
    before = snapshot(vacant.database)
    with refusal("NothingIngested"):
        vacant.request("vacant")
    assert snapshot(vacant.database) == before


def test_only_stewards_and_admins_register_again(vacant: World) -> None:
    for actor in (vacant.analyst, vacant.runner):
        with refusal("RoleDenied"):
            vacant.empty_dataset("vacant", "other_id", by=actor)
    assert unit_fields(vacant) == ["id"]


def test_a_dataset_that_shared_the_budget_keeps_it(vacant: World) -> None:
    with vacant.database.write() as session:
        account = datasets.find_dataset(session, "vacant").account_id
        datasets.register(session, vacant.steward, Registration("beside", "x", "text", True, None, None), account)
    do(vacant, registering(vacant))
    with vacant.database.read() as session:
        assert datasets.find_dataset(session, "beside").account_id == account
        assert datasets.find_dataset(session, "vacant").account_id != account
    sound(vacant)


@ACTS
def test_something_comes_in_while_it_is_registered_again(vacant: World, act: Callable[[World], Act]) -> None:
    """It waits, and comes into the new registration."""
    assert meanwhile(vacant.database, registering(vacant), lambda: do(vacant, act(vacant))) == "done"
    assert unit_fields(vacant) == ["id", "other_id"]
    assert first_is_empty(vacant)
    sound(vacant)


@ACTS
def test_it_is_registered_again_while_something_comes_in(vacant: World, act: Callable[[World], Act]) -> None:
    again = registering(vacant)
    assert meanwhile(vacant.database, act(vacant), lambda: do(vacant, again)) == "DatasetExists"
    assert unit_fields(vacant) == ["id"]
    sound(vacant)


@pytest.mark.parametrize("name", ["vacant", "new"])
def test_two_register_it_at_once(vacant: World, name: str) -> None:
    """The second waits, has seen the first, and registers again."""
    before = len(unit_fields(vacant, name))
    one, two = registering(vacant, name), registering(vacant, name)
    refused = meanwhile(vacant.database, one, lambda: do(vacant, two))
    assert refused == "done"
    assert len(unit_fields(vacant, name)) - before == 2
    sound(vacant)


def first_is_empty(world: World) -> bool:
    first = "(SELECT id FROM dataset WHERE name = 'vacant' AND registration = 1)"
    tables = ("dataset_version", "proposal", "erasure")
    return all(fetch(world.database, f"SELECT 1 FROM {table} WHERE dataset_id = {first}") == [] for table in tables)
