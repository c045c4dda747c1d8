"""The ledger's database: one engine, two kinds of transaction, and the settings both backends need.

SQLite: WAL, synchronous=FULL, foreign keys, recursive triggers (so that REPLACE meets the delete triggers);
writers begin IMMEDIATE, because a read that later upgrades to a write oversells the budget. PostgreSQL: writers lock
the head of the chain first, so that there is one at a time here, too; READ COMMITTED, because what they read must be
newer than the lock; `synchronous_commit` on. Readers REPEATABLE READ, because the head must fit the links. Sync drivers
only; one connection is kept between transactions, none across a fork (`models_db.database.sqlite_connections`).
"""

import os
import re
import select
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.orm import Session

from models_db.database.sqlite_connections import SINGLE_CONNECTION_POOL, acquire_turn, release_turns, reuse_connection
from models_db.errors import EnvironmentProblem
from models_db.home import describe_free_space
from models_db.writes.database_errors import translate_database_errors
from models_db.writes.links import record_link

BUSY_SECONDS = 60
"""Seconds that a writer waits for other writers before it gives up."""

CONNECT_SECONDS = 30
"""Seconds until a PostgreSQL server has taken a connection, whatever it sends meanwhile."""

LEDGER_ROOM_MIB = 16
"""Room that a ledger on SQLite needs: its write-ahead log is emptied at 4 MiB, and a large step adds a few MiB."""

IDLE_SECONDS = 300
"""Seconds that a session may idle in a transaction before PostgreSQL ends it, because others may need its locks."""

_PRAGMAS = (
    f"busy_timeout={BUSY_SECONDS * 1000}",
    "synchronous=FULL",
    "foreign_keys=ON",
    "recursive_triggers=ON",
    "trusted_schema=OFF",
)


_SESSION_SETTINGS = (
    "synchronous_commit=on",
    f"lock_timeout={BUSY_SECONDS}s",
    f"idle_in_transaction_session_timeout={IDLE_SECONDS}s",
    "timezone=UTC",
)

_OTHER_SCHEMA = re.compile("no such (table|column)|has no column named")
_OTHER_SCHEMA_STATES = ("42P01", "42703", "42883")  # undefined_table, undefined_column, undefined_function
_ROLLED_BACK_STATES = ("40001", "40P01", "55P03")  # the server has undone the transaction, and said so
_IDLE_STATE = "25P03"  # idle_in_transaction_session_timeout: the server has ended the session, and undone all
_FORBIDDEN_STATE = "42501"  # insufficient_privilege
_COMMITTING = "almoner_committing"
"""Key in a session's `info`: a commit was sent, so a lost connection leaves the outcome unknown."""


