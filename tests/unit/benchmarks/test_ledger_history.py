"""The past that benchmarks of the ledger make in bulk: rows and links are as transactions leave them."""

from types import ModuleType

from models_db.services.verification import evidence, verify_rows
from models_db.sessions.database import Database
from models_db.tables import Request

SCRIPTS = ("ledger.writes",)


def test_verification_accepts_a_past_made_in_bulk(bench: dict[str, ModuleType], database: Database) -> None:
    writes = bench["ledger.writes"]
    prepared = writes.bench(lambda _: database, 1, blocks=2, past=200)
    _, actor, [attempt] = prepared
    writes.cycle(database, actor, attempt)
    with database.read() as session:
        assert verify_rows.compare_rows_with_chain(session) == []
        evidence.require_rows_match_chain(session, session.get_one(Request, attempt.request_id))
    writes.finish(prepared, past=200)
