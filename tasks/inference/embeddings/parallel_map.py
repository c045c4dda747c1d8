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
    _crew: WorkerPool | None = field(default=None, init=False, repr=False)

    def __call__(self, texts: Sequence[str], progress: Progress = lambda done, of: None) -> list[Item]:
        """One result for each text, in their order.

        Args:
            progress: called with the number of texts done and their total.

        Raises:
            WorkerDied: one ended without a word.
            WorkerDiffers: one has other code, libraries or weights.
            AlmonerError: whatever one was refused.
        """
        if not texts:
            return []
        crew, count = self._begun(), len(self.makes)
        left: list[list[int]] = [[] for _ in range(count)]
        for place, text in enumerate(texts):
            left[assign_worker(text, count)].append(place)
        found: dict[int, Item] = {}
        given = {worker: _give(crew, worker, left[worker], texts) for worker in range(count) if left[worker]}
        while given:
            worker, said = crew.receive()
            found.update(zip(given.pop(worker), _results(said), strict=True))
            if left[worker]:
                given[worker] = _give(crew, worker, left[worker], texts)
            progress(len(found), len(texts))
        return [found[place] for place in range(len(texts))]

    def begin(self) -> None:
        """Start the workers now: what one of them is refused on its machine is said before anything is paid."""
        self._begun()

    def _begun(self) -> WorkerPool:
        if self._crew is None:
            self._crew = self.runner.start([partial(_work, make) for make in self.makes])
            for kit in self._crew.receive_all():
                self.kit.require_same(kit)
        return self._crew


def spread_of(workers: WorkerSet, name: str, device: str, make: Callable[..., Tool]) -> ParallelMap[Any]:
    """Workers that have a tool of this name; `make` is told its place and whether that is on another machine."""
    elsewhere = workers.runner.elsewhere
    makes = [partial(make, place, elsewhere) for place in workers.places]
    return ParallelMap(workers.runner, makes, WorkerEnvironment.here((name,), device, elsewhere))


def assign_worker(text: str, count: int) -> int:
    """Which of `count` workers a text falls to; never kept."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % count


def _give(crew: WorkerPool, worker: int, left: list[int], texts: Sequence[str]) -> list[int]:
    """Hand the next piece over; the places that are in it."""
    given, left[:] = left[:PIECE], left[PIECE:]
    crew.reply(worker, [texts[place] for place in given])
    return given


def _results(said: Request | Result) -> Sequence[Any]:
    """Return the results that a worker sends with its request for more; a worker never ends by itself."""
    return said.what if isinstance(said, Request) else ()


def _work(make: Callable[[], Tool], line: Channel) -> None:
    """A worker's body: it ends when nobody answers any more."""
    kit, function = make()
    texts = line.request(kit)
    while True:
        texts = line.request(list(function(texts)))
