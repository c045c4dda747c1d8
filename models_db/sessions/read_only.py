"""Read-only access to the ledger, for auditors: with credentials that can only read, and without leaving a change.

PostgreSQL: every transaction is read only, and SELECT is all the role needs. SQLite: the file is opened with
`mode=ro`. A ledger in WAL mode needs a `-shm` file beside it even for that; in a folder where none can be made (a
read-only copy, a mount) the file is read without one (`immutable=1`), which is right only if no change waits in the
`-wal` file and nobody writes meanwhile. The first is checked before, the second afterwards.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from models_db.errors import EnvironmentProblem
from models_db.sessions.database import (
    BUSY_SECONDS,
    CONNECT_SECONDS,
    Database,
    ledger_unreadable,
    name_damage,
    shows_damage,
    stored_text,
)

_NO_SHARED_MEMORY = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class ReadOnlyDatabase(Database):
    """A database through which nothing can be written."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._as_it_lies = False
        self.engine = self._read_sqlite() if self.is_sqlite else _read_only_postgresql(self.url)

    @property
    def file(self) -> Path | None:
        """The ledger's file; None on PostgreSQL."""
        return Path(self.engine.url.database or "") if self.is_sqlite else None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a read transaction: a consistent snapshot.

        Raises:
            LedgerUnreachable, LedgerUnreadable, SchemaOutdated: see `Database.read`.
            LedgerNotReadable: the file alone is not the whole ledger, or it was written meanwhile.
        """
        self._as_it_lies = False
        before = _file_state(self.file)
        with super().read() as session:
            yield session
        if self._as_it_lies and _file_state(self.file) != before:
            raise _ledger_not_readable(self._url_without_password, "was written while it was read")

    def _read_sqlite(self) -> Engine:
        engine = create_engine(self.url, poolclass=NullPool, hide_parameters=True, creator=self._connect)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN DEFERRED")

        name_damage(engine)
        return engine

    def _connect(self) -> Any:
        try:
            return _open_read_only(self.file, "mode=ro")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF not in _NO_SHARED_MEMORY:
                raise
        wal = Path(f"{self.file}-wal")
        if wal.exists() and wal.stat().st_size:
            raise _ledger_not_readable(
                self._url_without_password, "has changes in its -wal file that cannot be read without write access"
            )
        self._as_it_lies = True
        return _open_read_only(self.file, "mode=ro&immutable=1")


def _open_read_only(file: Path | None, query: str) -> sqlite3.Connection:
    if file is not None and file.exists() and not file.is_file():  # a pipe would let its reader wait
        raise ledger_unreadable(str(file))
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{query}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.text_factory = stored_text
    try:
        for pragma in ("query_only=ON", "trusted_schema=OFF", "schema_version"):  # the last one reads the file
            with closing(connection.execute(f"PRAGMA {pragma}")) as cursor:
                cursor.fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        connection.close()
        if shows_damage(problem):
            raise ledger_unreadable(str(file)) from None
        raise
    return connection


def _file_state(file: Path | None) -> tuple[int, ...]:
    """Return a value that changes whenever the file does."""
    if file is None or not os.path.lexists(file):
        return ()
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read_only_postgresql(url: str) -> Engine:
    return create_engine(
        url,
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={
            "options": f"-c default_transaction_read_only=on -c lock_timeout={BUSY_SECONDS}s -c timezone=UTC",
            "connect_timeout": CONNECT_SECONDS,
        },
    )


def _ledger_not_readable(url: str, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The ledger at {url} {reason}.",
        "Copy almoner.db and the files beside it to a folder of your own, and read the copy; or wait until nobody"
        " writes.",
        {"database": url, "reason": reason},
        code="LedgerNotReadable",
    )
