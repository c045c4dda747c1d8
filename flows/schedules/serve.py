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

from flows.schedules.poller import Poller, PollerSettings, PollProblem, PollResult
from flows.workspace.prefect_flow import names_prefect_server
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.values.canonical_json import Json


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
    say: Callable[[dict[str, Json]], None],
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


def _poll(poller: Poller) -> dict[str, Json]:
    try:
        return poller.poll(datetime.now(UTC)).to_json()
    except AlmonerError as problem:
        return PollResult(problems=[PollProblem("this look", problem.code, problem.message)]).to_json()


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
