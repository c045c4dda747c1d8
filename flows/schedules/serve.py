"""Looking again and again: the loop of `almoner serve`, and beside it, where there is a Prefect server, its runner.

Every schedule is a Prefect deployment whose runs only knock (`flows.schedules.prefect_trigger`); the loop would find
the same slots by itself, and finds what was made since. Deployments are for those who watch their work in Prefect.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from flows.notifications.notify import Delivered, deliver
from flows.schedules.poller import Look, Poller, Problem, Settings
from flows.schedules.prefect_deployments import prefect_beside
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.values.canonical_json import Json


def look_once(home: ProjectHome, settings: Settings) -> Look:
    """Look once, and send what is to be told.

    Raises:
        RunInterrupted: Ctrl-C.
        And what opening the home raises.
    """
    return _look(Poller(home, settings))


def _look(poller: Poller) -> Look:
    done = poller.look(datetime.now(UTC))
    done.problems.extend(_problems(deliver(poller.home)))
    return done


def _problems(delivered: list[Delivered]) -> Iterator[Problem]:
    return (Problem(f"notices to {each.channel}", each.failed, each.detail) for each in delivered if each.failed)


def serve_until_stopped(
    home: ProjectHome,
    settings: Settings,
    every: int,
    *,
    with_prefect: bool,
    say: Callable[[dict[str, Json]], None],
) -> int:
    """Look every so many seconds until SIGINT or SIGTERM; a run that is under way then ends as with Ctrl-C.

    What goes wrong in one look is told and tried again in the next. Returns how many looks there were.
    """
    poller, looks = Poller(home, settings), 0
    open_workspace(home)  # a home that cannot be opened is no matter for another look
    with prefect_beside(home, settings, wanted=with_prefect), _stopping() as stopped:
        while not stopped.is_set():
            say(_told(poller))
            looks += 1
            stopped.wait(every)
    return looks


def _told(poller: Poller) -> dict[str, Json]:
    try:
        return _look(poller).to_json()
    except AlmonerError as problem:
        return Look(problems=[Problem("this look", problem.name, problem.message)]).to_json()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by a signal that asks to stop; one that comes while something runs interrupts it."""
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    except KeyboardInterrupt:
        stopped.set()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
