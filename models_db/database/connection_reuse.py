"""Reuse of one connection between two transactions, for as long as the connection is valid.

Opening a connection costs more than a transaction: SQLite reads the schema, and copies its whole log back when the last
connection is closed; PostgreSQL starts a process, which plans every guard anew. A kept connection must not outlive its
database: a forked process opens its own, a file that was moved away or replaced is left, a session that its server has
ended is left, and after a pause a server may have gone without a word.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool

REUSE_SECONDS = 5.0
"""Seconds that a connection may stay unused and still be reused."""

SINGLE_CONNECTION_POOL: dict[str, Any] = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": -1}
"""Arguments of an engine that keeps one; what a second thread opens beside it is closed after use."""

_CONNECTIONS_OF_PARENT: list[Any] = []
"""Connections of the process this one was forked from. To close or forget them here would harm the other's."""


def reuse_connection(
    engine: Engine, target: Callable[[], object], is_ended: Callable[[Any], bool] = lambda _connection: False
) -> None:
    """Check the connection that was kept whenever it is taken up.

    Args:
        target: returns the address that a connection leads to.
        is_ended: returns at once whether the other side has ended the driver's connection.
    """

    @event.listens_for(engine, "connect")
    def _opened(_connection: Any, record: Any) -> None:
        record.info.clear()
        record.info["opened"] = (os.getpid(), target())

    @event.listens_for(engine, "checkin")
    def _laid_down(_connection: Any, record: Any) -> None:
        record.info["since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _taken_up(connection: Any, record: Any, proxy: Any) -> None:
        pid, led_to = record.info["opened"]
        if pid != os.getpid():
            _CONNECTIONS_OF_PARENT.append(connection)
            record.dbapi_connection = proxy.dbapi_connection = None
            raise DisconnectionError("it belongs to another process")
        since = record.info.get("since")  # nothing, when it has just been opened
        is_stale = since is not None and (time.monotonic() - since > REUSE_SECONDS or is_ended(connection))
        if is_stale or led_to != target():
            raise DisconnectionError("it may lead nowhere")
