"""A process that has imported everything once, and forks runs that are killed, whose workers write down each draw.

It has no threads, so a fork of it is whole. Its children die with it.
"""

import faulthandler
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.workers import processes
from tasks.workers.pool import Body
from tests.support import PATIENCE


class Nursery:
    """Use as a context; starting it takes the time of all imports."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._line, its = context.Pipe()
        self._process = context.Process(target=_serve, args=(its,))
        self._process.start()
        its.close()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.join()

    def start(self, function: Callable[..., None], *arguments: Any) -> int:
        """A child that does this; its process id."""
        self._line.send((function, arguments))
        return int(self._line.recv())

    def ended(self, child: int) -> int | None:
        """How a child has ended: exit status, or minus the signal; None while it lives."""
        self._line.send((None, child))
        status = self._line.recv()
        return None if status is None else int(status)

    def wait(self, child: int, seconds: float = PATIENCE) -> int:
        """Until it has ended."""
        patience = time.monotonic() + seconds
        while (status := self.ended(child)) is None:
            assert time.monotonic() < patience, "a process does not end"
            time.sleep(0.02)
        return status

    def kill(self, child: int) -> None:
        """kill -9; it is gone when this returns."""
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        self.wait(child)


def _serve(line: Connection) -> None:
    import flows.releases.execute  # noqa: F401
    from tasks.common.extensions import code_digest

    code_digest()  # each child would read all of the code again
    known: dict[int, int | None] = {}
    with suppress(EOFError):
        while True:
            function, what = line.recv()
            if function is not None:
                child = _forked(line, function, what)
                known[child] = None
                line.send(child)
                continue
            if known[what] is None and (found := os.waitpid(what, os.WNOHANG))[0]:
                known[what] = os.waitstatus_to_exitcode(found[1])
            line.send(known[what])
    for child in (child for child, status in known.items() if status is None):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _forked(line: Connection, function: Callable[..., None], arguments: tuple[Any, ...]) -> int:
    if child := os.fork():
        return child
    code = 99
    try:
        line.close()
        function(*arguments)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


# --- What children do ------------------------------------------------------------------------------------------


def witnessed(witness: Path, line: Connection, body: Body) -> None:
    """A worker of this machine that writes down every draw that it makes."""
    import torch

    torch.set_num_threads(1)
    _watch(witness)
    processes._work(line, body)


def _watch(witness: Path) -> None:
    """One line for each step, written when it is paid and before it is made: its request, texts and draw numbers."""
    from tasks.decoding.sampling_rule import InvisibleInkRule

    real, file = InvisibleInkRule.next_tokens, os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def watched(rule: InvisibleInkRule, step: Any) -> list[int]:
        rule.meter.admit(max(step.positions))
        pairs = zip(step.numbers, step.positions, strict=True)
        draws = " ".join(f"{number}:{position + rule.meter.lost}" for number, position in pairs)
        os.write(file, f"{rule.top_k} {draws}\n".encode())
        return real(rule, step)

    InvisibleInkRule.next_tokens = watched  # type: ignore[method-assign]


def command(environment: dict[str, str], line: str, said: Path, witness: Path) -> None:
    """One command of almoner with the tiny model; what it says and its workers' draws go into files."""
    import pytest
    import torch

    from cli.app import app
    from tests import tiny_model

    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    tiny_model.install(patch)
    patch.setattr(processes, "_work", partial(witnessed, witness))
    with said.open("a", buffering=1) as file:
        faulthandler.dump_traceback_later(150, file=file)
        sys.stdout = sys.stderr = file
        app(shlex.split(line))
