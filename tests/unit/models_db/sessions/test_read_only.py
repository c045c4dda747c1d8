"""Reading with credentials that cannot write: a role with SELECT alone, a file and a folder that are read only."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from models_db.services.audit import chain, log, verify_chain
from models_db.services.audit.log import LogFilter
from models_db.services.queries import health
from models_db.sessions.database import Database, LedgerForbidden, LedgerUnreachable, SchemaOutdated
from models_db.sessions.read_only import ReadOnlyDatabase
from tests.conftest import PostgreSQL
from tests.refusals import refusal
from tests.support import World, execute, snapshot

NOBODY = 65534


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write everywhere: tests that run as root do the inside as nobody."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can enter (pytest's own are closed to others)."""
    made = Path(tempfile.mkdtemp(prefix="almoner-read-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def closed(folder: Path) -> ReadOnlyDatabase:
    """The ledger in a folder where nobody may write any more."""
    for file in folder.iterdir():
        file.chmod(0o400 if os.geteuid() else 0o444)
    folder.chmod(0o555)
    return ReadOnlyDatabase(f"sqlite:///{folder / 'almoner.db'}")


def everything_readable(database: Database) -> int:
    """Walk, page, stream and examine; returns the number of links."""
    with database.read() as session:
        report = verify_chain.verify_chain(session)
        assert report.sound
        assert len(list(log.stream_links(session, LogFilter()))) == report.links
        assert log.read_page(session, LogFilter(kind="request"), 5).links
        assert [finding.check for finding in health.check_health(session) if not finding.ok] == []
    return report.links


def test_it_reads_what_is_there(world: World) -> None:
    world.dataset()
    world.request()
    reading = ReadOnlyDatabase(world.database.url)
    with world.database.read() as session:
        links = chain.read_chain_head(session).seq
    assert everything_readable(reading) == links
    world.request()
    assert everything_readable(reading) == links + 1


WRITES = [
    "INSERT INTO audit SELECT * FROM audit",
    "UPDATE audit_head SET seq = 0",
    "DELETE FROM audit",
    "CREATE TABLE mine (a INTEGER)",
]


@pytest.mark.parametrize("statement", WRITES)
@pytest.mark.parametrize("transaction", ["read", "write"])
def test_nothing_can_be_written_through_it(world: World, statement: str, transaction: str) -> None:
    before = snapshot(world.database)
    reading = ReadOnlyDatabase(world.database.url)
    with pytest.raises((DBAPIError, LedgerUnreachable)), getattr(reading, transaction)() as session:
        session.execute(text(statement))
    assert snapshot(world.database) == before


def test_a_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreachable), ReadOnlyDatabase(f"sqlite:///{tmp_path / 'no.db'}").read() as session:
        session.execute(text("SELECT 1"))
    assert list(tmp_path.iterdir()) == []


def test_another_schema_is_named(bare_database: Database) -> None:
    with bare_database.engine.connect():
        pass  # the file is there
    with pytest.raises(SchemaOutdated), ReadOnlyDatabase(bare_database.url).read() as session:
        chain.read_chain_head(session)
    if not bare_database.is_sqlite:
        with pytest.raises(SchemaOutdated), bare_database.write():
            pass


def test_the_file_keeps_its_mode(sqlite_database: Database) -> None:
    World.create(sqlite_database)
    path = Path(sqlite_database.engine.url.database or "")
    path.chmod(0o644)
    with ReadOnlyDatabase(sqlite_database.url).read() as session:
        chain.read_chain_head(session)
    assert path.stat().st_mode & 0o777 == 0o644


# --- PostgreSQL: SELECT and nothing else ----------------------------------------------------------------------------


@pytest.fixture
def reader(postgresql_database: Database, postgresql: PostgreSQL) -> Iterator[ReadOnlyDatabase]:
    """The ledger through a role that may only SELECT."""
    world = World.create(postgresql_database)
    world.dataset()
    world.published()
    execute(
        postgresql_database,
        "CREATE ROLE record_reader LOGIN",
        "GRANT USAGE ON SCHEMA public TO record_reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO record_reader",
    )
    url = make_url(postgresql_database.url).set(username="record_reader")
    yield ReadOnlyDatabase(url.render_as_string(hide_password=False))
    execute(postgresql_database, "DROP OWNED BY record_reader", "DROP ROLE record_reader")


def test_a_role_with_select_alone_reads_everything(reader: ReadOnlyDatabase) -> None:
    assert everything_readable(reader) > 10
    with reader.read() as session:
        assert session.scalar(text("SELECT session_user")) == "record_reader"


@pytest.mark.parametrize("statement", WRITES)
def test_such_a_role_cannot_write_whatever_it_opens(reader: ReadOnlyDatabase, statement: str) -> None:
    """Not because this program asks for a read-only transaction: the role has no right."""
    with pytest.raises(LedgerForbidden), Database(reader.url).write() as session:
        session.execute(text(statement))


# --- SQLite: a file and a folder that cannot be written -------------------------------------------------------------


@pytest.fixture
def world_in(folder: Path, sqlite_database: Database) -> World:
    """A ledger in a folder of its own, where it can be closed."""
    shutil.copy(sqlite_database.engine.url.database or "", folder / "almoner.db")
    world = World.create(Database(f"sqlite:///{folder / 'almoner.db'}"))
    world.dataset()
    world.request()
    return world


def test_a_read_only_folder_is_read_without_a_trace(folder: Path, world_in: World) -> None:
    world_in.database.dispose()  # the last connection puts everything into the one file
    reading = closed(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with without_rights():
        assert everything_readable(reading) == 5
        with pytest.raises(LedgerUnreachable), reading.write() as session:
            session.execute(text("DELETE FROM audit"))
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before == {"almoner.db": before["almoner.db"]}


def test_a_ledger_at_work_is_read_with_what_waits_beside_its_file(folder: Path, world_in: World) -> None:
    with world_in.database.read() as busy:  # keeps -wal and -shm there
        before = chain.read_chain_head(busy).seq
        world_in.request()
        reading = closed(folder)
        with without_rights():
            assert everything_readable(reading) == before + 1


def test_half_of_a_ledger_is_refused(folder: Path, world_in: World) -> None:
    """A copy of the file with its -wal, but without -shm: what waits in -wal would be missed."""
    copy = folder / "copy"
    copy.mkdir(mode=0o755)
    with world_in.database.read() as busy:
        chain.read_chain_head(busy)
        world_in.request()
        for name in ("almoner.db", "almoner.db-wal"):
            shutil.copy(folder / name, copy / name)
    reading = closed(copy)
    with without_rights(), refusal("LedgerNotReadable", match="-wal"), reading.read() as session:
        chain.read_chain_head(session)
    copy.chmod(0o755)


def test_a_ledger_that_is_written_while_it_is_read_as_it_lies_is_refused(folder: Path, world_in: World) -> None:
    """Its owner may still write into the folder, and the reader sees no lock."""

    def read_during_a_write() -> None:
        with reading.read() as session:
            chain.read_chain_head(session)
            os.seteuid(os.getuid())
            folder.chmod(0o755)
            world_in.request()
            world_in.database.dispose()

    world_in.database.dispose()
    reading = closed(folder)
    try:
        with refusal("LedgerNotReadable", match="while it was read"), without_rights():
            read_during_a_write()
    finally:
        os.seteuid(os.getuid())
