"""An empty dataset is forgotten: by whom, when not, what is left of it, and who comes first if something comes in."""

from collections.abc import Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models_db.services.audit import verify_chain
from models_db.services.catalogue import dataset_ends, datasets, erasures, policies
from models_db.services.catalogue.dataset_ends import DatasetNotEmpty
from models_db.services.catalogue.datasets import DatasetForgotten, DatasetUnknown, LifetimeClaim, Registration
from models_db.services.catalogue.erasures import ErasureRequest
from models_db.services.catalogue.principals import RoleRequired
from models_db.services.lifecycle import proposals
from models_db.services.queries import health, lists
from models_db.services.verification import verify_rows
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from tests.contracts.meeting import meanwhile
from tests.support import FAR, World, fetch, snapshot

Act = Callable[[Session], object]


@pytest.fixture
def vacant(world: World) -> World:
    """A ledger with an empty dataset beside one with a version."""
    world.dataset("clinic")
    world.empty_dataset("vacant")
    return world


def forgetting(world: World, name: str = "vacant") -> Act:
    return lambda session: dataset_ends.forget(session, world.steward, datasets.find_dataset(session, name), "a slip")


def ingesting(world: World, name: str = "vacant") -> Act:
    return lambda session: datasets.add_version(
        session, world.runner, datasets.find_dataset(session, name), uid=digest(name)[:32], source_mark="a" * 64,
        manifest_mark="b" * 64, units=[(b"somebody".ljust(32, b"\0"), 1)],
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


def sound(world: World) -> None:
    """The chain holds, every row is told, and the ledger's own checks pass."""
    with world.database.read() as session:
        assert verify_chain.verify_chain(session).sound
        assert verify_rows.compare_rows_with_chain(session) == []
        assert [each for each in health.check_health(session) if not each.ok] == []


def test_a_forgotten_dataset_is_left_out_of_lists_and_stays_in_the_record(vacant: World) -> None:
    before = snapshot(vacant.database)
    vacant.forget()
    after = snapshot(vacant.database)
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"dataset_end", "audit", "audit_head"}, "no row is deleted or changed"
    with vacant.database.read() as session:
        assert [one.name for one in datasets.list_all(session)] == ["clinic"]
        assert [one.name for one in datasets.list_all(session, forgotten=True)] == ["clinic", "vacant"]
        assert [one.name for one in lists.dataset_page(session, 9)] == ["clinic"]
        with pytest.raises(DatasetForgotten):
            datasets.find_dataset(session, "vacant")
        with pytest.raises(DatasetUnknown) as unknown:
            datasets.find_dataset(session, "nobody")
        assert unknown.value.facts["known"] == ["clinic"]
        with pytest.raises(DatasetForgotten):
            datasets.require_name_free(session, "vacant")
    link = fetch(vacant.database, "SELECT kind, actor, dataset, body FROM audit ORDER BY seq DESC LIMIT 1")[0]
    assert link[:3] == ("dataset.forgotten", "steward", "vacant")
    assert '"reason":"a slip"' in str(link[3])
    sound(vacant)


def test_its_name_is_not_given_again(vacant: World) -> None:
    vacant.forget()
    account = vacant.account()
    with pytest.raises(DatasetForgotten), vacant.database.write() as session:
        datasets.register(session, vacant.steward, Registration("vacant", "id", "text", True, None, None), account)


@pytest.mark.parametrize(
    ("act", "found"),
    [(ingesting, {"version": 1}), (proposing, {"proposal": 1}), (erasing, {"erasure": 1})],
)
def test_what_is_in_it_stands_in_the_way(vacant: World, act: Callable[[World], Act], found: dict[str, int]) -> None:
    with vacant.database.write() as session:
        act(vacant)(session)
    before = snapshot(vacant.database)
    with pytest.raises(DatasetNotEmpty) as refusal:
        vacant.forget()
    assert refusal.value.facts == {"dataset": "vacant", "found": found}
    assert snapshot(vacant.database) == before


def test_a_dataset_with_requests_and_spending_is_not_forgotten(vacant: World) -> None:
    vacant.published()
    before = snapshot(vacant.database)
    with pytest.raises(DatasetNotEmpty, match="1 version, 1 request"):
        vacant.forget("clinic")
    assert snapshot(vacant.database) == before


def test_only_stewards_and_admins_forget(vacant: World) -> None:
    for actor in (vacant.analyst, vacant.runner):
        before = snapshot(vacant.database)
        with pytest.raises(RoleRequired):
            vacant.forget(by=actor)
        assert snapshot(vacant.database) == before
    vacant.forget(by=vacant.admin)


def test_it_is_forgotten_once(vacant: World) -> None:
    vacant.forget()
    before = snapshot(vacant.database)
    with pytest.raises(DatasetForgotten):
        vacant.forget()
    assert snapshot(vacant.database) == before


def test_a_dataset_that_shares_a_budget_is_forgotten_alone(vacant: World) -> None:
    """The other one keeps its budget, its versions and its requests."""
    vacant.published()
    with vacant.database.write() as session:
        account = datasets.find_dataset(session, "clinic").account_id
        datasets.register(session, vacant.steward, Registration("beside", "x", "text", True, None, None), account)
    balance = vacant.balance("clinic")
    vacant.forget("beside")
    assert vacant.balance("clinic") == balance
    vacant.published()
    sound(vacant)


@pytest.mark.parametrize("act", [ingesting, proposing, erasing])
def test_something_comes_in_while_it_is_forgotten(vacant: World, act: Callable[[World], Act]) -> None:
    def second() -> None:
        with vacant.database.write() as session:
            act(vacant)(session)

    refused = meanwhile(vacant.database, forgetting(vacant), second)
    assert refused in ("DatasetForgotten", "RuleViolated")
    assert (refused == "RuleViolated") <= (not vacant.database.is_sqlite and act is not ingesting)
    assert rows_of(vacant, "dataset_end") == 1
    assert [rows_of(vacant, table) for table in ("dataset_version", "proposal", "erasure")] == [1, 0, 0]
    assert fetch(vacant.database, "SELECT count(*) FROM unit_mark") == [(1,)], "that of the other dataset"
    sound(vacant)


@pytest.mark.parametrize("act", [ingesting, proposing, erasing])
def test_it_is_forgotten_while_something_comes_in(vacant: World, act: Callable[[World], Act]) -> None:
    assert meanwhile(vacant.database, act(vacant), vacant.forget) == "DatasetNotEmpty"
    assert rows_of(vacant, "dataset_end") == 0
    sound(vacant)


def test_two_forget_it_at_once(vacant: World) -> None:
    refused = meanwhile(vacant.database, forgetting(vacant), vacant.forget)
    assert refused == ("DatasetForgotten" if vacant.database.is_sqlite else "AlreadyRecorded")
    assert rows_of(vacant, "dataset_end") == 1
    sound(vacant)


def rows_of(world: World, table: str) -> object:
    return fetch(world.database, f"SELECT count(*) FROM {table}")[0][0]


def test_no_row_of_it_can_be_deleted(vacant: World) -> None:
    vacant.forget()
    for statement in ("DELETE FROM dataset_end", "UPDATE dataset_end SET reason = 'none'", "DELETE FROM dataset"):
        with pytest.raises(DBAPIError, match="append-only"), vacant.database.engine.begin() as connection:
            connection.execute(text(statement))
    sound(vacant)
