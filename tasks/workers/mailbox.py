"""Mailbox of a worker whose body runs in a thread: for backends that call it instead of running a process."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tasks.workers.pool import Body, Disconnected, Message, Request, run_body

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
