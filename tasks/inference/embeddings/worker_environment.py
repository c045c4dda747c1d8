"""Environment of a worker and its share of the machine, exchanged before the worker receives any text.

A release is approved for one code, one model and one kind of device. A worker on this machine has them from the run;
a worker on another machine must declare them, or an approval would be used for something else.
"""

import platform
import socket
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from models_db.errors import EnvironmentProblem
from tasks.common.code_version import code_digest, library_versions
from tasks.inference.catalogue.devices import choose_device, use_threads
from tasks.inference.engine.memory import memory_budget


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
        environment = cls(tuple(model), torch.device(device).type)
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
                raise WorkerDiffers(part.name)


@dataclass(frozen=True)
class MemoryShare:
    """A worker's share of its machine.

    Attributes:
        host, device: which machine and which device.
        memory: bytes for keys and values.
        threads: on a CPU.
    """

    host: str
    device: str
    memory: int
    threads: int


def settle(device: str, threads: int | None, elsewhere: bool) -> str:
    """Select the device of this worker and return it; a remote worker finds its own.

    Raises:
        UnknownDevice, DeviceMissing: there is none.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    return str(choose_device(device)) if elsewhere else device


def room_here(device: str, memory: int | None, threads: int | None) -> MemoryShare:
    """Return the share that was set for this worker; defaults are those of the machine."""
    room = memory_budget(torch.device(device)) if memory is None else memory
    return MemoryShare(socket.gethostname(), device, room, use_threads() if threads is None else threads)


def shared(rooms: Sequence[MemoryShare]) -> list[MemoryShare]:
    """Return the shares of remote workers, dividing memory and threads among those on one machine.

    Each worker reported the whole machine; the division depends on public numbers alone.
    """
    devices, hosts = [(room.host, room.device) for room in rooms], [room.host for room in rooms]
    return [
        replace(
            room,
            memory=room.memory // devices.count((room.host, room.device)),
            threads=max(1, room.threads // hosts.count(room.host)),
        )
        for room in rooms
    ]


class WorkerDiffers(EnvironmentProblem):
    """A worker's environment differs from the run's."""

    def __init__(self, part: str) -> None:
        super().__init__(
            f"A worker has another {part} than this run, which was approved for its own.",
            "Install the same almoner, libraries and models on all machines, and use one kind of device.",
            {"part": part},
        )


@dataclass(frozen=True)
class WorkerSpec:
    """Device and limits of one worker.

    Attributes:
        device: `cpu` or `cuda:N`; of a worker elsewhere also `auto` and `cuda`.
        memory: bytes for keys and values. Public: measured before any private text was read, never by a worker
            whose neighbours' rows would show in it. None if the run is not on the worker's machine: then the
            worker measures before any of them has been told a text.
        threads: on a CPU; None for its own choice.
    """

    device: str
    memory: int | None = None
    threads: int | None = None
