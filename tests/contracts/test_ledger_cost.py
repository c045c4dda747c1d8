"""What a run costs does not grow with the past of its account: guards look rows up, they do not read them all.

Counted in steps of SQLite's machine, not in time, so that the test is the same on every machine; PostgreSQL's plans
are measured by `benchmarks/ledger/writes.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from models_db.services import budget
from models_db.services.budget import Attempt
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.support import CAP, PROVENANCE, World, planned

STRIDE = 20
ONE = Amount(1)
PLAN = (planned(ONE),)


@contextmanager
def steps(database: Database, counted: list[int]) -> Iterator[None]:
    """Count what the next transaction does on the kept connection."""

    def step() -> int:
        counted.append(1)
        return 0

    with database.read() as session:
        raw = session.connection().connection.driver_connection
    assert raw is not None
    raw.set_progress_handler(step, STRIDE)
    yield
    raw.set_progress_handler(None, STRIDE)


def cost(world: World, attempt: Attempt) -> dict[str, int]:
    """Steps of each transaction of one cycle."""
    done = {
        "hold": lambda session: budget.hold(session, world.runner, attempt, PLAN, PROVENANCE),
        "arm": lambda session: budget.arm(session, world.runner, attempt, 0, 0),
        "commit": lambda session: budget.settle(session, world.runner, attempt, "COMMIT"),
    }
    found = {}
    for name, act in done.items():
        counted: list[int] = []
        with steps(world.database, counted), world.database.write() as session:
            act(session)
        found[name] = len(counted)
    return found


@pytest.mark.parametrize("bounds", [{}, {"rho_max": 900, "delta_max": 90}])
def test_a_cycle_costs_the_same_after_a_long_past(sqlite_database: Database, bounds: dict[str, int]) -> None:
    """With a policy that bounds a release, too: its sum is over the release, not over the account."""
    world = World.create(sqlite_database, approved=PLAN, **bounds)
    world.dataset(cap=CAP)
    before = cost(world, world.running())
    past = world.held(*[planned(*[ONE] * 16)] * 10)
    world.settle(past, "FORFEIT")
    after = cost(world, world.running())
    assert all(number > 1 for number in before.values())
    assert all(after[name] <= 1.3 * before[name] + 2 for name in before), (before, after)
