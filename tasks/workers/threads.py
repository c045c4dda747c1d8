"""Worker threads of this process, for machines where one process owns the GPU, and for small jobs."""

import threading
from concurrent.futures import Future
from queue import SimpleQueue

from tasks.common.faults import TaskFailed
from tasks.workers.mailbox import ThreadMailbox
from tasks.workers.pool import Body, LocalRunner, Message, NumberedMessage, WorkerHandle, deserialize, serialize


class ThreadRunner(LocalRunner):
    """Runner with one thread for each worker. Messages are copied as between processes: workers share nothing."""

    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        return _Worker(number, body, messages)


class _Worker:
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
