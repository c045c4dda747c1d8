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
from tasks.inference.catalogue.devices import choose_devices, name_of, use_threads
from tasks.inference.engine.memory import spread_budget


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
