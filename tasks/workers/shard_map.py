"""Map over shards by workers: each item by the worker that its shard belongs to, and again if that worker is lost.

Only for functions of the item alone, which may be computed twice: a draw is none (docs/decisions/0059, 0110). The
worker of an item follows from its shard, from the public numbers of shards and workers, and from the lost workers;
never from other items, or from the workers' speed. Machines round differently, so an item must not be moved to another
one by its neighbours (PRIVACY §4.2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.common.progress import tell
from tasks.workers.pool import Request, WorkerDied, WorkerPool

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