class Database:
    """The ledger's database at `url`."""

    def __init__(self, url: str) -> None:
        self.url = _supported_url(_with_driver(url))
        self.engine = _sqlite_engine(self.url) if self.url.startswith("sqlite") else _postgresql_engine(self.url)
        weakref.finalize(self, self.engine.dispose)  # also at exit, so that SQLite leaves one whole file behind

    @property
    def is_sqlite(self) -> bool:
        """Return whether the backend is SQLite."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a write transaction: committed as a whole at its end, with the link of its rows, or rolled back.

        Raises:
            LedgerUnreachable: the database cannot be opened or stays locked.
            LedgerUnreadable: its file is damaged.
            LedgerDiskFull: there is no room for it.
            OutcomeUnknown: it did not confirm a commit.
            SchemaOutdated: its tables are not there, or not these.
            LedgerForbidden: the database role may not do that.
        """
        with self._session(almoner_begin="IMMEDIATE") as session, session.begin():
            self._lock(session)
            yield session
            record_link(session)
            session.info[_COMMITTING] = True

    @contextmanager
    def write_after_loss(self) -> Iterator[Session]:
        """Open a write transaction after one with an unconfirmed commit, to read its outcome.

        The lost transaction was the ledger's only writer, so this one begins when it has ended, even where a PostgreSQL
        server still has to read its COMMIT.

        Raises:
            OutcomeUnknown: it does not end, or the database cannot be reached.
            As `write`.
        """
        try:
            with self.write() as session:
                yield session
        except LedgerUnreachable as problem:
            raise OutcomeUnknown(self._url_without_password) from problem

    def _lock(self, session: Session) -> None:
        """Make this transaction the ledger's only writer until it ends; on SQLite it is that from its first statement.

        Raises:
            RoleDenied: the ledger knows nobody with this login of PostgreSQL.
        """
        if not self.is_sqlite:
            with translate_database_errors():
                session.execute(text("SELECT almoner_begin()"))

    @contextmanager
    def rehearse(self) -> Iterator[Session]:
        """Open a write transaction that is rolled back at its end: the ledger refuses the same as in earnest.

        Raises:
            LedgerUnreachable, SchemaOutdated, LedgerForbidden: as `write`.
        """
        with self._session(almoner_begin="IMMEDIATE") as session, session.begin():
            self._lock(session)
            yield session
            record_link(session)
            session.rollback()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a read transaction: a consistent snapshot, nothing is written."""
        snapshot = {"almoner_begin": "DEFERRED"} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._session(**snapshot) as session, session.begin():
            yield session
            session.expunge_all()  # what was read stays readable outside; a rollback would expire it
            session.rollback()

    @contextmanager
    def _session(self, **options: str) -> Iterator[Session]:
        session = Session(self.engine.execution_options(**options), expire_on_commit=False)
        try:
            with session:
                yield session
        except InternalError as problem:
            if getattr(problem.orig, "sqlstate", None) != _IDLE_STATE:
                raise
            raise LedgerUnreachable(self._url_without_password) from problem
        except (OperationalError, ProgrammingError) as problem:
            sqlstate = getattr(problem.orig, "sqlstate", None)
            if _OTHER_SCHEMA.search(str(problem.orig)) or sqlstate in _OTHER_SCHEMA_STATES:
                raise SchemaOutdated(self._url_without_password) from None
            if getattr(problem.orig, "sqlstate", None) == _FORBIDDEN_STATE:
                raise LedgerForbidden(self._url_without_password) from None
            if isinstance(problem, OperationalError):
                committing = bool(session.info.get(_COMMITTING))
                if disk_is_full(problem.orig, committing=committing):
                    raise LedgerDiskFull(str(self.engine.url.database)) from problem
                lost = committing and sqlstate not in _ROLLED_BACK_STATES
                raise (OutcomeUnknown if lost else LedgerUnreachable)(self._url_without_password) from problem
            raise

    @property
    def _url_without_password(self) -> str:
        return self.engine.url.render_as_string(hide_password=True)

    def dispose(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _unsupported_database() -> EnvironmentProblem:
    # The address may hold a password, so it is not repeated.
    return EnvironmentProblem(
        "The ledger's address is neither one of a PostgreSQL nor of an SQLite file.",
        "Set ALMONER_DATABASE_URL to postgresql://user@host/database, or unset it for a file in the home.",
        code="UnsupportedDatabase",
    )


class LedgerUnreachable(EnvironmentProblem):
    """The ledger cannot be opened, or another process holds it for too long."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"The ledger at {url} cannot be used right now; nothing was changed.",
            "Check that the database is there and not locked by a stopped process; then try again.",
            {"database": url},
        )


def ledger_unreadable(path: str) -> EnvironmentProblem:
    """Return the error of a damaged file of SQLite: it holds what SQLite never writes."""
    return EnvironmentProblem(
        f"The ledger {path} is damaged: SQLite cannot read it as a database; nothing was changed.",
        "Keep a copy of the file and look for the cause (disk, memory, another program). Then restore the newest"
        " backup (`almoner restore`, see docs/backup.md).",
        {"database": path},
        code="LedgerUnreadable",
    )


def name_damage(engine: Engine) -> None:
    """Raise LedgerUnreadable from whatever statement or connection of an engine meets a damaged SQLite file."""

    @event.listens_for(engine, "handle_error")
    def _damaged(context: ExceptionContext) -> None:
        if shows_damage(context.original_exception):
            raise ledger_unreadable(str(engine.url.database))


