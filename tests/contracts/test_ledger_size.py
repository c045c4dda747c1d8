"""A large ledger: what concerns one dataset does not grow with the others, and what concerns blocks grows with them.

Work is counted in steps of SQLite's virtual machine, which are the same in every run (benchmarks/ledger_size.py has the
times).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import event

from flows.pages.looking import Look
from flows.pages.overview import overview
from models_db.engine import Database
from models_db.services import ledger
from tests.contracts.tampering import superuser
from tests.support import TEN, World, fetch, planned

Act = Callable[[Database], object]


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
    run = replace(world.running(), blocks=(0, 2))
    world.hold(run, planned(TEN), planned(TEN))
    world.arm(run)
    accounts = [int(str(row[0])) for row in fetch(world.database, "SELECT id FROM account ORDER BY id")]
    with world.database.read() as session:
        assert ledger.recomputed(session) == []
    superuser(world.database, f"UPDATE account SET {counter} = {counter} + 1")
    with world.database.read() as session:
        assert ledger.recomputed(session) == [(account, counter) for account in accounts]


def test_the_overview_asks_as_often_for_fifty_datasets_as_for_two(world: World) -> None:
    def look(database: Database) -> None:
        with database.read() as session:
            overview(Look(session, world.steward, frozenset({"steward"}), True, ""))

    world.dataset("a")
    world.dataset("b")
    few = statements(world.database, look)
    for number in range(48):
        world.dataset(f"c{number}")
    assert statements(world.database, look) == few
