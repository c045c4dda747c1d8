"""Two transactions at once: the second runs into the first, waits for it, and then decides on what it did."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.orm import Session

from models_db.errors import AlmonerError
from models_db.sessions.database import Database
from tests import support

PATIENCE = 0.3
"""Seconds that the second transaction has to run into the first."""


def meanwhile(database: Database, first: Callable[[Session], object], second: Callable[[], object]) -> str:
    """Begin `first`, let `second` run in a transaction of its own, then commit `first`.

    Returns: the name of the refusal that `second` met, or 'done'.
    """
    begun = threading.Event()

    def later() -> str:
        begun.wait()
        try:
            second()
        except AlmonerError as refusal:
            return refusal.code
        return "done"

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(later)
        try:
            with database.write() as session:
                first(session)
                begun.set()
                threading.Event().wait(PATIENCE)
                assert not waiting.done(), "the second did not wait for the first"
        finally:
            begun.set()  # if the first failed, the second must not wait for ever
        return waiting.result(support.PATIENCE)