def shows_damage(problem: BaseException) -> bool:
    """Return whether SQLite met what it never writes; the driver cannot decode a message that repeats such bytes."""
    code = getattr(problem, "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(problem, UnicodeDecodeError)


def disk_is_full(problem: BaseException | None, *, committing: bool) -> bool:
    """Return whether SQLite had no room for a page, or for the index of its write-ahead log.

    A transaction whose commit had no room for a page is not committed: its last frame, which commits it, was not
    written whole (https://sqlite.org/fileformat2.html, section 4.1). The index may grow after that frame.
    """
    code = getattr(problem, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR_SHMSIZE and not committing)


class LedgerDiskFull(LedgerUnreachable):
    """The disk has no room for the ledger's next page."""

    def __init__(self, path: str) -> None:
        EnvironmentProblem.__init__(
            self,
            f"The disk of the ledger {path} is full ({describe_free_space(Path(path))}); nothing was changed.",
            f"Make at least {LEDGER_ROOM_MIB} MiB of room there, then type the command again.",
            {"database": path},
        )


class LedgerForbidden(EnvironmentProblem):
    """The database role of this session has not the right to do that."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"The role of this session may not do that in the database at {url}; nothing was changed.",
            "Readers are in the group almoner_DATABASE_reader, all others in almoner_DATABASE_writer; only the owner of"
            " the tables makes or upgrades them. Ask an admin (`almoner user add --login`), see docs/people.md.",
            {"database": url},
        )


class OutcomeUnknown(EnvironmentProblem):
    """The connection was lost between a COMMIT and its answer: the change stands or does not."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"The ledger at {url} did not confirm a commit; the change may have been recorded.",
            "When the database is available again, repeat the command: it finds recorded changes; nothing is spent or"
            " published twice. `almoner run sweep` closes a run that this stopped.",
            {"database": url},
        )


class SchemaOutdated(EnvironmentProblem):
    """The database has no tables of almoner, or those of another version."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"The database at {url} holds no ledger, or that of another version.",
            "Run `almoner init`: it creates or upgrades the ledger and keeps its content.",
            {"database": url},
        )


def _with_driver(url: str) -> str:
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return "postgresql+psycopg://" + url.removeprefix(plain)
    return url


def _supported_url(url: str) -> str:
    try:
        kind = make_url(url).drivername
    except (ArgumentError, ValueError):
        raise _unsupported_database() from None
    if kind not in ("sqlite", "postgresql+psycopg"):
        raise _unsupported_database()
    return url


def _sqlite_engine(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True, **SINGLE_CONNECTION_POOL)
    path = make_url(url).database

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        if path and path != ":memory:":
            _restrict_permissions(Path(path))  # before SQLite gives the same mode to the files beside it
        connection.text_factory = stored_text
        connection.isolation_level = None  # the driver must not begin transactions of its own
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            _enable_wal(connection)
        except UnicodeDecodeError:  # no error of the driver, so the engine does not see it
            raise ledger_unreadable(str(path)) from None

    reuse_connection(engine, lambda: _file_identity(path))
    release_turns(engine)
    name_damage(engine)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get("almoner_begin", "IMMEDIATE")
        if mode == "IMMEDIATE" and path and not connection.connection.is_detached:  # a migration's is closed, not kept
            acquire_turn(path, connection.connection.info)
        connection.exec_driver_sql(f"BEGIN {mode}")

    return engine


def stored_text(stored: bytes) -> str:
    """Decode a column of text; bytes that are no UTF-8, which only another program writes, stop no reader."""
    return stored.decode("utf-8", "replace")


def _file_identity(path: str | None) -> tuple[int, int] | None:
    """Return which file the path names now."""
    try:
        status = os.stat(path or "")
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL. The switch needs the file alone and, unlike everything else, does not wait for it."""
    patience = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.02)


def _restrict_permissions(path: Path) -> None:
    if path.exists() and path.stat().st_mode & 0o077:
        os.chmod(path, 0o600)


def _postgresql_engine(url: str) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        **SINGLE_CONNECTION_POOL,
        isolation_level="READ COMMITTED",
        connect_args={
            "options": " ".join(f"-c {setting}" for setting in _SESSION_SETTINGS),
            "connect_timeout": CONNECT_SECONDS,
        },
    )
    reuse_connection(engine, lambda: url, _has_unread_input)
    return engine


def _has_unread_input(connection: Any) -> bool:
    """Return whether a server has sent data without a request: in most cases, the end of the connection."""
    socket = select.poll()
    socket.register(connection, select.POLLIN)
    return bool(socket.poll(0))
