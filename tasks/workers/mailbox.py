"""Mailbox of a worker whose body runs in a thread: for backends that call it instead of running a process."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tasks.workers.pool import Body, Disconnected, Message, Request, run_body

_LEAVE = object()


class ThreadMailbox:
    """Begins a body, and takes turns with it: an answer goes in, and what it says next comes out."""

    def __init__(self, body: Body) -> None:
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._said: Future[Message] = Future()
        self._thread = threading.Thread(target=self._work, args=(body,), name="worker", daemon=True)

    def begin(self) -> "Future[Message]":
        """What it says first."""
        self._thread.start()
        return self._said

    def answer(self, what: object) -> "Future[Message]":
        """What it says next; only to one that has asked."""
        self._said = Future()
        said = self._said  # by the time of the next line the body may have spoken, and nobody else sets it
        self._answers.put(what)
        return said

    def leave(self) -> None:
        """The body ends when it asks next: no answer will come."""
        self._answers.put(_LEAVE)

    def join(self, timeout: float | None = None) -> None:
        """Until the body has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def request(self, what: object) -> Any:
        """A body's side, `pool.Channel`."""
        self._said.set_result(Request(what))
        answer = self._answers.get()
        if answer is _LEAVE:
            raise Disconnected
        return answer

    def _work(self, body: Body) -> None:
        with suppress(Disconnected):
            last = run_body(body, self)
            self._said.set_result(last)  # of its last turn, and not the one in which it began
