"""Workers as threads of this process: for machines where one process owns the GPU, and for small jobs."""

import threading
from concurrent.futures import Future
from queue import SimpleQueue

from tasks.common.task_errors import TaskFailed
from tasks.workers.mailbox import ThreadMailbox
from tasks.workers.pool import Body, LocalRunner, Message, NumberedMessage, WorkerHandle, packed, unpacked


class ThreadRunner(LocalRunner):
    """A thread for each worker. What is said is copied, as if it travelled: workers share nothing."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _Worker(number, body, messages)


class _Worker:
    def __init__(self, number: int, body: Body, heard: "SimpleQueue[NumberedMessage]") -> None:
        self._number, self._heard, self._ended = number, heard, threading.Event()
        self._desk = ThreadMailbox(unpacked(packed(body)))
        self._listen(self._desk.begin())

    def tell(self, what: object) -> None:
        """Hand it over."""
        self._listen(self._desk.answer(unpacked(packed(what))))

    def end(self) -> None:
        """A thread cannot be stopped: it ends when it asks next, and is waited for."""
        if not self._ended.is_set():
            self._ended.set()
            self._desk.leave()
            self._desk.join()

    def _listen(self, said: "Future[Message]") -> None:
        said.add_done_callback(lambda found: self._heard.put((self._number, _copied(found.result()))))


def _copied(said: Message) -> Message | TaskFailed:
    try:
        copied: Message = unpacked(packed(said))
    except Exception as problem:  # noqa: BLE001 - it may quote what it could not copy
        return TaskFailed.of("work", problem)
    return copied
