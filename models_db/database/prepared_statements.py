"""Statements that every run repeats, passed directly to the driver.

SQLAlchemy spends more time on such a statement than SQLite does. They run in the session's own transaction and fail
with SQLAlchemy's errors, so callers need not know which way a statement went.
"""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction

_PARAMETER = re.compile(r":(\w+)")
_CONNECTION_KEY = "almoner_wire"
_TRANSACTION_IDLE = 0  # of libpq: no transaction is open

COMMITTING = "almoner_committing"
"""Key in a session's `info`: a commit was sent, so a lost connection leaves the outcome unknown."""


@dataclass(frozen=True)
class _DriverConnection:
    """The driver's connection, for as long as a transaction lasts."""

    transaction: SessionTransaction | None
    connection: Any
    dialect: Dialect


class PreparedStatement:
    """Prepared statement with values written as `:name`; no other colon may precede a word."""

    def __init__(self, sql: str) -> None:
        self._texts = {"sqlite": sql, "postgresql": _PARAMETER.sub(r"%(\1)s", sql)}

    def fetch_rows(self, session: Session, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the rows of the statement, as plain tuples.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        return self._execute(session, parameters).fetchall()  # type: ignore[no-any-return]

    def fetch_rows_after(
        self,
        session: Session,
        preceding: "PreparedStatement",
        preceding_parameters: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> list[Any]:
        """Return the rows after another statement has been executed; PostgreSQL gets both in one message.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        wire = _driver_connection(session)
        if wire.dialect.name != "postgresql":
            preceding._execute(session, preceding_parameters)
            return self.fetch_rows(session, parameters)
        try:
            with wire.connection.pipeline():
                wire.connection.execute(preceding._texts["postgresql"], preceding_parameters)
                cursor = wire.connection.execute(self._texts["postgresql"], parameters)
            return cursor.fetchall()  # type: ignore[no-any-return]
        except wire.dialect.loaded_dbapi.Error as problem:
            raise _database_error(session, wire, self._texts["postgresql"], problem) from problem

    def execute_as_transaction(self, session: Session, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the row of a whole transaction, which PostgreSQL begins, commits and answers in one message.

        Returns: one row, and the transaction is over and durable. Or nothing was done and the transaction goes on: on
            SQLite, where something was done before, where the database refuses the statement, and where it finds no row
            or its last column is NULL.

        Raises:
            DBAPIError: as SQLAlchemy would raise it; after a lost connection the outcome is unknown.
        """
        wire = _driver_connection(session)
        if (
            wire.dialect.name != "postgresql"
            or wire.connection.info.transaction_status != _TRANSACTION_IDLE
            or _has_unwritten_rows(session)
        ):
            return []
        session.info[COMMITTING] = True
        rows = self._execute_and_commit(session, wire, parameters)
        session.info[COMMITTING] = False
        if not rows or rows[0][-1] is None:
            return []
        session.commit()  # the server has done it, so this sends nothing
        return rows

    def _execute_and_commit(
        self, session: Session, wire: _DriverConnection, parameters: Mapping[str, Any]
    ) -> list[Any]:
        text = self._texts["postgresql"]
        wire.connection.autocommit = True
        try:
            rows: list[Any] = wire.connection.execute(text, parameters).fetchall()
        except wire.dialect.loaded_dbapi.IntegrityError:
            return []  # undone by the server
        except wire.dialect.loaded_dbapi.Error as problem:
            raise _database_error(session, wire, text, problem) from problem
        else:
            return rows
        finally:
            if wire.connection.info.transaction_status == _TRANSACTION_IDLE:
                wire.connection.autocommit = False
            else:
                wire.connection.close()  # nobody may go on in it

    def execute_insert(self, session: Session, parameters: Mapping[str, Any]) -> int:
        """Insert one row on SQLite; returns its number.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        return int(self._execute(session, parameters).lastrowid)

    def _execute(self, session: Session, parameters: Mapping[str, Any]) -> Any:
        wire = _driver_connection(session)
        text = self._texts[wire.dialect.name]
        try:
            return wire.connection.execute(text, parameters)
        except UnicodeDecodeError:  # a message of SQLite that repeats bytes of a damaged schema
            damage = sqlite3.DatabaseError("the schema is damaged")
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise _database_error(session, wire, text, damage) from None
        except wire.dialect.loaded_dbapi.Error as problem:
            raise _database_error(session, wire, text, problem) from problem


def _driver_connection(session: Session) -> _DriverConnection:
    cached: _DriverConnection | None = session.info.get(_CONNECTION_KEY)
    if cached is None or cached.transaction is not session.get_transaction():
        connection = session.connection()
        raw = connection.connection.driver_connection
        cached = session.info[_CONNECTION_KEY] = _DriverConnection(session.get_transaction(), raw, connection.dialect)
    return cached


def _has_unwritten_rows(session: Session) -> bool:
    """Return whether the session still has rows to write."""
    return bool(session.new or session.dirty or session.deleted)


def forget_connection(session: Session) -> None:
    """Forget the connection, when the session is done with it."""
    session.info.pop(_CONNECTION_KEY, None)


def _database_error(session: Session, wire: _DriverConnection, text: str, problem: Any) -> Any:
    """Return the driver's error as SQLAlchemy's; a connection that is lost is not used again."""
    base = wire.dialect.loaded_dbapi.Error
    lost = wire.dialect.is_disconnect(problem, wire.connection, None)
    if lost:
        session.connection().invalidate(problem)
    return DBAPIError.instance(
        text, None, problem, base, hide_parameters=True, connection_invalidated=lost, dialect=wire.dialect
    )
