"""Pool of a run's workers, and the protocol between both sides.

A worker does one thing, its body. It may ask, and waits for each answer; its last word is what the body returns, or a
named error. The run hears the workers in the order in which they speak. So a worker that nobody answers does nothing
more, and whoever is asked has the last say: that is all that the ledger's promises need (docs/decisions/0026, 0059).

What goes wrong in a body is told as a named error, or by its type and place (`TaskFailed`): no text travels with it.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.common.task_errors import TaskFailed


class Channel(Protocol):
    """A worker's way to the run."""

    def request(self, what: object) -> Any:
        """Say something and return the answer.

        Raises:
            Disconnected: nobody will answer any more.
        """


Body: TypeAlias = Callable[[Channel], object]
"""What a worker does. It travels as it stands: a function of a module with its arguments."""


@dataclass(frozen=True)
class Request:
    """What a worker wants to know or to tell; it waits for the answer."""

    what: Any


@dataclass(frozen=True)
class Result:
    """What a body has returned."""

    result: object


@dataclass(frozen=True)
class Failure:
    """Why a body has returned nothing; a name, and public facts."""

    problem: AlmonerError


Message: TypeAlias = Request | Result | Failure


class Disconnected(BaseException):  # not an Exception: no handler of a body's own work should take it for a failure
    """Nobody listens to this worker any more."""


def run_body(body: Body, line: Channel) -> Message:
    """A worker's whole life. Nothing it prints or raises may quote a text, so it does neither.

    Raises:
        Disconnected: nobody wants to know how it ended.
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
    """One worker, seen from the run."""

    def tell(self, what: object) -> None:
        """Answer what it asked last; who has died is noticed when it is listened to."""

    def end(self) -> None:
        """It does nothing more when this returns, or nothing that anybody hears of. May be called twice."""


NumberedMessage: TypeAlias = tuple[int, Message | AlmonerError]
"""Which worker, and what it says; an error where it will never say anything again."""


@dataclass
class WorkerPool:
    """Workers at work; use as a context, which ends them.

    Attributes:
        members: by number.
        heard: what they have said and nobody has listened to.
    """

    members: Sequence[WorkerHandle] = ()
    heard: "SimpleQueue[NumberedMessage]" = field(default_factory=SimpleQueue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all of them."""
        for member in self.members:
            member.end()

    def receive(self) -> tuple[int, Request | Result]:
        """The next that one of them says, and its number.

        Raises:
            WorkerDied: one ended without a word.
            AlmonerError: what one of them was refused.
        """
        number, said = self.heard.get()
        match said:
            case Request() | Result():
                return number, said
            case Failure(problem):
                raise problem
            case problem:
                raise problem

    def receive_all(self) -> list[Any]:
        """The first that each of them asks, by number; nobody is answered yet.

        Raises:
            As `receive`.
        """
        first: dict[int, object] = {}
        while len(first) < len(self.members):
            number, said = self.receive()
            first[number] = said.what if isinstance(said, Request) else None
        return [first[number] for number in range(len(self.members))]

    def reply(self, number: int, what: object) -> None:
        """Answer one of them."""
        self.members[number].tell(what)

    def serve(self, answer: Callable[[int, Any], object]) -> list[Any]:
        """Answer each of them until all have ended; what they returned, by number.

        Raises:
            As `receive`, and whatever `answer` raises: then no one is answered any more.
        """
        results: dict[int, object] = {}
        while len(results) < len(self.members):
            number, said = self.receive()
            match said:
                case Request(what):
                    self.reply(number, answer(number, what))
                case Result(result):
                    results[number] = result
        return [results[number] for number in range(len(self.members))]


class Runner(Protocol):
    """Starts workers somewhere; closed at the end of a run, with all that it has started."""

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, of which this process knows neither devices nor memory."""

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """A worker for each body.

        Raises:
            EnvironmentProblem: they cannot be had.
        """

    def close(self) -> None:
        """End everything."""


class LocalRunner(ABC):
    """Starts workers on this machine."""

    elsewhere = False

    def __init__(self) -> None:
        self._pools: list[WorkerPool] = []

    def start(self, bodies: Sequence[Body]) -> WorkerPool:
        """A worker for each body."""
        messages: SimpleQueue[NumberedMessage] = SimpleQueue()
        pool = WorkerPool([self._start_worker(number, body, messages) for number, body in enumerate(bodies)], messages)
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """End them all."""
        for pool in self._pools:
            pool.end()

    @abstractmethod
    def _start_worker(self, number: int, body: Body, messages: "SimpleQueue[NumberedMessage]") -> WorkerHandle:
        """Worker `number`, at work on its body; what it says goes into `messages`."""


def packed(what: object) -> bytes:
    """What travels between processes. They trust each other: both are of one run (docs/decisions/0059)."""
    return pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """The other way; never for anything that has lain on a disk."""
    return pickle.loads(data)  # noqa: S301 - a message of this run's own peer


class WorkerDied(EnvironmentProblem):
    """A worker ended without saying why."""

    def __init__(self, how: str, code: int | None = None) -> None:
        super().__init__(
            f"A worker died ({how}). What was drawn until then is kept.",
            "Go on with `almoner run`, and fewer --workers if memory was short: a killed one often means that.",
            {"how": how, "exit_code": code},
        )
