"""The queue of writers on SQLite: one at a time, each for a slice, and nobody is kept by it for long."""

import fcntl
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from models_db.database import sqlite_connections
from models_db.sessions.database import Database
from tests.support import PATIENCE, execute, fetch

CONCERNS = ("models_db/sessions", "models_db/database")


@pytest.fixture
def log(sqlite_database: Database) -> Path:
    """The log beside a ledger whose connection is kept open."""
    execute(sqlite_database, "CREATE TABLE note (said TEXT)")
    return Path(f"{sqlite_database.engine.url.database}-wal")


def is_free(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def note(database: Database, said: str) -> None:
    execute(database, "INSERT INTO note VALUES (:said)", said=said)


def test_a_writer_has_the_turn_until_it_is_done(sqlite_database: Database, log: Path) -> None:
    with sqlite_database.write() as session:
        assert is_free(log)  # nothing was asked of the database yet
        session.execute(text("INSERT INTO note VALUES ('a')"))
        assert not is_free(log)
    assert is_free(log)


def test_a_failed_writer_gives_it_back(sqlite_database: Database, log: Path) -> None:
    def fail() -> None:
        with sqlite_database.write() as session:
            session.execute(text("INSERT INTO note VALUES ('a')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert is_free(log)


def test_a_reader_takes_no_turn(sqlite_database: Database, log: Path) -> None:
    with sqlite_database.read() as session:
        session.scalar(text("SELECT count(*) FROM note"))
        assert is_free(log)


def test_the_next_one_waits_and_then_begins_at_once(sqlite_database: Database, log: Path) -> None:
    done: list[str] = []

    def second() -> None:
        note(sqlite_database, "second")
        done.append("second")

    with sqlite_database.write() as session:
        session.execute(text("INSERT INTO note VALUES ('first')"))
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.1)
        assert not done
    waiting.join(PATIENCE)
    assert done == ["second"]
    assert fetch(sqlite_database, "SELECT said FROM note ORDER BY rowid") == [("first",), ("second",)]


def test_somebody_who_only_keeps_the_queue_is_passed_by(
    sqlite_database: Database, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", 0.05)
    with log.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        note(sqlite_database, "written all the same")
    assert fetch(sqlite_database, "SELECT said FROM note") == [("written all the same",)]


def test_without_such_locks_it_is_written_all_the_same(
    sqlite_database: Database, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_file: object, _operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    note(sqlite_database, "a")
    assert fetch(sqlite_database, "SELECT said FROM note") == [("a",)]


# --- the head of the queue, and slices ------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else has this lock: the log's is the turn, the folder's makes the head of the queue."""
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def turn(log: Path, began: float | None = None) -> float:
    """Seconds until the turn came to somebody whose slice began so many seconds ago (None: to a newcomer)."""
    now = time.monotonic()
    info: dict[str, Any] = {}
    if began is not None:
        info["almoner_slice"] = sqlite_connections._Slice(now - began, now)
    sqlite_connections.acquire_turn(str(log).removesuffix("-wal"), info)
    took = time.monotonic() - now
    info.pop("almoner_turn").close()
    return took


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience and slices so long that nothing comes about because they have ended."""
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(sqlite_connections, "SLICE_SECONDS", PATIENCE / 2)


@pytest.mark.usefixtures("patient")
def test_within_its_slice_a_writer_goes_before_the_head(log: Path) -> None:
    with locked(log.parent):
        assert turn(log, began=1.0) < PATIENCE / 3
        assert turn(log) < PATIENCE / 3


def test_after_its_slice_a_writer_waits_behind_the_head(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", 1.0)
    with locked(log.parent):
        assert turn(log, began=100.0) > 0.5  # it goes on at last: the head may have been stopped


def test_who_is_alone_begins_its_next_slice_at_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", PATIENCE)
    assert turn(log, began=100.0) < PATIENCE / 3


def waiting(log: Path) -> tuple[threading.Thread, list[float]]:
    """A newcomer in a thread, and how long it had to wait once it has the turn."""
    took: list[float] = []
    newcomer = threading.Thread(target=lambda: took.append(turn(log)))
    newcomer.start()
    while is_free(log.parent):
        time.sleep(0.001)
    return newcomer, took


class Moments:
    """The head's sleeps: it looks as often as ever, and its second look at a free turn comes when the test says so."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.seen, self.over = threading.Semaphore(0), threading.Semaphore(0)

    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """In place of `time.sleep`."""
        if seconds == sqlite_connections._PAUSE_SECONDS:
            self.seen.release()
            assert self.over.acquire(timeout=PATIENCE)
        else:
            self.looked.set()
            time.sleep(seconds)

    def look(self) -> None:
        """Until the head has looked again, and found the turn taken."""
        self.looked.clear()
        assert self.looked.wait(PATIENCE)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Moments:
    """The head's sleeps, in the test's hands."""
    made = Moments()
    monkeypatch.setattr(sqlite_connections, "time", made)
    return made


@pytest.mark.usefixtures("patient")
def test_the_head_leaves_a_turn_that_is_taken_up_again(log: Path, moments: Moments) -> None:
    with log.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        newcomer, took = waiting(log)
        moments.look()
        for _ in range(3):
            fcntl.flock(owner, fcntl.LOCK_UN)
            assert moments.seen.acquire(timeout=PATIENCE)
            fcntl.flock(owner, fcntl.LOCK_EX)
            moments.over.release()
            moments.look()
            assert not took
    moments.over.release()
    newcomer.join(PATIENCE)
    assert took


def test_after_a_slice_the_head_takes_any_gap(log: Path, moments: Moments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", PATIENCE)
    with log.open("rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        newcomer, took = waiting(log)
        moments.look()
        time.sleep(2 * sqlite_connections.SLICE_SECONDS)
    newcomer.join(PATIENCE)
    assert took
    assert not moments.seen.acquire(blocking=False), "it did not look a second time"


@pytest.mark.usefixtures("patient")
def test_ctrl_c_ends_the_wait_and_frees_the_head(log: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background inherits an ignored one
    with locked(log), _again(before):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            turn(log)
        assert is_free(log.parent)
    assert is_free(log)


@contextmanager
def _again(handler: Any) -> Iterator[None]:
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _stand_still(url: str, said: Any) -> None:
    with Database(url).write() as session:
        session.execute(text("INSERT INTO note VALUES ('never')"))
        said.set()
        time.sleep(PATIENCE)


def _wait_as_head(url: str, said: Any) -> None:
    sqlite_connections.MAX_WAIT_SECONDS = PATIENCE
    said.set()
    note(Database(url), "never")


@pytest.mark.usefixtures("patient")
def test_a_writer_that_is_killed_holds_up_nobody(sqlite_database: Database, log: Path) -> None:
    holder = _started(_stand_still, sqlite_database)
    newcomer = threading.Thread(target=note, args=(sqlite_database, "next"))
    newcomer.start()
    time.sleep(0.1)
    assert newcomer.is_alive()
    holder.kill()
    newcomer.join(PATIENCE)
    assert not newcomer.is_alive()
    assert fetch(sqlite_database, "SELECT said FROM note") == [("next",)]


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_head_that_is_killed_makes_room_for_the_next(sqlite_database: Database, log: Path) -> None:
    with locked(log):
        head = _started(_wait_as_head, sqlite_database)
        while is_free(log.parent):
            time.sleep(0.001)
        head.kill()
        head.join()
        newcomer, took = waiting(log)
    newcomer.join(PATIENCE)
    assert took
    assert fetch(sqlite_database, "SELECT said FROM note") == []


def _started(act: Callable[[str, Any], None], database: Database) -> Any:
    context = multiprocessing.get_context("spawn")
    said = context.Event()
    process = context.Process(target=act, args=(database.url, said), daemon=True)
    process.start()
    assert said.wait(PATIENCE)
    return process


def test_many_writers_lose_nothing_and_all_come_to_their_turn(
    sqlite_database: Database, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One never stops writing until the others are done, so they are done only if it lets them in."""
    monkeypatch.setattr(sqlite_connections, "MAX_WAIT_SECONDS", PATIENCE)
    execute(sqlite_database, "INSERT INTO note VALUES ('0')")
    others_done = threading.Event()
    greedy = [0]

    def add() -> None:
        with sqlite_database.write() as session:
            before = int(session.scalar(text("SELECT said FROM note")) or 0)
            session.execute(text("UPDATE note SET said = :now"), {"now": str(before + 1)})

    def never_stop() -> None:
        while not others_done.is_set():
            add()
            greedy[0] += 1

    def add_some() -> None:
        for _ in range(10):
            add()

    writers = [threading.Thread(target=add_some) for _ in range(3)]
    one = threading.Thread(target=never_stop)
    for each in (one, *writers):
        each.start()
    for each in writers:
        each.join(PATIENCE)
    others_done.set()
    one.join(PATIENCE)
    assert greedy[0] > 0
    assert fetch(sqlite_database, "SELECT said FROM note") == [(str(30 + greedy[0]),)]
