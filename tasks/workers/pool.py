"""Pool of a run's workers, the protocol between both sides, and a map over shards by them.

Pool of a run's workers, and the protocol between both sides. A worker runs one body. The body may send requests and
waits for each answer; its last message is the body's result or a named error. The run receives messages in the order in
which they were sent. A worker without an answer therefore does nothing more, and the run has the last say: that is all
that the ledger's promises need (docs/decisions/0059).

A failure in a body is reported as a named error, or by its type and place (`TaskFailed`): no text travels with it.

Map over shards by workers: each item by the worker that its shard belongs to, and again if that worker is lost. Only
for functions of the item alone, which may be computed twice: a draw is none (docs/decisions/0059, 0110). The worker of
an item follows from its shard, from the public numbers of shards and workers, and from the lost workers; never from
other items, or from the workers' speed. Machines round differently, so an item must not be moved to another one by its
neighbours (PRIVACY §4.2).
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.common.faults import TaskFailed
from tasks.common.progress import tell


def cluster_unreachable(kind: str, reason: str) -> EnvironmentProblem:
    """Return the error of a cluster address at which nothing answers, or nothing with the right keys."""
    return EnvironmentProblem(
        f"The {kind} cluster cannot be used: {reason}.",
        "Check the address, whether the cluster runs, and the TLS settings of this machine (docs/distributed.md).",
        {"runner": kind, "reason": reason},
        code="ClusterUnreachable",
    )


def no_workers(kind: str) -> EnvironmentProblem:
    """Return the error of a cluster without workers."""
    return EnvironmentProblem(
        f"The {kind} cluster has no worker.",
        "Start some, and run the request again.",
        {"runner": kind},
        code="NoWorkers",
    )


def no_gpus(kind: str, workers: int, gpus: int = 1) -> EnvironmentProblem:
    """Return the error of a cluster with fewer free GPUs than workers need, each of them `gpus` on one machine."""
    each = "one for each worker" if gpus == 1 else f"{gpus} on one machine for each worker"
    return EnvironmentProblem(
        f"The {kind} cluster has fewer than {workers * gpus} free GPUs, {each}.",
        "Ask for fewer --workers, or start nodes with more GPUs, and run the request again.",
        {"runner": kind, "workers": workers, "gpus": gpus},
        code="NoGpus",
    )


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


Send = Callable[[Sequence[int]], object]
"""The message that hands out some items, by their places; made when they are sent."""


@dataclass(frozen=True)
class TextShards:
    """Division of texts into shards.

    Attributes:
        count: the fixed public number of shards.
        of: the shard of a text; a keyed hash of it.
    """

    count: int
    of: Callable[[str], int]


@dataclass
class ShardMap:
    """Workers that serve items until their pool ends: each asks for a message, and its next request is the answer.

    Attributes:
        pool: every worker of it has made its first request.
        shards: the public number of shards.
    """

    pool: WorkerPool
    shards: int
    _owners: list[int] = field(init=False, repr=False)
    _lost: set[int] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self._owners = owners(self.shards, len(self.pool.members))

    def map(self, shard_of: Sequence[int], most: int, message: Send) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield places of items and the answer to them, until every item has one; in no meaningful order.

        A worker has at most one message at a time. Items of a worker that is lost before it answers go to the others.

        Args:
            shard_of: the shard of each item.
            most: items of one message.
            message: makes it.

        Raises:
            ValueError: an item's shard is none of them.
            WorkerDied: no worker is left.
            AlmonerError: as a worker was refused.
        """
        if not all(0 <= shard < self.shards for shard in shard_of):
            raise ValueError(f"an item belongs to none of {self.shards} shards")
        waiting = _Waiting(shard_of)
        sent: dict[int, list[int]] = {}
        while True:
            for worker in self._living():
                if worker not in sent and (items := waiting.take(self._shards_of(worker), most)):
                    sent[worker] = items
                    self.pool.reply(worker, message(items))
            if not sent:
                return
            worker, answer = self.pool.receive_or_loss()
            items = sent.pop(worker, [])
            if isinstance(answer, WorkerDied):
                self._lose(worker, answer)
                waiting.put_back(items)
            else:
                yield items, answer.what if isinstance(answer, Request) else None

    def _living(self) -> list[int]:
        return [worker for worker in range(len(self.pool.members)) if worker not in self._lost]

    def _shards_of(self, worker: int) -> list[int]:
        return [shard for shard, owner in enumerate(self._owners) if owner == worker]

    def _lose(self, worker: int, death: WorkerDied) -> None:
        """Give the shards of a lost worker to the others in turn.

        Raises:
            WorkerDied: there are no others.
        """
        self._lost.add(worker)
        living = self._living()
        if not living:
            raise death
        tell(f"A worker died ({death.facts['how']}); the others do its part.")
        for place, shard in enumerate(self._shards_of(worker)):
            self._owners[shard] = living[place % len(living)]


def owners(shards: int, workers: int) -> list[int]:
    """Return the worker of each shard, before any is lost: shard s belongs to worker s mod N."""
    return [shard % workers for shard in range(shards)]


class _Waiting:
    """Items that no worker has received, by shard."""

    def __init__(self, shard_of: Sequence[int]) -> None:
        self._shard_of = shard_of
        self._items: dict[int, list[int]] = {}
        self.put_back(range(len(shard_of) - 1, -1, -1))

    def put_back(self, items: Sequence[int]) -> None:
        for item in items:
            self._items.setdefault(self._shard_of[item], []).append(item)

    def take(self, shards: Sequence[int], most: int) -> list[int]:
        """Take at most so many items of some shards."""
        taken: list[int] = []
        for shard in shards:
            items = self._items.get(shard, [])
            while items and len(taken) < most:
                taken.append(items.pop())
        return taken
