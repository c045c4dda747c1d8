"""Worker processes of this machine, each connected by a pipe."""

import signal
import threading
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

from tasks.common.faults import TaskFailed
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
    """Runner with one newly spawned process for each worker."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _Worker(number, body, messages)


class _Worker:
    """Handle of one process, with a thread that receives its messages."""

    def __init__(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> None:
        self._pipe, worker_end = _PROCESSES.Pipe()
        self._process: SpawnProcess = _PROCESSES.Process(target=_work, args=(worker_end, body), daemon=True)
        self._process.start()
        worker_end.close()
        self._number, self._messages = number, messages
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        """Forward messages until the last one or the death of the process."""
        try:
            while isinstance(message := self._pipe.recv(), Request):
                self._messages.put((self._number, message))
        except _HUNG_UP:
            self._process.join()
            message = WorkerDied(_exit_description(self._process.exitcode), self._process.exitcode)
        except Exception as problem:  # noqa: BLE001 - what cannot be read may be quoted in it
            message = TaskFailed.of("listen", problem)
        self._messages.put((self._number, message))

    def send(self, what: object) -> None:
        """Send an answer to the process."""
        with suppress(*_HUNG_UP):
            self._pipe.send(what)

    def end(self) -> None:
        """Terminate the process and wait until it is gone."""
        self._process.terminate()
        self._process.join()
        self._thread.join()
        self._pipe.close()


class _PipeLine:
    """Worker's end of its pipe (`pool.Channel`)."""

    def __init__(self, line: Connection) -> None:
        self._pipe = line

    def request(self, what: object) -> Any:
        """Send a request and wait for its answer."""
        try:
            self._pipe.send(Request(what))
            return self._pipe.recv()
        except _HUNG_UP:
            raise Disconnected from None


def _work(line: Connection, body: Body) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the run decides
    with suppress(Disconnected, *_HUNG_UP):
        line.send(run_body(body, _PipeLine(line)))


def _exit_description(code: int | None) -> str:
    return f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
