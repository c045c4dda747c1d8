"""What somebody with all rights on the database can do to the record, past every guard."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection

from models_db.services.audit import log, verify_chain
from models_db.services.audit.chain import GENESIS
from models_db.services.audit.log import LogFilter
from models_db.sessions.database import Database
from tests.support import execute, fetch

FORGET_CHECKPOINTS = "DELETE FROM checkpoint"


def superuser(database: Database, *statements: str, **values: object) -> None:
    """Change rows past every guard: on SQLite without triggers and checks, on PostgreSQL as a replica does."""
    if database.is_sqlite:
        triggers = fetch(database, "SELECT name FROM sqlite_master WHERE type = 'trigger'")
        execute(database, *(f"DROP TRIGGER {row[0]}" for row in triggers))
        unchecked = "PRAGMA ignore_check_constraints = "
        execute(database, f"{unchecked}ON", *statements, f"{unchecked}OFF", **values)
    else:
        execute(database, "SET LOCAL session_replication_role = replica", *statements, **values)


@contextmanager
def unchecked(database: Database) -> Iterator[None]:
    """Inside, an SQLite ledger asks no CHECK, so that datasets get any name."""
    database.engine.dispose()
    event.listen(database.engine, "connect", _ask_no_check)
    yield
    event.remove(database.engine, "connect", _ask_no_check)
    database.engine.dispose()


def _ask_no_check(connection: DBAPIConnection, _: object) -> None:
    connection.cursor().execute("PRAGMA ignore_check_constraints = ON")


def truncate(database: Database, keep: int) -> None:
    """Cut the chain after link `keep` and move the head there."""
    superuser(
        database,
        "DELETE FROM audit WHERE seq > :keep",
        "UPDATE audit_head SET seq = :keep, hash = (SELECT row_hash FROM audit WHERE seq = :keep)",
        keep=keep,
    )


def rewrite(database: Database, edits: Mapping[int, Mapping[str, Any]]) -> None:
    """Change links and hash everything anew, head included: a chain that is consistent in itself."""
    with database.read() as session:
        links = list(log.stream_links(session, LogFilter()))
    previous = GENESIS
    for link in links:
        altered = link._replace(prev_hash=previous, **edits.get(link.seq, {}))
        previous = verify_chain.link_hash(altered)
        superuser(
            database,
            "UPDATE audit SET actor = :actor, at = :at, kind = :kind, dataset = :dataset, request_id = :request_id,"
            " body = :body, prev_hash = :prev_hash, row_hash = :hash"
            " WHERE seq = :seq",
            **altered._asdict(),
            hash=previous,
        )
    superuser(database, "UPDATE audit_head SET hash = :hash", hash=previous)
