"""Workers as processes of this machine, each at the end of a pipe."""

import signal
import threading
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

from tasks.common.task_errors import TaskFailed
from tasks.workers.pool import (
    Body,
    Disconnected,
    LocalRunner,
    NumberedMessage,
    Request,
    WorkerDied,
    WorkerHandle,
    run_body,
)

# Not fork: neither torch's threads nor CUDA survive it.
_PROCESSES = get_context("spawn")
_HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)


class ProcessRunner(LocalRunner):
    """A process for each worker, started afresh."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _Worker(number, body, messages)


class _Worker:
    """One process, and a thread that listens to it."""

    def __init__(self, number: int, body: Body, heard: "SimpleQueue[NumberedMessage]") -> None:
        self._line, its = _PROCESSES.Pipe()
        self._process: SpawnProcess = _PROCESSES.Process(target=_work, args=(its, body), daemon=True)
        self._process.start()
        its.close()
        self._number, self._heard = number, heard
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Until it has said its last word, or died."""
        try:
            while isinstance(message := self._line.recv(), Request):
                self._heard.put((self._number, message))
        except _HUNG_UP:
            self._process.join()
            message = WorkerDied(_how(self._process.exitcode), self._process.exitcode)
        except Exception as problem:  # noqa: BLE001 - what cannot be read may be quoted in it
            message = TaskFailed.of("listen", problem)
        self._heard.put((self._number, message))

    def tell(self, what: object) -> None:
        """Send it."""
        with suppress(*_HUNG_UP):
            self._line.send(what)

    def end(self) -> None:
        """The process is gone when this returns."""
        self._process.terminate()
        self._process.join()
        self._thread.join()
        self._line.close()


class _PipeLine:
    """A worker's side of its pipe, `pool.Channel`."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def request(self, what: object) -> Any:
        """Send and wait."""
        try:
            self._line.send(Request(what))
            return self._line.recv()
        except _HUNG_UP:
            raise Disconnected from None


def _work(line: Connection, body: Body) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the run decides
    with suppress(Disconnected, *_HUNG_UP):
        line.send(run_body(body, _PipeLine(line)))


def _how(code: int | None) -> str:
    return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
