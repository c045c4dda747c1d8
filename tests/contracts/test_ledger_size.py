"""A large ledger: what concerns one dataset does not grow with the others, and what concerns blocks grows with them.

Work is counted in steps of SQLite's virtual machine, which are the same in every run (benchmarks/ledger/size.py has the
times).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from flows.dashboard.dataset_pages import overview_page
from flows.dashboard.viewer import View
from flows.datasets import budget as budget_view
from models_db.services import budget, datasets
from models_db.services.queries import lists
from models_db.sessions.database import Database
from tests.contracts.tampering import superuser
from tests.support import PLAN, TEN, World, fetch, planned

STEPS = 50
"""So many steps of the virtual machine are counted at a time."""

Act = Callable[[Database], object]


def steps(database: Database, act: Act) -> int:
    """How many steps of SQLite's virtual machine it takes, to the next STEPS."""
    counted = 0

    def tick() -> int:
        nonlocal counted
        counted += STEPS
        return 0

    with database.read() as session:
        raw: Any = session.connection().connection.driver_connection
    raw.set_progress_handler(tick, STEPS)
    act(database)
    raw.set_progress_handler(None, 0)
    return counted


def statements(database: Database, act: Act) -> int:
    """How many statements SQLAlchemy sends."""
    sent: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", listen)
    try:
        act(database)
    finally:
        event.remove(database.engine, "before_cursor_execute", listen)
    return len(sent)


@pytest.mark.parametrize("counter", ["rho_held", "rho_spent", "delta_held", "delta_spent"])
def test_a_forged_counter_is_found(world: World, counter: str) -> None:
    world.dataset(blocks=3)
    world.dataset("other", blocks=2)
    plan = (planned(TEN), planned(TEN))
    run = replace(world.running("clinic", *plan), blocks=(0, 2))
    world.hold(run, *plan)
    world.arm(run)
    accounts = [int(str(row[0])) for row in fetch(world.database, "SELECT id FROM account ORDER BY id")]
    with world.database.read() as session:
        assert budget.differing_counters(session) == []
    superuser(world.database, f"UPDATE account SET {counter} = {counter} + 1")
    with world.database.read() as session:
        assert budget.differing_counters(session) == [(account, counter) for account in accounts]


@pytest.fixture
def alone(sqlite_database: Database) -> World:
    """On SQLite, whose steps can be counted."""
    return World.create(sqlite_database)


def run(world: World, dataset: str = "clinic") -> dict[str, int]:
    """Steps of each move of one run on all blocks of a dataset."""
    attempt = world.running(dataset)
    return {
        "hold": steps(world.database, lambda _: world.hold(attempt, *PLAN)),
        "arm": steps(world.database, lambda _: world.arm(attempt)),
        "commit": steps(world.database, lambda _: world.settle(attempt, "COMMIT")),
    }


def test_a_run_on_eight_times_the_blocks_takes_eight_times_the_work(alone: World) -> None:
    alone.dataset("small", blocks=30)
    alone.dataset("large", blocks=240)
    few, many = run(alone, "small"), run(alone, "large")
    assert [step for step in many if many[step] > 8.5 * few[step]] == [], (few, many)


def test_what_concerns_one_dataset_does_not_grow_with_the_others(alone: World) -> None:
    alone.dataset(blocks=20)
    run(alone)

    def looked() -> dict[str, int]:
        def show(database: Database) -> None:
            with database.read() as session:
                clinic = datasets.find_dataset(session, "clinic")
                budget_view.datasets_on_account(session, clinic)
                budget.balance(session, clinic.account_id)
                lists.cohort_balances(session, {clinic.account_id})

        return run(alone) | {"show": steps(alone.database, show)}

    before = looked()
    for number in range(40):
        alone.dataset(f"other-{number}", blocks=20)
    after = looked()
    assert [step for step in after if after[step] > 1.1 * before[step] + 500] == [], (before, after)


def test_as_many_statements_for_a_thousand_blocks_as_for_ten(world: World) -> None:
    few, many = (statements(world.database, lambda _: world.account(blocks=blocks)) for blocks in (10, 1000))  # noqa: B023
    assert many == few
    assert fetch(
        world.database, "SELECT count(*), min(block), max(block) FROM account WHERE parent_id IS NOT NULL"
    ) == [(1010, 0, 999)]


def test_the_overview_asks_as_often_for_fifty_datasets_as_for_two(world: World) -> None:
    def look(database: Database) -> None:
        with database.read() as session:
            overview_page(View(session, world.steward, frozenset({"steward"}), None, ""))

    world.dataset("a")
    world.dataset("b")
    few = statements(world.database, look)
    for number in range(48):
        world.dataset(f"c{number}")
    assert statements(world.database, look) == few
