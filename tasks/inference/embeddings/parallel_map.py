"""Texts mapped by several workers, each text by the worker that its shard belongs to.

The result of a text is a function of that text alone, bit for bit (PRIVACY §4.2 point 1, §3). Machines round
differently, so the worker of a text must not depend on the other texts, on their order, or on the workers' speed: the
shard of a text is a keyed hash of the text, of a fixed public number of shards, and the worker of a shard is a public
rule (`tasks.workers.shard_map`). Texts of a worker that is lost are mapped again by the others. Results come back in
the order of the texts, whenever they were ready.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tasks.common.progress import Progress
from tasks.inference.embeddings.worker_environment import WorkerEnvironment, WorkerSpec
from tasks.inference.network.language_model import LanguageModel
from tasks.workers.pool import Channel, Runner
from tasks.workers.shard_map import ShardMap, TextShards

Item = TypeVar("Item")

Tool: TypeAlias = tuple[WorkerEnvironment, Callable[[Sequence[str]], Sequence[Any]]]
"""Environment of a worker, and a function of texts that returns one result for each, independent of the others."""

PIECE = 256
"""Texts that a worker is given at once."""


class WorkerSet(Protocol):
    """Workers that tools are made on: their places, and the backend that starts them."""

    @property
    def load(self) -> Callable[[str], LanguageModel]:
        """Loads the model on a device, in the worker."""

    @property
    def places(self) -> tuple[WorkerSpec, ...]:
        """Specifications of the workers."""

    @property
    def runner(self) -> Runner:
        """Starts them."""


@dataclass
class ParallelMap(Generic[Item]):
    """Workers that are started with the first text, or by `begin`, and wait for more; they end with their runner.

    Attributes:
        makes: for each worker what makes its tool, there.
        kit: what each of them must have.
        shards: says which worker has a text.
    """

    runner: Runner
    makes: Sequence[Callable[[], Tool]]
    kit: WorkerEnvironment
    shards: TextShards
    _started: ShardMap | None = field(default=None, init=False, repr=False)

    def __call__(self, texts: Sequence[str], progress: Progress = lambda done, of: None) -> list[Item]:
        """Return one result for each text, in their order.

        Args:
            progress: called with the number of texts done and their total.

        Raises:
            WorkerDied: the last worker ended without a message.
            WorkerDiffers: a worker has other code, libraries or weights.
            AlmonerError: as a worker was refused.
        """
        if not texts:
            return []
        results: dict[int, Item] = {}
        shards = [self.shards.of(text) for text in texts]
        for places, made in self._map().map(shards, PIECE, lambda places: [texts[place] for place in places]):
            results.update(zip(places, made, strict=True))
            progress(len(results), len(texts))
        return [results[place] for place in range(len(texts))]

    def begin(self) -> None:
        """Start the workers now, so that a refusal on one of their machines comes before anything is paid."""
        self._map()

    def _map(self) -> ShardMap:
        if self._started is None:
            pool = self.runner.start([partial(serve_texts, make) for make in self.makes])
            for kit in pool.receive_all():
                self.kit.require_same(kit)
            self._started = ShardMap(pool, self.shards.count)
        return self._started


def spread_of(
    workers: WorkerSet, name: str, device: str, shards: TextShards, make: Callable[..., Tool]
) -> ParallelMap[Any]:
    """Return a map over workers with a tool of this name; `make` takes its place and whether it is another machine."""
    elsewhere = workers.runner.elsewhere
    makes = [partial(make, place, elsewhere) for place in workers.places]
    return ParallelMap(workers.runner, makes, WorkerEnvironment.of_process((name,), device, elsewhere), shards)


def serve_texts(make: Callable[[], Tool], line: Channel) -> None:
    """Serve as a worker until the connection ends."""
    kit, function = make()
    texts = line.request(kit)
    while True:
        texts = line.request(list(function(texts)))
