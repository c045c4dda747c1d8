"""Pool of a run's workers, and the protocol between both sides.

A worker runs one body. The body may send requests and waits for each answer; its last message is the body's result or a
named error. The run receives messages in the order in which they were sent. A worker without an answer therefore does
nothing more, and the run has the last say: that is all that the ledger's promises need (docs/decisions/0059).

A failure in a body is reported as a named error, or by its type and place (`TaskFailed`): no text travels with it.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.common.faults import TaskFailed


class Channel(Protocol):
    """Connection of a worker to its run."""

    def request(self, what: object) -> Any:
        """Send a request and return its answer.

        Raises:
            Disconnected: no answer will come any more.
        """


Body: TypeAlias = Callable[[Channel], object]
"""Work of a worker. It is serialized as it is: a function of a module with its arguments."""


@dataclass(frozen=True)
class Request:
    """Request of a worker to its run; the worker waits for the answer."""

    what: Any


@dataclass(frozen=True)
class Result:
    """Return value of a body."""

    result: object


@dataclass(frozen=True)
class Failure:
    """Named error that ended a body; it holds public facts only."""

    problem: AlmonerError


Message: TypeAlias = Request | Result | Failure


class Disconnected(BaseException):  # not an Exception: no handler of a body's own work should take it for a failure
    """The run does not answer this worker any more."""


def run_body(body: Body, line: Channel) -> Message:
    """Run a body and return its last message.

    Output and errors could quote a text, so nothing is printed and no error but `Disconnected` is raised.

    Raises:
        Disconnected: the run does not answer any more.
    """
    try:
        return Result(body(line))
    except Disconnected:
        raise
    except AlmonerError as problem:
        return Failure(problem)
    except BaseException as problem:  # noqa: BLE001 - it may quote private text
        return Failure(TaskFailed.of("work", problem))


class WorkerHandle(Protocol):
    """Handle of one worker, on the side of the run."""

    def send(self, what: object) -> None:
        """Answer the last request; a worker that has died is noticed at the next `receive`."""

    def end(self) -> None:
        """End the worker: after the return nothing more of it reaches the run. May be called twice."""


NumberedMessage: TypeAlias = tuple[int, Message | AlmonerError]
"""Number of a worker and its message; an error where no message will follow."""


@dataclass
class WorkerPool:
    """Workers at work; use as a context, which ends them.

    Attributes:
        members: by number.
        messages: messages that were not received yet.
    """

    members: Sequence[WorkerHandle] = ()
    messages: "SimpleQueue[NumberedMessage]" = field(default_factory=SimpleQueue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all workers."""
        for member in self.members:
            member.end()

    def receive(self) -> tuple[int, Request | Result]:
        """Return the number of a worker and its next message, from whichever worker sends first.

        Raises:
            WorkerDied: a worker ended without a last message.
            AlmonerError: the error that ended a worker.
        """
        number, message = self.receive_or_loss()
        if isinstance(message, WorkerDied):
            raise message
        return number, message

    def receive_or_loss(self) -> "tuple[int, Request | Result | WorkerDied]":
        """Return as `receive`, but return the loss of a worker: for work that another worker may do again.

        Raises:
            AlmonerError: any other error that ended a worker.
        """
        number, message = self.messages.get()
        match message:
            case Request() | Result() | WorkerDied():
                return number, message
            case Failure(problem):
                raise problem
            case problem:
                raise problem

    def receive_all(self) -> list[Any]:
        """Return the first request of every worker, by number, and answer none of them.

        Raises:
            As `receive`.
        """
        first: dict[int, object] = {}
        while len(first) < len(self.members):
            number, message = self.receive()
            first[number] = message.what if isinstance(message, Request) else None
        return [first[number] for number in range(len(self.members))]

    def reply(self, number: int, what: object) -> None:
        """Answer the last request of a worker."""
        self.members[number].send(what)

    def serve(self, answer: Callable[[int, Any], object]) -> list[Any]:
        """Answer all workers until they have ended and return their results, by number.

        Raises:
            As `receive`, and whatever `answer` raises; after that no worker is answered any more.
        """
        results: dict[int, object] = {}
        while len(results) < len(self.members):
            number, message = self.receive()
            match message:
                case Request(what):
                    self.reply(number, answer(number, what))
                case Result(result):
                    results[number] = result
        return [results[number] for number in range(len(self.members))]


class Runner(Protocol):
    """Starts workers on some backend; closed at the end of a run, with all that it has started."""

    @property
    def elsewhere(self) -> bool:
        """True if workers may be on other machines, whose devices and memory this process does not know."""

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """Start one worker for each body.

        Raises:
            EnvironmentProblem: the workers cannot be started.
        """

    def close(self) -> None:
        """End all workers and everything started for them."""


class LocalRunner(ABC):
    """Starts workers on this machine."""

    elsewhere = False

    def __init__(self) -> None:
        self._pools: list[WorkerPool] = []

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """Start one worker for each body."""
        messages: SimpleQueue[NumberedMessage] = SimpleQueue()
        pool = WorkerPool([self._start_worker(number, body, messages) for number, body in enumerate(bodies)], messages)
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """End all workers of all pools."""
        for pool in self._pools:
            pool.end()

    @abstractmethod
    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        """Start worker `number` on its body; its messages go into `messages`."""


def serialize(what: object) -> bytes:
    """Serialize a message between processes, which trust each other: both are of one run (docs/decisions/0059)."""
    return pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)


def deserialize(data: bytes) -> Any:
    """Deserialize a message of a peer; never use it for data from a disk."""
    return pickle.loads(data)  # noqa: S301 - a message of this run's own peer


class WorkerDied(EnvironmentProblem):
    """Worker that ended without a last message."""

    def __init__(self, how: str, code: int | None = None) -> None:
        super().__init__(
            f"A worker died ({how}). The draws until then are kept.",
            "Go on with `almoner run`, and fewer --workers if memory was short: a killed one often means that.",
            {"how": how, "exit_code": code},
        )
