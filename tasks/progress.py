"""Where long work reports how far it is; the command line shows a bar, everything else ignores it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Reporter = Callable[[str, int, int], None]

_reporter: ContextVar[Reporter | None] = ContextVar("almoner_progress", default=None)


def report(what: str, done: int, total: int) -> None:
    """Tell whoever listens that `done` of `total` steps of `what` are done."""
    if listener := _reporter.get():
        listener(what, done, total)


@contextmanager
def listening(reporter: Reporter) -> Iterator[None]:
    """Send the reports of the block to `reporter`."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)
