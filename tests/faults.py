"""Functions that fail first, and waits that take no time."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tasks.common.faults import Wait, waiting_with
from tests.tiny_embedder import Letters


class Failing:
    """A function that raises its errors in its first calls, one after the other.

    Attributes:
        calls: how often it was called.
    """

    def __init__(self, function: Callable[..., Any], *faults: BaseException) -> None:
        self.function, self.faults, self.calls = function, list(faults), 0

    def __call__(self, *given: Any, **options: Any) -> Any:
        self.calls += 1
        if self.faults:
            raise self.faults.pop(0)
        return self.function(*given, **options)


def temporary() -> OSError:
    """A fault of a disk behind a network; its text is not to be shown to anybody."""
    return OSError(errno.EIO, "zanzibarquux")


@contextmanager
def waits() -> Iterator[list[float]]:
    """Write the seconds of each wait before a retry down, in the place of waiting."""
    seconds: list[float] = []

    def note(_: Wait) -> Wait:
        return seconds.append

    with waiting_with(note):
        yield seconds


class FaultyLetters(Letters):
    """Letters that meet a temporary fault at the first call with a text that `at` names."""

    def __init__(self, at: Callable[[str], bool] = lambda text: True) -> None:
        super().__init__()
        self.at, self.fault = at, True

    def __call__(self, texts: Any) -> Any:
        if self.fault and any(map(self.at, texts)):
            self.fault = False
            raise temporary()
        return super().__call__(texts)
