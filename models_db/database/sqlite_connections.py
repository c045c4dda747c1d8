"""Connections to a database: reuse between two transactions, and the queue of the writers of one SQLite file.

Reuse of one connection between two transactions, for as long as the connection is valid. Opening a connection costs
more than a transaction: SQLite reads the schema, and copies its whole log back when the last connection is closed;
PostgreSQL starts a process, which plans every guard anew. A kept connection must not outlive its database: a forked
process opens its own, a file that was moved away or replaced is left, a session that its server has ended is left, and
after a pause a server may have gone without a word.

Queue of the writers of one SQLite file: each keeps the turn for a slice of time before the next one begins. SQLite lets
a writer that finds the file locked sleep, longer each time, up to a tenth of a second, and the file lies idle
meanwhile. Here the writer holds a lock of its own on the log beside the file, and one of the others, the head of the
queue, polls it often. This lock is advisory: SQLite's lock decides, and a process that cannot get the first one waits
for SQLite's.

A change of writers costs more than a write: the pages must be read again, and the processor's caches are cold. So the
last holder of the turn may take it again within its slice, and the head takes a free turn only if it is still free a
moment later. When the slice is over, its owner queues like all others.
"""

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
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


MAX_WAIT_SECONDS = 1.0
"""Seconds to wait in the queue before proceeding without it, in case its holder has stopped."""

SLICE_SECONDS = 0.02
"""Seconds for which a writer may come back for the turn while others wait."""

_POLL_SECONDS = 0.0004
_TRANSACTION_SECONDS = 0.002  # when a single transaction should be over
_PAUSE_SECONDS = 0.0003  # longer than a writer needs between two transactions
_TURN_KEY = "almoner_turn"
_SLICE_KEY = "almoner_slice"


@dataclass
class _Slice:
    """Time slice of a connection: its start, and the time at which the connection last gave the turn back.

    After SLICE_SECONDS without a turn the connection counts as new.
    """

    began: float
    left: float

    def allows(self, now: float) -> bool:
        """Return whether the connection may take a free turn now, ahead of the queue."""
        return now - self.left >= SLICE_SECONDS or now - self.began < SLICE_SECONDS


def acquire_turn(path: str, info: dict[str, Any]) -> None:
    """Wait for this process's turn to write; `info` is the connection's, and keeps what is to be given back.

    A connection that begins again before it is laid down has its turn already.
    """
    if _TURN_KEY in info:
        return
    try:
        log = open(f"{path}-wal", "rb", buffering=0)  # noqa: SIM115 (SQLite puts no lock of its own on it)
    except OSError:
        return  # no log yet, so there is no crowd
    try:
        if _acquired(os.path.dirname(path) or ".", log.fileno(), info):
            info[_TURN_KEY] = log
    except OSError:
        pass  # a file system without such locks
    finally:
        if info.get(_TURN_KEY) is not log:
            log.close()


def _acquired(folder: str, log: int, info: dict[str, Any]) -> bool:
    """Return whether the turn came: at once to newcomers and within a slice, else in the queue."""
    now = time.monotonic()
    had: _Slice | None = info.get(_SLICE_KEY)
    at_once = (had is None or had.allows(now)) and _try_lock(log)
    if not at_once and not _wait_in_queue(folder, log, now):
        return False
    if had is None or not at_once or now - had.left >= SLICE_SECONDS:
        now = time.monotonic()
        info[_SLICE_KEY] = _Slice(now, now)
    return True


def _wait_in_queue(folder: str, log: int, begun: float) -> bool:
    """Wait behind the head of the queue, then as the head. Its lock is on the folder, to need no file of its own."""
    place = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        waited = 0.0
        while not _try_lock(place):
            waited = time.monotonic() - begun
            if waited > MAX_WAIT_SECONDS / 2 and _try_lock(log):
                return True  # the head itself may have been stopped
            if waited > MAX_WAIT_SECONDS:
                return False
            time.sleep(max(0.002, 0.01 - waited / 30))  # who waits long looks often
        return _wait_as_head(log, begun + MAX_WAIT_SECONDS, waited == 0)
    finally:
        os.close(place)


def _wait_as_head(log: int, end: float, free: bool) -> bool:
    """Wait as the head; `free` if a turn that is found free needs no second look."""
    since = time.monotonic()
    while (now := time.monotonic()) < end:
        if not _try_lock(log):
            free = False
            time.sleep(
                _POLL_SECONDS if not _TRANSACTION_SECONDS < now - since < SLICE_SECONDS else 4 * _POLL_SECONDS
            )  # to look costs the owner time, too
        elif free or now - since > SLICE_SECONDS:
            return True
        else:
            fcntl.flock(log, fcntl.LOCK_UN)
            free = True
            time.sleep(_PAUSE_SECONDS)
    return False


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release_turns(engine: Engine) -> None:
    """Whenever a connection is laid down, its transaction is over."""

    @event.listens_for(engine, "checkin")
    def _laid_down(_connection: Any, record: Any) -> None:
        log = record.info.pop(_TURN_KEY, None)
        if log is not None:
            fcntl.flock(log, fcntl.LOCK_UN)  # a process that was forked off meanwhile has it open, too
            log.close()
            record.info[_SLICE_KEY].left = time.monotonic()
