"""Progress reports of long work; the command line shows a bar, everything else ignores them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Reporter = Callable[[str, int, int], None]
Progress = Callable[[int, int], None]
"""Told how many are done, and of how many."""
Teller = Callable[[str], None]

_teller: ContextVar[Teller | None] = ContextVar("almoner_teller", default=None)
_reporter: ContextVar[Reporter | None] = ContextVar("almoner_progress", default=None)


def report(what: str, done: int, total: int) -> None:
    """Report to the listener that `done` of `total` steps of `what` are done."""
    if listener := _reporter.get():
        listener(what, done, total)


@contextmanager
def step(reporter: Reporter, what: str, total: int = 1) -> Iterator[None]:
    """Report `what` when it begins, and that all of it is done when it ends without an error."""
    reporter(what, 0, total)
    yield
    reporter(what, total, total)


def ignore(what: str, done: int, total: int) -> None:
    """Discard a report."""


def tell(line: str) -> None:
    """Send the listener a message that should be shown before the work is done."""
    if teller := _teller.get():
        teller(line)


@contextmanager
def listening(reporter: Reporter, teller: Teller | None = None) -> Iterator[None]:
    """Send the reports of the block to `reporter`, and its messages to `teller`."""
    token, teller_token = _reporter.set(reporter), _teller.set(teller)
    try:
        yield
    finally:
        _reporter.reset(token)
        _teller.reset(teller_token)
