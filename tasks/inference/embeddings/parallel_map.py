"""Texts worked on by several workers, each text by the one that it falls to.

What is worked out of a text is a function of that text alone, bit for bit (PRIVACY §4.2 point 1, §3). Machines round
differently, so which worker has a text must not depend on the other texts, on their order, or on who is faster: it is a
fixed function of the text itself. Results come back in the order of the texts, whenever they were ready.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tasks.common.progress import Progress
from tasks.inference.embeddings.worker_environment import WorkerEnvironment, WorkerSpec
from tasks.inference.network.language_model import LanguageModel
from tasks.workers.pool import Channel, Request, Result, Runner, WorkerPool

Item = TypeVar("Item")

Tool: TypeAlias = tuple[WorkerEnvironment, Callable[[Sequence[str]], Sequence[Any]]]
"""What a worker computes with, and what it makes of texts: one result for each, whatever the others are."""

PIECE = 256
"""Texts that a worker is given at once."""


class WorkerSet(Protocol):
    """Workers that tools are made on: where they are, and who starts them."""

    @property
    def load(self) -> Callable[[str], LanguageModel]:
        """Loads the model on a device, in the worker."""

    @property
    def places(self) -> tuple[WorkerSpec, ...]:
        """One for each worker."""

    @property
    def runner(self) -> Runner:
        """Starts them."""


@dataclass
class ParallelMap(Generic[Item]):
    """Workers that are started with the first text, or by `begin`, and wait for more; they end with their runner.

    Attributes:
        makes: for each worker what makes its tool, there.
        kit: what each of them must have.
    """

    runner: Runner
    makes: Sequence[Callable[[], Tool]]
    kit: WorkerEnvironment
    _pool: WorkerPool | None = field(default=None, init=False, repr=False)

    def __call__(self, texts: Sequence[str], progress: Progress = lambda done, of: None) -> list[Item]:
        """One result for each text, in their order.

        Args:
            progress: called with the number of texts done and their total.

        Raises:
            WorkerDied: a worker ended without a message.
            WorkerDiffers: a worker has other code, libraries or weights.
            AlmonerError: as a worker was refused.
        """
        if not texts:
            return []
        pool, count = self._started_pool(), len(self.makes)
        remaining: list[list[int]] = [[] for _ in range(count)]
        for place, text in enumerate(texts):
            remaining[assign_worker(text, count)].append(place)
        results: dict[int, Item] = {}
        batches = {
            worker: _give(pool, worker, remaining[worker], texts) for worker in range(count) if remaining[worker]
        }
        while batches:
            worker, message = pool.receive()
            results.update(zip(batches.pop(worker), _results(message), strict=True))
            if remaining[worker]:
                batches[worker] = _give(pool, worker, remaining[worker], texts)
            progress(len(results), len(texts))
        return [results[place] for place in range(len(texts))]

    def begin(self) -> None:
        """Start the workers now, so that a refusal on one of their machines comes before anything is paid."""
        self._started_pool()

    def _started_pool(self) -> WorkerPool:
        if self._pool is None:
            self._pool = self.runner.start([partial(_work, make) for make in self.makes])
            for kit in self._pool.receive_all():
                self.kit.require_same(kit)
        return self._pool


def spread_of(workers: WorkerSet, name: str, device: str, make: Callable[..., Tool]) -> ParallelMap[Any]:
    """Return a map over workers with a tool of this name; `make` takes its place and whether it is another machine."""
    elsewhere = workers.runner.elsewhere
    makes = [partial(make, place, elsewhere) for place in workers.places]
    return ParallelMap(workers.runner, makes, WorkerEnvironment.here((name,), device, elsewhere))


def assign_worker(text: str, count: int) -> int:
    """Return the worker, of `count`, that maps a text; never stored."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % count


def _give(pool: WorkerPool, worker: int, left: list[int], texts: Sequence[str]) -> list[int]:
    """Send the next piece of texts to a worker; return their places."""
    batch, left[:] = left[:PIECE], left[PIECE:]
    pool.reply(worker, [texts[place] for place in batch])
    return batch


def _results(message: Request | Result) -> Sequence[Any]:
    """Return the results that a worker sends with its request for more; a worker never ends by itself."""
    return message.what if isinstance(message, Request) else ()


def _work(make: Callable[[], Tool], line: Channel) -> None:
    """Serve as a worker until nobody answers any more."""
    kit, function = make()
    texts = line.request(kit)
    while True:
        texts = line.request(list(function(texts)))
