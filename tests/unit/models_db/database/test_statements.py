"""What the ledger writes in one statement, and what a lost server is called."""

import pytest
from sqlalchemy import text

from models_db.database.base import utc_now
from models_db.sessions.database import Database, LedgerUnreachable
from models_db.values.amounts import Amount
from tests.support import World, fetch, planned


def test_a_lost_server_is_named_and_the_next_connection_is_new(postgresql_database: Database) -> None:
    def lose() -> None:
        with postgresql_database.write() as session:
            own = session.scalar(text("SELECT pg_backend_pid()"))
            fetch(postgresql_database, "SELECT pg_terminate_backend(:pid)", pid=own)
            session.execute(text("SELECT 1"))

    with pytest.raises(LedgerUnreachable):
        lose()
    assert fetch(postgresql_database, "SELECT 1") == [(1,)]


def test_a_plan_is_the_same_rows_on_both_backends(database: Database) -> None:
    """PostgreSQL makes them in one statement; numbers, places and order are those of one at a time."""
    world = World.create(database)
    world.dataset(blocks=2)
    world.held(planned(Amount(3, 1), Amount(4)), planned(Amount(5), mechanism="noisy_count"))
    holds = fetch(
        world.database,
        "SELECT i.sequence, i.mechanism, a.block, h.instalment, h.rho, h.delta FROM hold h"
        " JOIN invocation i ON i.id = h.invocation_id JOIN account a ON a.id = h.account_id ORDER BY h.id",
    )
    first = [(0, "integer_draw", block, *part) for block in (0, 1) for part in ((0, 3, 1), (1, 4, 0))]
    assert holds == first + [(1, "noisy_count", block, 0, 5, 0) for block in (0, 1)]
    entries = fetch(world.database, "SELECT e.kind, h.rho FROM entry e JOIN hold h ON h.id = e.hold_id ORDER BY e.id")
    assert entries == [("HOLD", rho) for _, _, _, _, rho, _ in holds]
    ((at,),) = fetch(world.database, "SELECT max(at) FROM entry")
    assert str(at) <= utc_now()
