"""Parallel encoder of private units on the workers of a run, with the same points as in this process.

Only what is read of each unit by itself is handed out. Public texts (keywords, candidates, what was released) are few
and stay here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tasks.common.progress import Progress
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel_map import ParallelMap, Tool, WorkerSet, spread_of
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.embeddings.worker_environment import WorkerEnvironment, WorkerSpec, settle
from tasks.text.interfaces import Embedder, Pieces
from tasks.workers.shard_map import TextShards


@dataclass(frozen=True)
class SpreadEmbedder:
    """An embedder whose `points_of` is worked out by others; a call is this process's own.

    Attributes:
        embed: the same one, here.
        spread: makes rows of length 1.
    """

    embed: Embedder
    spread: ParallelMap[NDArray[np.float32]]

    @property
    def name(self) -> str:
        """The embedder's."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, width]."""
        return self.embed(texts)

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the same pieces as the embedder."""
        return self.embed.pieces(texts)

    def points_elsewhere(self, texts: Sequence[str], progress: Progress) -> NDArray[np.float32]:
        """Return float32 [n, width], rows of length 1: asked for by `points_of`."""
        rows = self.spread(texts, progress)
        return np.stack(rows) if rows else np.zeros((0, self.embed([]).shape[1]), np.float32)


def spread_embedder(
    workers: WorkerSet | None, embed: Embedder, model: str, device: str, shards: TextShards
) -> Embedder:
    """`embed` for private units: by workers, if there are some.

    Args:
        model: the name it is loaded by.
        device: where the run's own embedder is.
        shards: says which worker has a text.
    """
    if workers is None:
        return embed
    return SpreadEmbedder(embed, spread_of(workers, embed.name, device, shards, partial(points_tool, model)))


def points_tool(model: str, place: WorkerSpec, elsewhere: bool) -> Tool:
    """Points by an embedder of the worker's own; runs on a worker."""
    device = settle(place.device, place.threads, elsewhere)
    embed = load_embedder(model, device)
    return WorkerEnvironment.of_process((embed.name,), device, elsewhere), lambda texts: list(points_of(embed, texts))
