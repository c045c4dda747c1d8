"""A poller of a soak: a process of its own that looks several times, and to which something may happen meanwhile.

It runs in a child of multiprocessing's fork server, which has imported this module (and with it torch) once. What it
finds, and every draw before it is made, goes into a pipe: what is written there outlives a kill and a full disk.
"""

import errno
import importlib
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas  # noqa: F401
import prefect.server.schemas.schedules  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest
import torch

import cli.app  # noqa: F401  (what a look needs is imported in the fork server, once)
import flows.releases.attempt
import flows.releases.execute
from flows.schedules.slots import run_due
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.sessions import database
from tasks.accounting import dp_accounting_check  # noqa: F401
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.structured_output import grammar_constraint  # noqa: F401
from tasks.mechanisms.tokens import utility_scores
from tests import tiny_model
from tests.soak.faults import PLACES, Fault

ROOMS = ("cli.", "flows.", "models_db.", "tasks.")
BUSY_MILLISECONDS = 300
"""How long a writer of SQLite waits here: a lock that is held for longer is a fault of the plan."""


@dataclass(frozen=True)
class Work:
    """What a poller is to do.

    Attributes:
        environment: all of it, since the fork server knows that of an earlier one.
        times: when it looks, by the clock of the schedules.
        skew: how far the clock of its machine is off.
        told: the file that takes what it says.
    """

    environment: Mapping[str, str]
    times: tuple[datetime, ...]
    skew: timedelta
    told: Path
    fault: Fault | None = None


@dataclass
class _Pipe:
    """What the driver is told: looks, draws, and how it ended."""

    end: Connection
    lock: Any = field(default_factory=threading.Lock)

    def tell(self, what: str, said: Any) -> None:
        with self.lock:
            self.end.send((what, said))


def poll(work: Work, end: Connection) -> None:
    """Look at each of the times, whatever happens; anything but an error that has a name is a crash, and is told."""
    os.environ.clear()
    os.environ.update(work.environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(work.told)
    torch.set_num_threads(1)
    pipe = _Pipe(end)
    try:
        with pytest.MonkeyPatch.context() as patch:
            _prepare(patch, work, pipe)
            _looks(work, pipe)
    except KeyboardInterrupt:
        pipe.tell("stopped", None)
    except BaseException:
        pipe.tell("crash", traceback.format_exc())
        raise
    pipe.tell("done", None)


def _looks(work: Work, pipe: _Pipe) -> None:
    """As `almoner schedule run` does it, on a clock of the soak's own."""
    for at in work.times:
        try:
            pipe.tell("look", asdict(run_due(open_workspace(ProjectHome.locate()), at)))
        except AlmonerError as problem:
            pipe.tell("look", {"problems": [{"what": "look", "error": problem.code, "message": problem.message}]})


def _redirect(told: Path) -> None:
    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout = sys.stderr = open(file, "w", buffering=1)  # noqa: SIM115 (until the process ends)


def _prepare(patch: pytest.MonkeyPatch, work: Work, pipe: _Pipe) -> None:
    tiny_model.install(patch)
    patch.setattr(database, "_PRAGMAS", (f"busy_timeout={BUSY_MILLISECONDS}", *database._PRAGMAS[1:]))
    clock = Clock(work.skew)
    _set_clock(patch, clock)
    _watch_draws(patch, pipe)
    if work.fault is not None and work.fault.place:
        _plant(patch, work.fault, clock)


# --- the clock -------------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """How far the time is off that everybody is told."""

    skew: timedelta


@contextmanager
def clock(skew: timedelta) -> Iterator[None]:
    """Inside, whatever asks for the time is told another."""
    with pytest.MonkeyPatch.context() as patch:
        _set_clock(patch, Clock(skew))
        yield


def _set_clock(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    class Skewed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz or UTC) + clock.skew

    for name, module in list(sys.modules.items()):
        if name.startswith(ROOMS) and getattr(module, "datetime", None) is datetime:
            patch.setattr(module, "datetime", Skewed)


# --- the draws -------------------------------------------------------------------------------------------------


def _watch_draws(patch: pytest.MonkeyPatch, pipe: _Pipe) -> None:
    """Tell of each draw before it is made: of which request, text and number, on which split into batches."""
    begin, next_tokens, draw = (
        flows.releases.attempt.start_attempt,
        InvisibleInkRule.next_tokens,
        utility_scores.draw_tokens,
    )
    now: dict[str, Any] = {}

    def begun(*args: Any, **kwargs: Any) -> Any:
        run = begin(*args, **kwargs)
        now.update(request=run.request_id, attempt=run.attempt.number, first=int(run.split.name.split("/")[1]))
        return run

    def stepping(rule: Any, step: Any) -> Any:
        lost = rule.meter.lost
        now["draws"] = [(text, at + lost) for text, at in zip(step.numbers, step.positions, strict=True)]
        tokens = next_tokens(rule, step)
        now["draws"] = []  # what finishes the last sentence is drawn from the public model alone, and costs nothing
        return tokens

    def drawing(*args: Any, **kwargs: Any) -> Any:
        pipe.tell("drawn", dict(now))
        return draw(*args, **kwargs)

    patch.setattr(flows.releases.execute, "start_attempt", begun)
    patch.setattr(InvisibleInkRule, "next_tokens", stepping)
    patch.setattr(utility_scores, "draw_tokens", drawing)


# --- what happens at a place -----------------------------------------------------------------------------------


def _plant(patch: pytest.MonkeyPatch, fault: Fault, clock: Clock) -> None:
    act = {
        "kill": _die,
        "interrupt": _interrupt,
        "disk full": _full(fault),
        "disk errors": _failing(patch, fault),
        "clock jumps": _jumping(clock, fault),
    }
    module, name, _ = PLACES[fault.place]
    *owner, last = name.split(".")
    room = importlib.import_module(module)
    at = getattr(room, owner[0]) if owner else room
    real, calls = getattr(at, last), 0

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        now = calls == fault.number
        if now and fault.before:
            act[fault.kind]()
        result = real(*args, **kwargs)
        if now and not fault.before:
            act[fault.kind]()
        return result

    patch.setattr(at, last, watched)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _full(fault: Fault) -> Callable[[], None]:
    """No file can grow beyond some bytes until there is room again; what is larger can still be written inside."""

    def fill() -> None:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.amount, most))
        room = threading.Timer(fault.lasts, resource.setrlimit, (resource.RLIMIT_FSIZE, (most, most)))
        room.daemon = True
        room.start()

    return fill


def _failing(patch: pytest.MonkeyPatch, fault: Fault) -> Callable[[], None]:
    """The disk does not keep what it has taken: so many calls of fsync say that there is no room."""
    real, left = os.fsync, fault.amount

    def fsync(file: Any) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    return lambda: patch.setattr(os, "fsync", fsync)


def _jumping(clock: Clock, fault: Fault) -> Callable[[], None]:
    """The clock of the machine is set while a poller works."""

    def jump() -> None:
        clock.skew += timedelta(hours=fault.amount)

    return jump
