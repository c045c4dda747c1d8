"""Loop of `almoner serve`: repeated polls, and Prefect's runner beside them where there is a server.

Every schedule is a Prefect deployment whose runs only trigger a poll (`flows.schedules.prefect_trigger`). The loop
finds the same slots by itself, and new ones. Deployments make the runs visible in Prefect.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from flows.schedules.poll_result import PollProblem, PollResult
from flows.schedules.poller import Poller, PollerSettings
from flows.workspace.prefect_flow import names_prefect_server
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError
from models_db.home import ProjectHome


def poll_once(home: ProjectHome, settings: PollerSettings) -> PollResult:
    """Poll once.

    Raises:
        RunInterrupted: Ctrl-C was pressed.
        The errors of opening the home.
    """
    return Poller(home, settings).poll(datetime.now(UTC))


def serve_until_stopped(
    home: ProjectHome,
    settings: PollerSettings,
    every: int,
    *,
    with_prefect: bool,
    say: Callable[[PollResult], None],
) -> int:
    """Poll every `every` seconds until SIGINT or SIGTERM, which interrupts a run as Ctrl-C does.

    A failure of one poll is reported and retried in the next. Returns the number of polls.
    """
    poller, looks = Poller(home, settings), 0
    open_workspace(home)  # a home that cannot be opened is no matter for another look
    with _prefect_runner(home, settings, enabled=with_prefect), _stop_event() as stopped:
        while not stopped.is_set():
            say(_poll(poller))
            looks += 1
            stopped.wait(every)
    return looks


@contextmanager
def _prefect_runner(home: ProjectHome, settings: PollerSettings, *, enabled: bool) -> Iterator[None]:
    """Have Prefect's runner beside the block, if `enabled` and a server is configured; else Prefect is not imported."""
    if not enabled or not names_prefect_server():
        yield
        return
    from flows.schedules.prefect_deployments import start_prefect_runner

    with start_prefect_runner(home, settings):
        yield


def _poll(poller: Poller) -> PollResult:
    try:
        return poller.poll(datetime.now(UTC))
    except AlmonerError as problem:
        return PollResult([], [], [PollProblem("this look", problem.code, problem.message)])


@contextmanager
def _stop_event() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets; a signal during a run interrupts the run."""
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
