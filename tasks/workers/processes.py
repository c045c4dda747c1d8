"""Workers of this machine: processes, each connected by a pipe, and threads behind a mailbox."""

import signal
import threading
from concurrent.futures import Future
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
    Message,
    NumberedMessage,
    Request,
    WorkerDied,
    WorkerHandle,
    deserialize,
    run_body,
    serialize,
)

_LEAVE = object()


class ThreadMailbox:
    """Runs a body in a thread and alternates with it: each answer is followed by the body's next message."""

    def __init__(self, body: Body) -> None:
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._pending: Future[Message] = Future()
        self._thread = threading.Thread(target=self._work, args=(body,), name="worker", daemon=True)

    def begin(self) -> "Future[Message]":
        """Start the body and return the future of its first message."""
        self._thread.start()
        return self._pending

    def answer(self, what: object) -> "Future[Message]":
        """Answer the body's request and return the future of its next message.

        Call it only when the last message was a request.
        """
        self._pending = Future()
        pending = self._pending  # the body may answer before the next line ends, and nothing else sets the attribute
        self._answers.put(what)
        return pending

    def leave(self) -> None:
        """Let the body end at its next request, which gets no answer."""
        self._answers.put(_LEAVE)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the body has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def request(self, what: object) -> Any:
        """Send a request from the body and return its answer (`pool.Channel`)."""
        self._pending.set_result(Request(what))
        answer = self._answers.get()
        if answer is _LEAVE:
            raise Disconnected
        return answer

    def _work(self, body: Body) -> None:
        with suppress(Disconnected):
            last = run_body(body, self)
            self._pending.set_result(last)  # of its last turn, and not the one in which it began


class ThreadRunner(LocalRunner):
    """Runner with one thread for each worker. Messages are copied as between processes: workers share nothing."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _WorkerThread(number, body, messages)


class _WorkerThread:
    def __init__(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> None:
        self._number, self._messages, self._ended = number, messages, threading.Event()
        self._mailbox = ThreadMailbox(deserialize(serialize(body)))
        self._listen(self._mailbox.begin())

    def send(self, what: object) -> None:
        """Send an answer to the thread."""
        self._listen(self._mailbox.answer(deserialize(serialize(what))))

    def end(self) -> None:
        """Wait for the end of the thread, which comes at its next request: a thread cannot be stopped."""
        if not self._ended.is_set():
            self._ended.set()
            self._mailbox.leave()
            self._mailbox.join()

    def _listen(self, pending: "Future[Message]") -> None:
        pending.add_done_callback(lambda done: self._messages.put((self._number, _copied(done.result()))))


def _copied(pending: Message) -> Message | TaskFailed:
    try:
        copied: Message = deserialize(serialize(pending))
    except Exception as problem:  # noqa: BLE001 - it may quote what it could not copy
        return TaskFailed.of("work", problem)
    return copied


# Not fork: neither torch's threads nor CUDA survive it.
_PROCESSES = get_context("spawn")
_HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)


class ProcessRunner(LocalRunner):
    """Runner with one newly spawned process for each worker."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _WorkerProcess(number, body, messages)


class _WorkerProcess:
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
