"""Faults of a step: temporary ones are tried again with growing delays, unforeseen ones named without their message.

A step that pays or draws is never given to `retry`: it would pay or draw again. What may be given costs nothing: a
function of released texts, public words and public models, such as a metric without a charge, whose second value is its
first.

The public description of an unforeseen error near private text is its type and its place, never its message.
"""

import errno
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

from models_db.errors import AlmonerError, EnvironmentProblem
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


_ROOT = Path(__file__).parents[2]


class TaskFailed(EnvironmentProblem):
    """An unforeseen error near private text; its details are not shown."""

    def __init__(self, task: str, kind: str, place: str) -> None:
        super().__init__(
            f"The step {task!r} failed with {kind} at {place}; its message is withheld, because it may quote"
            " private text.",
            "Run `almoner doctor`; if that finds nothing, report the type and the place.",
            {"task": task, "kind": kind, "place": place},
        )

    @classmethod
    def of(cls, task: str, problem: BaseException) -> "TaskFailed":
        """Return the error that describes `problem` without its text; it is temporary if the problem is."""
        failed = cls(task, type(problem).__name__, _place(problem))
        failed.temporary = is_temporary(problem)
        return failed


def _place(problem: BaseException) -> str:
    """Return the innermost frame of almoner, as file:line; paths below the installation only."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(_ROOT)]
    own_frames = [f for f in frames if "site-packages" not in f.filename]
    if not own_frames:
        return "an unknown place"
    return f"{Path(own_frames[-1].filename).relative_to(_ROOT)}:{own_frames[-1].lineno}"
