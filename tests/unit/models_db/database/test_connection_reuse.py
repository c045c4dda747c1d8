"""The kept connection: used again while it can be trusted, and left when it cannot."""

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from models_db.database import sqlite_connections
from models_db.services.audit import chain
from models_db.sessions.database import Database
from tests.support import fetch


def connection(database: Database) -> int:
    """Which connection a transaction gets."""
    with database.read() as session:
        return id(session.connection().connection.dbapi_connection)


def test_two_transactions_share_a_connection(database: Database) -> None:
    assert connection(database) == connection(database)


def test_a_second_one_at_the_same_time_has_its_own(database: Database) -> None:
    with database.read() as session:
        own = id(session.connection().connection.dbapi_connection)
        assert connection(database) != own


def test_after_a_pause_a_new_one_is_opened(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _server_side(database)
    kept = _server_side(database)
    monkeypatch.setattr(sqlite_connections, "REUSE_SECONDS", -1)
    assert _server_side(database) != kept


def test_a_session_that_its_server_has_ended_is_left_at_once(postgresql_database: Database) -> None:
    kept = _server_side(postgresql_database)
    other = Database(postgresql_database.url)
    ended = fetch(other, "SELECT pg_terminate_backend(:kept, 60000)", kept=kept)
    other.dispose()
    assert ended == [(True,)]
    assert _server_side(postgresql_database) != kept


def _server_side(database: Database) -> object:
    """What a connection is on the other side: a new one of the driver may lie where the old one lay."""
    with database.write() as session:
        if not database.is_sqlite:
            return session.scalar(text("SELECT pg_backend_pid()"))
        marks = session.scalar(text("SELECT count(*) FROM sqlite_temp_master"))
        session.execute(text(f"CREATE TEMP TABLE mark_{marks} (a)"))
        return marks


def test_a_file_that_was_replaced_is_opened_anew(sqlite_database: Database) -> None:
    """A run that goes on in a file without a name would spend what nobody ever sees."""
    file = Path(sqlite_database.engine.url.database or "")
    with sqlite_database.read() as session:
        assert chain.read_chain_head(session).seq == 0
    sqlite_database.dispose()
    copy = file.with_name("copy.db")
    copy.write_bytes(file.read_bytes())
    fetch(sqlite_database, "SELECT 1")
    other = Database(f"sqlite:///{copy}")
    with other.write() as session:
        session.execute(text("CREATE TABLE only_in_the_copy (a)"))
    other.dispose()
    os.replace(copy, file)
    assert fetch(sqlite_database, "SELECT * FROM only_in_the_copy") == []


def test_a_forked_process_opens_its_own(database: Database) -> None:
    fetch(database, "SELECT 1")
    child = os.fork()
    if not child:
        code = 1
        try:
            with database.write() as session:
                session.execute(text("CREATE TABLE of_the_child (a INTEGER)"))
            database.dispose()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert fetch(database, "SELECT * FROM of_the_child") == []


def test_sqlite_is_one_whole_file_when_the_database_is_done_with(sqlite_database: Database) -> None:
    with sqlite_database.write() as session:
        session.execute(text("CREATE TABLE something (a)"))
    log = Path(f"{sqlite_database.engine.url.database}-wal")
    assert log.exists()
    sqlite_database.dispose()
    assert not log.exists()


def test_a_database_that_is_forgotten_is_closed(sqlite_database: Database) -> None:
    other = Database(sqlite_database.url)
    fetch(other, "SELECT 1")
    log = Path(f"{sqlite_database.engine.url.database}-wal")
    assert log.exists()
    del other
    assert not log.exists()
