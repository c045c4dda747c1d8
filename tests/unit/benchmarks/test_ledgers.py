"""The ledgers that benchmarks make: rows and links of a past in bulk are as transactions leave them."""

from types import ModuleType

from models_db.services.verification import evidence, verify_rows
from models_db.sessions.database import Database
from models_db.tables import Request

SCRIPTS = ("ledger.writes", "ledger.size")


def test_verification_accepts_a_past_made_in_bulk(bench: dict[str, ModuleType], database: Database) -> None:
    writes = bench["ledger.writes"]
    prepared = writes.bench(lambda _: database, 1, blocks=2, past=200)
    _, actor, [attempt] = prepared
    writes.cycle(database, actor, attempt)
    with database.read() as session:
        assert verify_rows.compare_rows_with_chain(session) == []
        evidence.require_rows_match_chain(session, session.get_one(Request, attempt.request_id))
    writes.finish(prepared, past=200)


def test_a_ledger_of_some_datasets_is_filled_and_sound(bench: dict[str, ModuleType], sqlite_database: Database) -> None:
    size = bench["ledger.size"]
    made = size.filled(sqlite_database, 2, 2, 1)
    for look in size.CONCERNING_ALL.values():
        look(made)
