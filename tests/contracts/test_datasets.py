"""Datasets on both backends: registered once, versioned, kept apart by the marks of their units."""

from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from models_db.services import cohorts, datasets, people
from models_db.services.audit import verify_chain
from models_db.services.datasets import DatasetUnknown, LifetimeClaim, Registration
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from tests.refusals import refusal
from tests.support import World, fetch, snapshot


def marks(*names: str) -> list[bytes]:
    return [name.encode().ljust(32, b"\0") for name in names]


def register(world: World, name: str, account_id: int, unit_field: str | None = "id") -> None:
    with world.database.write() as session:
        wanted = Registration(name, unit_field, "text", True, 150, "out/meta.yaml")
        datasets.register(session, world.steward, wanted, account_id)


def test_an_account_has_its_blocks_and_its_claim(world: World) -> None:
    account = world.account(Amount(70, 7), blocks=3)
    register(world, "clinic", account)
    with world.database.read() as session:
        dataset = datasets.find_dataset(session, "clinic")
        claim, blocks = datasets.lifetime_claim(session, dataset), cohorts.blocks_per_cohort(session, account)
    assert (claim.epsilon, claim.delta, claim.delta_conversion) == ("8", "0.000001", 9 * 10**11)
    assert blocks == 3
    rows = fetch(world.database, "SELECT parent_id, block, rho_cap, delta_cap FROM account ORDER BY id")
    assert rows == [(None, None, 70, 7), *((account, number, 70, 7) for number in range(3))]
    assert (dataset.population, dataset.public_metadata, dataset.relation) == (
        150,
        "out/meta.yaml",
        "add_or_remove_one",
    )


NO_COMMITMENTS = {
    "empty": "",
    "short": "a" * 63,
    "long": "a" * 65,
    "capitals": "A" * 64,
    "no digit": "a" * 63 + "g",
    "no digit within": "a" * 31 + " " + "a" * 32,
    "a line feed": "a" * 63 + "\n",
    "another alphabet": "a" * 63 + "\u0430",
    "none": None,
}


DENIED = r"_key_commitment|account is a root with its claim|a constraint of the schema|too long"
"""Of the form, of what a root account has, of a column that is not NULL, and of PostgreSQL's VARCHAR(64)."""


@pytest.mark.parametrize("commitment", NO_COMMITMENTS.values(), ids=NO_COMMITMENTS)
def test_a_commitment_to_a_key_has_one_form(database: Database, commitment: Any) -> None:
    before = snapshot(database)
    with (
        pytest.raises((RuleViolated, DBAPIError), match=DENIED),
        database.write() as session,
    ):
        people.found_ledger(session, "anna", "key of anna", commitment)
    assert snapshot(database) == before
    world = World.create(database)
    before = snapshot(database)
    with (
        pytest.raises((RuleViolated, DBAPIError), match=DENIED),
        database.write() as session,
    ):
        datasets.open_account(
            session, LifetimeClaim("8", "1", 1, Amount(70, 7)), 1, "0" * 16, commitment, world.steward
        )
    assert snapshot(database) == before


def test_an_unknown_dataset_names_the_known(world: World) -> None:
    with world.database.read() as session, pytest.raises(DatasetUnknown, match="'clinic'") as unknown:
        datasets.find_dataset(session, "clinic")
    assert "register" in unknown.value.advice
    register(world, "harbour", world.account())
    with world.database.read() as session, pytest.raises(DatasetUnknown) as unknown:
        datasets.find_dataset(session, "clinic")
    assert "harbour" in unknown.value.advice


def test_nothing_to_read_before_the_first_version(world: World) -> None:
    register(world, "clinic", world.account())
    with world.database.read() as session, refusal("NothingIngested"):
        datasets.newest_version(session, datasets.find_dataset(session, "clinic"))


def test_versions_are_numbered_and_requests_read_the_newest(world: World) -> None:
    world.dataset("clinic")
    assert world.version("clinic", marks("a", "b")) == 2
    assert world.version("clinic", marks("b", "c", "c")) == 3
    with world.database.read() as session:
        dataset = datasets.find_dataset(session, "clinic")
        assert [v.number for v in datasets.list_versions(session, dataset)] == [1, 2, 3]
        assert datasets.newest_version(session, dataset).number == 3
        assert verify_chain.verify_chain(session).holds
    assert fetch(world.database, "SELECT count(*) FROM unit_mark") == [(4,)]


def test_a_unit_of_another_budget_is_refused(world: World) -> None:
    world.dataset("clinic")
    world.dataset("harbour")
    world.version("clinic", marks("a", "b"))
    before = snapshot(world.database)
    with refusal("UnitsOverlap") as overlap:
        world.version("harbour", marks("x", "y", "b"))
    assert snapshot(world.database) == before
    assert overlap.value.facts == {"dataset": "harbour"}
    assert "clinic" not in overlap.value.diagnostics()


def test_an_overlap_beyond_the_first_batch_leaves_nothing(world: World) -> None:
    world.dataset("clinic")
    world.dataset("harbour")
    world.version("clinic", marks("common"))
    many = [number.to_bytes(32, "big") for number in range(12_000)]
    before = snapshot(world.database)
    with refusal("UnitsOverlap"):
        world.version("harbour", [*many, *marks("common")])
    assert snapshot(world.database) == before
    world.version("harbour", many)
    assert fetch(world.database, "SELECT count(*) FROM unit_mark") == [(12_003,)]


def test_the_same_source_on_another_budget_is_refused(world: World) -> None:
    world.dataset("clinic")
    world.dataset("harbour")
    world.version("clinic", marks("a"), source="5" * 64)
    before = snapshot(world.database)
    with refusal("UnitsOverlap"):
        world.version("harbour", marks("b"), source="5" * 64)
    assert snapshot(world.database) == before
    world.version("clinic", marks("a"), source="5" * 64)


def test_datasets_of_one_account_may_share_units(world: World) -> None:
    account = world.account()
    world.dataset("clinic", account_id=account)
    world.dataset("ward", account_id=account)
    world.version("clinic", marks("a"), source="5" * 64)
    assert world.version("ward", marks("a"), source="5" * 64) == 2
    with world.database.read() as session:
        assert [d.name for d in datasets.list_all(session)] == ["clinic", "ward"]


@pytest.mark.parametrize(("unit_field", "blocks", "refused"), [(None, 2, True), (None, 1, False), ("id", 2, False)])
def test_unnamed_units_come_once_into_several_blocks(
    world: World, unit_field: str | None, blocks: int, refused: bool
) -> None:
    register(world, "clinic", world.account(blocks=blocks), unit_field)
    with world.database.read() as session:
        datasets.require_version_allowed(session, datasets.find_dataset(session, "clinic"))
    world.version("clinic", marks("a"))
    with world.database.read() as session:
        dataset = datasets.find_dataset(session, "clinic")
        if refused:
            with refusal("UnitFieldRequired"):
                datasets.require_version_allowed(session, dataset)
        else:
            datasets.require_version_allowed(session, dataset)
