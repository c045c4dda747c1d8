"""Retries, with growing delays, of steps that cost nothing, after faults of the machine that may pass.

A step that pays or draws is never given to `retry`: it would pay or draw again. What may be given is a function of
released texts, public words and public models, such as a metric without a charge, whose second value is its first.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from models_db.errors import AlmonerError
from tasks.common.progress import tell

Result = TypeVar("Result")
Wait = Callable[[float], None]
"""Waits for so many seconds."""

SECONDS_BEFORE_RETRIES: Final = (10, 20, 40, 80)
TEMPORARY: Final = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOLCK, errno.ESTALE,
        errno.EREMOTEIO, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    }
)  # fmt: skip
"""Error numbers of the system that may be gone in a minute: of files behind a network, and of what is used up.

`ConnectionError` and `TimeoutError` are beside them. A missing file, a lacking right and a full disk are not: somebody
has to mend them.
"""

_wait: ContextVar[Wait] = ContextVar("almoner_wait", default=time.sleep)


def is_temporary(problem: BaseException) -> bool:
    """Return whether the machine, a connection or an endpoint was at fault, so that the same step may succeed later.

    Named errors say so themselves; one of a library is also judged by the error from which it was raised.
    """
    if isinstance(problem, AlmonerError):
        return problem.temporary
    if isinstance(problem, ConnectionError | TimeoutError):
        return True
    if isinstance(problem, OSError) and problem.errno is not None:
        return problem.errno in TEMPORARY
    return problem.__cause__ is not None and is_temporary(problem.__cause__)


def retry(step: Callable[[], Result], name: str) -> Result:
    """Return the value of a step that costs nothing; after a temporary fault it is begun anew, four times at most.

    Args:
        step: a function without effects.
        name: what the terminal calls it, a public word.

    Raises:
        Exception: what the step raises, if it is no temporary fault or the last try raised it.
    """
    for seconds in SECONDS_BEFORE_RETRIES:
        try:
            return step()
        except Exception as problem:
            if not is_temporary(problem):
                raise
            # its message may quote anything
            fault = problem.code if isinstance(problem, AlmonerError) else type(problem).__name__
        tell(f"{name}: {fault}; it costs nothing, and is tried again in {seconds} seconds.")
        _wait.get()(seconds)
    return step()


@contextmanager
def waiting_with(wrap: Callable[[Wait], Wait]) -> Iterator[None]:
    """Wait, before the retries of the block, in the way that `wrap` makes of the present one."""
    token = _wait.set(wrap(_wait.get()))
    try:
        yield
    finally:
        _wait.reset(token)
