"""Cohorts on both backends: opened with a version, for units that are new, each with blocks and budgets of its own."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from models_db.errors import AlmonerError
from models_db.services import budget, cohorts, datasets
from models_db.services.audit import verify_chain
from models_db.services.cohorts import CohortPlan
from models_db.services.datasets import Registration
from models_db.values.amounts import Amount
from tests.contracts.meeting import meanwhile
from tests.refusals import refusal
from tests.support import World, fetch, planned, snapshot

CAP = Amount(1000, 100)
COHORTS_OF_MARKS = "SELECT mark, cohort FROM unit_mark ORDER BY mark"


def marks(*names: str) -> list[bytes]:
    return [name.encode().ljust(32, b"\0") for name in names]


def known(world: World) -> dict[str, int]:
    return {bytes(mark).rstrip(b"\0").decode(): cohort for mark, cohort in fetch(world.database, COHORTS_OF_MARKS)}


def grow(world: World, *names: str, dataset: str = "clinic", declared: int | None = None) -> int:
    """A further version that opens a cohort. Returns its number."""
    growth = world.growth(dataset, opens=True, declared=declared)
    return world.version(dataset, marks(*names), growth=growth)


def refused(world: World, code: str, do: Callable[[], object]) -> AlmonerError:
    before = snapshot(world.database)
    with refusal(code) as told:
        do()
    assert snapshot(world.database) == before
    return told.value


def test_new_units_are_of_the_new_cohort_and_known_ones_stay(world: World) -> None:
    world.dataset("clinic", CAP, blocks=2)
    world.version("clinic", marks("a", "b"))
    assert grow(world, "b", "c", declared=40) == 3
    assert known(world) == {"clinic-unit": 1, "a": 1, "b": 1, "c": 2}
    world.version("clinic", marks("a", "c", "d"), growth=world.growth())
    assert known(world) == {"clinic-unit": 1, "a": 1, "b": 1, "c": 2, "d": 2}
    assert grow(world, "a", "d", "e") == 5
    assert known(world)["e"] == 3
    rows = fetch(world.database, "SELECT block, rho_cap, delta_cap, rho_spent FROM account WHERE parent_id IS NOT NULL")
    assert sorted(rows) == [(number, 1000, 100, 0) for number in range(6)]
    with world.database.read() as session:
        dataset = datasets.find_dataset(session, "clinic")
        assert cohorts.count_cohorts(session, dataset.account_id) == 3
        assert list(cohorts.all_blocks(session, dataset.account_id)) == list(range(6))
        assert [cohorts.population(session, dataset, read) for read in ([2], [1], [1, 2], [3])] == [
            40,
            None,
            None,
            None,
        ]
        assert verify_chain.verify_chain(session).holds
    [(kind, body)] = fetch(world.database, "SELECT kind, body FROM audit ORDER BY seq DESC LIMIT 1")
    assert kind == "cohort.opened+dataset.ingested"
    assert [each["table"] for each in json.loads(str(body))["rows"]] == [
        "account", "cohort", "dataset_version", "unit_claim",
    ]  # fmt: skip


def test_one_unit_less_leaves_all_others_in_their_cohorts(world: World) -> None:
    """The same history twice, once without one unit in any version: nobody else notices."""
    history = [("a b c", False), ("b d", True), ("a c e", False), ("c f d", True)]
    for gone in ("c", "d", "f"):
        found = []
        for left_out in ("", gone):
            name = f"{gone}-{left_out or 'whole'}"
            world.dataset(name)
            for units, opens in history:
                there = [f"{name} {unit}" for unit in units.split() if unit != left_out]
                world.version(name, marks(*there), growth=world.growth(name, opens=opens))
            found.append({mark.split()[1]: cohort for mark, cohort in known(world).items() if f"{name} " in mark})
        assert found[0] == {"a": 1, "b": 1, "c": 1, "d": 2, "e": 2, "f": 3}
        assert found[1] == {unit: cohort for unit, cohort in found[0].items() if unit != gone}


def test_a_dataset_that_shares_the_account_sees_the_same_cohorts(world: World) -> None:
    account = world.account(CAP)
    world.dataset("clinic", account_id=account)
    world.dataset("ward", account_id=account)
    grow(world, "c", declared=9)
    world.version("ward", marks("c", "clinic-unit", "d"), growth=world.growth("ward"))
    assert known(world) == {"clinic-unit": 1, "ward-unit": 1, "c": 2, "d": 2}
    with world.database.read() as session:
        assert cohorts.population(session, datasets.find_dataset(session, "clinic"), [2]) == 9
        assert cohorts.population(session, datasets.find_dataset(session, "ward"), [2]) is None


def test_what_a_new_cohort_may_lose_is_its_own(world: World) -> None:
    world.dataset("clinic", CAP)
    world.arm(world.held(planned(Amount(1000))))
    grow(world, "c")
    least, most = planned(Amount(1)), planned(Amount(900))
    both, newest = world.running("clinic", least), world.running("clinic", most)
    both, newest = replace(both, blocks=(0, 1)), replace(newest, blocks=(1,))
    refused(world, "BudgetExceeded", lambda: world.hold(both, least))
    world.hold(newest, most)
    with world.database.read() as session:
        root = datasets.find_dataset(session, "clinic").account_id
        assert budget.balance(session, root).remaining == Amount(0, 100)
        assert budget.balance(session, root, [1]).remaining == Amount(100, 100)


def test_a_new_cap_is_that_of_all_cohorts(world: World) -> None:
    world.dataset("clinic", CAP)
    grow(world, "c")
    world.cap(Amount(2000, 200))
    caps = fetch(world.database, "SELECT DISTINCT rho_cap, delta_cap FROM account")
    assert caps == [(2000, 200)]
    grow(world, "d")
    assert fetch(world.database, "SELECT DISTINCT rho_cap, delta_cap FROM account") == [(2000, 200)]


def test_only_a_steward_opens_one(world: World) -> None:
    world.dataset("clinic")
    for actor in (world.analyst, world.runner):
        with world.database.read() as session, refusal("RoleRequired"):
            cohorts.plan_cohorts(session, actor, datasets.find_dataset(session, "clinic"), opens=True)


def test_no_cohort_without_names_or_budget_or_data(world: World) -> None:
    world.dataset("nameless", unit_field=None)
    world.dataset("library", governed=False)
    account = world.account()
    with world.database.write() as session:
        wanted = Registration("empty", "id", "text", True, None, None)
        datasets.register(session, world.steward, wanted, account)
    for name in ("nameless", "library", "empty"):
        refused(world, "InvalidCohort", lambda: world.growth(name, opens=True))  # noqa: B023
    refused(world, "UnexpectedPopulation", lambda: world.growth("empty", declared=5))


def test_people_of_two_names_get_no_second_budget(world: World) -> None:
    account = world.account()
    world.dataset("clinic", account_id=account)
    world.dataset("ward", account_id=account, unit_field="user_id")
    refused(world, "InvalidCohort", lambda: grow(world, "c"))
    other = world.account()
    world.dataset("harbour", account_id=other)
    grow(world, "h", dataset="harbour")
    for unit_field in ("user_id", None):
        refused(world, "AccountMismatch", lambda: world.dataset("port", account_id=other, unit_field=unit_field))  # noqa: B023


def test_a_version_that_was_written_before_another_is_refused(world: World) -> None:
    world.dataset("clinic")
    before = world.growth()
    opening = world.growth(opens=True)
    world.version("clinic", marks("b"))
    told = refused(world, "CohortsChanged", lambda: world.version("clinic", marks("b"), growth=opening))
    assert "Ingest again" in told.advice
    grow(world, "c")
    for stale in (before, opening, CohortPlan()):
        refused(world, "CohortsChanged", lambda: world.version("clinic", marks("c"), growth=stale))  # noqa: B023


def test_a_unit_of_another_account_opens_nothing(world: World) -> None:
    world.dataset("clinic")
    world.dataset("harbour")
    refused(world, "UnitsOverlap", lambda: grow(world, "x", "harbour-unit"))


def test_a_cohort_that_a_version_names_wrongly_is_refused(world: World) -> None:
    """What nobody looked up: the database knows of which cohort each unit is."""
    world.dataset("clinic")
    grow(world, "c")

    def recorded(mark: str, cohort: int) -> None:
        with world.database.write() as session:
            datasets.add_version(
                session, world.runner, datasets.find_dataset(session, "clinic"), uid="ab" * 16, source_mark="1" * 64,
                manifest_mark="2" * 64, units=[(marks(mark)[0], cohort)], cohort_plan=CohortPlan(2, 2),
            )  # fmt: skip

    for mark, cohort in (("clinic-unit", 2), ("c", 1), ("d", 1), ("d", 3)):
        refused(world, "CohortsChanged", lambda: recorded(mark, cohort))  # noqa: B023
    recorded("d", 2)


def opening(world: World, growth: CohortPlan) -> Callable[[Session], object]:
    return lambda session: datasets.add_version(
        session, world.steward, datasets.find_dataset(session, "clinic"), uid="cd" * 16, source_mark="1" * 64,
        manifest_mark="2" * 64, units=[(marks("x")[0], growth.newest)], cohort_plan=growth,
    )  # fmt: skip


@pytest.mark.parametrize("other_opens", [True, False])
def test_two_versions_at_once(world: World, other_opens: bool) -> None:
    """Whoever comes second waits, and then finds that a cohort was opened."""
    world.dataset("clinic")
    first, second = world.growth(opens=True), world.growth(opens=other_opens)
    outcome = meanwhile(
        world.database,
        opening(world, first),
        lambda: world.version("clinic", marks("y"), growth=second),
    )
    assert outcome == "CohortsChanged"
    assert known(world) == {"clinic-unit": 1, "x": 2}


def test_a_cohort_is_opened_while_somebody_ingests(world: World) -> None:
    world.dataset("clinic")
    first, second = world.growth(), world.growth(opens=True)
    outcome = meanwhile(
        world.database,
        opening(world, first),
        lambda: world.version("clinic", marks("x"), growth=second),
    )
    assert outcome == "CohortsChanged"
    assert known(world) == {"clinic-unit": 1, "x": 1}


def test_a_cohort_is_opened_while_somebody_arms(world: World) -> None:
    world.dataset("clinic")
    attempt = world.held()
    outcome = meanwhile(world.database, opening(world, world.growth(opens=True)), lambda: world.arm(attempt))
    assert outcome == "done"
    assert world.balance().spent == Amount(10)


def test_known_units_are_those_of_any_account(world: World) -> None:
    world.dataset("clinic", CAP)
    world.version("clinic", marks("a", "b"))
    with world.database.read() as session:
        assert cohorts.known_units(session, marks("b", "c")) == set(marks("b"))
        assert cohorts.known_units(session, []) == set()
