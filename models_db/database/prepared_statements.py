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

COMMITTING = "almoner_committing"
"""Key in a session's `info`: a commit was sent, so a lost connection leaves the outcome unknown."""


@dataclass(frozen=True)
class _DriverConnection:
    """The driver's connection, for as long as a transaction lasts."""

    transaction: SessionTransaction | None
    connection: Any
    dialect: Dialect


class PreparedStatement:
    """Prepared statement with values written as `:name`; no other colon may precede a word.

    Args:
        sql: for both databases, or for SQLite alone.
        postgresql: for PostgreSQL, where it needs other words.
    """

    def __init__(self, sql: str, postgresql: str = "") -> None:
        self._texts = {"sqlite": sql, "postgresql": _PARAMETER.sub(r"%(\1)s", postgresql or sql)}

    def fetch_rows(self, session: Session, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the rows of the statement, as plain tuples.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        return self._execute(session, parameters).fetchall()  # type: ignore[no-any-return]

    def fetch_mappings(self, session: Session, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of the statement, each by the names of its columns.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        cursor = self._execute(session, parameters)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def execute(self, session: Session, parameters: Mapping[str, Any]) -> None:
        """Execute a statement that returns nothing.

        Raises:
            DBAPIError: as SQLAlchemy would raise it.
        """
        self._execute(session, parameters)

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
