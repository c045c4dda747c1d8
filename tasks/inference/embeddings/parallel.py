"""Texts mapped or embedded by several workers, each text by the worker that its shard belongs to.

The result of a text is a function of that text alone, bit for bit (PRIVACY §4.2 point 1, §3). Machines round
differently, so the worker of a text must not depend on the other texts, on their order, or on the workers' speed: the
shard of a text is a keyed hash of the text, of a fixed public number of shards, and the worker of a shard is a public
rule (`tasks.workers.pool`). Texts of a worker that is lost are mapped again by the others. Results come back in
the order of the texts, whenever they were ready.

Private units are embedded so, with the same points as in this process (`SpreadEmbedder`). Only what is read of each
unit by itself is handed out. Public texts (keywords, candidates, what was released) are few and stay here.

A release is approved for one code, one model and one kind of device. A worker on this machine has them from the run; a
worker on another machine must declare them, or an approval would be used for something else. So environment and share
of the machine are exchanged before a worker receives any text.
"""

import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from models_db.errors import EnvironmentProblem
from tasks.common.extensions import code_digest, library_versions
from tasks.common.progress import Progress
from tasks.inference.catalogue.devices import choose_devices, name_of, use_threads
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import spread_budget
from tasks.text.public_models import Embedder, Pieces
from tasks.workers.pool import Channel, Runner, ShardMap, TextShards


@dataclass(frozen=True)
class WorkerEnvironment:
    """The factors that decide a result, text and chance aside.

    Attributes:
        model: names the weights, the precision and everything else that a body was made with.
        device: `cpu` or `cuda`.
        code, libraries, python: empty on the run's own machine, where they are the run's.
    """

    model: tuple[str, ...]
    device: str
    code: str = ""
    libraries: tuple[tuple[str, str], ...] = ()
    python: str = ""

    @classmethod
    def of_process(cls, model: Sequence[str], device: str, elsewhere: bool) -> "WorkerEnvironment":
        """Return the environment of this process; complete only if a worker is `elsewhere`."""
        environment = cls(tuple(model), device.partition(":")[0])  # a group is of one kind
        if not elsewhere:
            return environment
        libraries = tuple(sorted(library_versions().items()))
        return replace(environment, code=code_digest(), libraries=libraries, python=platform.python_version())

    def require_same(self, other: "WorkerEnvironment") -> None:
        """Refuse a worker with a different environment.

        Raises:
            WorkerDiffers.
        """
        for part in fields(self):
            if getattr(self, part.name) != getattr(other, part.name):
                raise EnvironmentProblem(
                    f"A worker has another {part.name} than this run, which was approved for its own.",
                    "Install the same almoner, libraries and models on all machines, and use one kind of device.",
                    {"part": part.name},
                    code="WorkerDiffers",
                )


@dataclass(frozen=True)
class MemoryShare:
    """A worker's share of its machine.

    Attributes:
        host, devices: which machine and which devices; an accelerator by a name that no other one has.
        memory: bytes for keys and values.
        threads: on a CPU.
    """

    host: str
    devices: tuple[str, ...]
    memory: int
    threads: int


def settle(device: str, threads: int | None, elsewhere: bool) -> str:
    """Select the device of this worker, or its group, and return the name; a remote worker finds its own.

    Raises:
        UnknownDevice, DeviceMissing: there is none.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    return name_of(choose_devices(device)) if elsewhere else device


def room_here(layer_devices: Sequence[torch.device], memory: int | None, threads: int | None) -> MemoryShare:
    """Return the share that was set for this worker; defaults are those of the machine.

    Args:
        layer_devices: the device of each layer of the loaded model.
    """
    room = spread_budget(layer_devices) if memory is None else memory
    devices = tuple(map(_name_of_its_own, dict.fromkeys(layer_devices)))
    return MemoryShare(socket.gethostname(), devices, room, use_threads() if threads is None else threads)


def _name_of_its_own(device: torch.device) -> str:
    """Return a name that tells a device from all others of its machine.

    `cuda:0` is another GPU in each worker of a cluster that shows every worker a GPU of its own.
    """
    return f"GPU {torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else str(device)


def shared(rooms: Sequence[MemoryShare]) -> list[MemoryShare]:
    """Return the shares of remote workers, dividing memory among those of one device, threads among those of a machine.

    Each worker reported the whole machine; the division depends on public numbers alone.
    """
    hosts = [room.host for room in rooms]

    def sharers(room: MemoryShare) -> int:
        return sum(room.host == other.host and not set(room.devices).isdisjoint(other.devices) for other in rooms)

    return [
        replace(
            room,
            memory=room.memory // sharers(room),
            threads=max(1, room.threads // hosts.count(room.host)),
        )
        for room in rooms
    ]


@dataclass(frozen=True)
class WorkerSpec:
    """Device and limits of one worker.

    Attributes:
        device: `cpu`, `cuda:N` or `cuda:A-B`; of a worker elsewhere also `auto` and `cuda`.
        memory: bytes for keys and values. Public: measured before any private text was read, never by a worker
            whose neighbours' rows would show in it. None if the worker measures them, once it has loaded the model
            and before any of them has been told a text: one on another machine, or with accelerators of its own.
        threads: on a CPU; None for its own choice.
    """

    device: str
    memory: int | None = None
    threads: int | None = None


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
