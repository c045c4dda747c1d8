"""Private documents of a corpus on workers, a shard at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tasks.common.progress import Progress
from tasks.inference.embeddings.parallel import Tool, WorkerEnvironment, serve_texts
from tasks.workers.pool import Runner, ShardMap

_CPU = "cpu"


@dataclass(frozen=True)
class ShardedDocuments:
    """Implements `subject.DocumentMap`: a worker has one shard at a time, and this process as many as it has workers.

    Attributes:
        runner: starts workers.
        workers: how many.
        shards: the public number of shards.
        read: reads the documents of a shard. PRIVATE.
        progress: called with the number of shards done, and of all shards.
    """

    runner: Runner
    workers: int
    shards: int
    read: Callable[[int], Sequence[str]] = field(repr=False)
    progress: Progress

    def __call__(self, make: Callable[[], Callable[[Sequence[str]], Any]]) -> Iterator[Any]:
        """Yield the result for each shard.

        Raises:
            WorkerDied: the last worker ended without a message.
            WorkerDiffers: a worker has other code or libraries.
            AlmonerError: as a worker was refused.
        """
        elsewhere = self.runner.elsewhere
        work = partial(serve_texts, partial(_tool, make, elsewhere))
        with self.runner.start([work] * self.workers) as pool:
            own = WorkerEnvironment.of_process((), _CPU, elsewhere)
            for kit in pool.receive_all():
                own.require_same(kit)
            answers = ShardMap(pool, self.shards).map(range(self.shards), 1, lambda shard: self.read(shard[0]))
            for done, (_, (result,)) in enumerate(answers, 1):
                self.progress(done, self.shards)
                yield result


def _tool(make: Callable[[], Callable[[Sequence[str]], Any]], elsewhere: bool) -> Tool:
    """Return the tool that a worker makes: its function gives one result for all documents of a call."""
    function = make()
    return WorkerEnvironment.of_process((), _CPU, elsewhere), lambda documents: [function(documents)]
