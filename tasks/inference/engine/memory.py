"""Memory: the budget of the key-value cache, and what a model needs for a request beside what is free.

What a model needs on a disk is told with it. Imports torch and no transformers.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import torch

from models_db.errors import EnvironmentProblem, UsageError
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import can_pack, every_accelerator, is_available, keeps_bfloat16, name_of
from tasks.inference.catalogue.model_check import (
    PRECISIONS,
    Machine,
    NetworkShape,
    Precision,
    RowSizes,
    available_memory,
    layers_of_devices,
    total_memory,
    usable_bytes,
)
from tasks.inference.catalogue.model_store import free_disk, size_text

LARGEST_DEFAULT = 4 * 2**30
"""Default limit in bytes, on a CPU. A larger batch is hardly faster, and other programs need memory, too."""

_SETTING = "ALMONER_MEMORY"
# The share of free memory that is taken by default: logits and scratch need room as well. An accelerator's is free for
# this process, and the rest of an H100 with an 8B model is twenty times what a step took beside keys and values.
_SHARE = {"cpu": 0.5, "cuda": 0.75}


def not_enough_memory(device: str) -> EnvironmentProblem:
    """Return the error of a memory that does not hold one generation."""
    return EnvironmentProblem(
        f"The memory of {device} does not hold the rows of one generation.",
        "Lower references, max_reference_tokens or max_new_tokens, or free memory.",
        {"device": device},
        code="NotEnoughMemory",
    )


def model_too_large(
    name: str, device: str, precision: str, needed: int, free: int, *, part: bool = False
) -> EnvironmentProblem:
    """Return the error of a model that does not fit into the free memory; `part`: its layers on one device do not."""
    return EnvironmentProblem(
        f"The model {name!r} does not fit into the memory of {device}: its weights {'there ' * part}take "
        f"{size_text(needed)} in {precision}, and {size_text(free)} are free.",
        "Free memory, request another precision, or choose a smaller model. `almoner models check` says what each "
        "precision needs, and whether the layers fit when they are spread over several devices.",
        {"model": name, "device": device, "precision": precision, "needed": needed, "free": free},
        code="ModelTooLarge",
    )


class MemoryRanOut(EnvironmentProblem):
    """Memory was short while generations were under way.

    How many rows there are is private, so the engine does not go on in another way: the attempt ends.
    """

    def __init__(self, device: str) -> None:
        super().__init__(
            f"The memory of {device} ran out while texts were being written.",
            "Run it again: drawn tokens are kept, nothing is paid twice, and half as many texts are written at once. "
            f"Free memory or lower {_SETTING} if it happens often.",
            {"device": device},
        )


def memory_budget(device: torch.device) -> int:
    """Return the bytes for keys and values: ALMONER_MEMORY, or a share of the free memory.

    That is half on a CPU, up to LARGEST_DEFAULT, and three quarters on an accelerator.

    An accelerator's memory is there for models, and its speed grows with the rows of a pass. All of that is public if
    it is measured before any private text is loaded.

    Raises:
        BadMemory: the setting is no positive integer.
    """
    if (configured := asked_memory()) is not None:
        return configured
    share = int(free_memory(device) * _SHARE.get(device.type, _SHARE["cpu"]))
    return share if device.type == "cuda" else min(LARGEST_DEFAULT, share)


def spread_budget(layer_devices: Sequence[torch.device]) -> int:
    """Return the bytes for the keys and values of all layers, each of which is on its device.

    Device d has b_d bytes (`memory_budget`) and n_d of L layers, and each layer takes as much as the others: so the
    layers together have L min_d(b_d / n_d). ALMONER_MEMORY is for all devices together.

    Args:
        layer_devices: not empty.

    Raises:
        BadMemory: as `memory_budget`.
    """
    if (configured := asked_memory()) is not None:
        return configured
    counts = Counter(layer_devices)
    return min(memory_budget(device) * len(layer_devices) // count for device, count in counts.items())


def asked_memory() -> int | None:
    """ALMONER_MEMORY in bytes; None if it is not set.

    Raises:
        BadMemory: it is no positive integer.
    """
    value = os.environ.get(_SETTING, "")
    if value and (not value.isdecimal() or int(value) == 0):
        raise UsageError(
            f"{_SETTING}={value!r} is not a positive number of bytes.", "Unset it, or give a number.", code="BadMemory"
        )
    return int(value) if value else None


def free_memory(device: torch.device) -> int:
    """Return the bytes that can be had on `device` now; LARGEST_DEFAULT twice where the system does not tell.

    On an accelerator, what torch has reserved for this process and does not use is free as well.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    available = available_memory()
    return 2 * LARGEST_DEFAULT if available is None else available


def all_memory(device: torch.device) -> int | None:
    """Return the bytes of memory of `device`, in use or free; None where the system does not tell."""
    return int(torch.cuda.mem_get_info(device)[1]) if device.type == "cuda" else total_memory()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether torch or Python failed for want of memory; the CPU allocator of torch says so in words only."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


@dataclass(frozen=True)
class Requirements:
    """All in bytes.

    Attributes:
        device: the device that was asked, or the group of devices.
        weights: the loaded weights, for each precision.
        generation: keys and values of one generation, for each precision.
        generations_at_once: how many of them the memory for keys and values holds.
        free_memory: memory that can be had now, on all devices of a group together.
        usable_memory: of that, what a model may take in each precision (`layer_layout.usable_bytes`).
        download: size of the weights' files; `free_disk` beside it.
    """

    device: str
    sizes: RowSizes
    weights: Mapping[Precision, int]
    generation: Mapping[Precision, int]
    generations_at_once: Mapping[Precision, int]
    free_memory: int
    usable_memory: Mapping[Precision, int]
    download: int
    free_disk: int

    def fits(self, precision: Precision) -> bool:
        """Return whether the weights and one generation fit into the free memory."""
        return self.weights[precision] + self.generation[precision] <= self.usable_memory[precision]


def requirements_of(shape: NetworkShape, devices: Sequence[torch.device], sizes: RowSizes) -> Requirements:
    """Return the memory and disk space of a network of this shape on `devices` for a request of these sizes.

    Raises:
        MoreDevicesThanLayers: it cannot be spread over so many.
    """
    home, free = devices[0], [free_memory(device) for device in devices]
    generation = {
        name: shape.generation_bytes(name, *astuple(sizes), widened=not keeps_bfloat16(home)) for name in PRECISIONS
    }
    counts = {name: layer_counts(shape, devices, name) for name in PRECISIONS}
    budgets = {name: spread_budget(_each_layer(devices, counts[name])) for name in PRECISIONS}
    return Requirements(
        device=name_of(devices),
        sizes=sizes,
        weights={name: weight_bytes_on(home, shape, name) for name in PRECISIONS},
        generation=generation,
        generations_at_once={name: max(1, budgets[name] // generation[name]) for name in PRECISIONS},
        free_memory=sum(free),
        usable_memory={name: usable_bytes(counts[name], _home_bytes(shape, home, name), free) for name in PRECISIONS},
        download=round(shape.parameters * shape.stored_bytes_per_number),
        free_disk=free_disk(model_store.models_folder()),
    )


def machine_of(devices: Sequence[torch.device]) -> Machine:
    """Return what decides the memory of models on `devices`."""
    home = devices[0]
    memories = [all_memory(device) for device in devices] if home.type == "cuda" else []
    return Machine(
        device=name_of(devices),
        precisions=tuple(name for name in PRECISIONS if all(is_available(name, device) for device in devices)),
        accelerators=tuple(memory for memory in memories if memory is not None),
        packed=can_pack(home),
        widened=not keeps_bfloat16(home),
    )


def group_of_machine() -> Machine | None:
    """Return all accelerators of this machine together; None where it has not several."""
    devices = every_accelerator()
    return machine_of(devices) if len(devices) > 1 else None


def layer_devices(
    shape: NetworkShape, devices: Sequence[torch.device], precision: Precision
) -> tuple[torch.device, ...]:
    """Return the device of each layer of a network of this shape, in the order of `devices`.

    Raises:
        MoreDevicesThanLayers.
    """
    return _each_layer(devices, layer_counts(shape, devices, precision))


def layer_counts(shape: NetworkShape, devices: Sequence[torch.device], precision: Precision) -> tuple[int, ...]:
    """Return how many layers each of `devices` has; their total memory decides, not what is free of it.

    Raises:
        MoreDevicesThanLayers.
    """
    if len(devices) == 1:
        return (shape.layers,)
    # A system that does not tell its memory has one kind of memory for all, so any number stands for it.
    memories = [2**40 if (memory := all_memory(device)) is None else memory for device in devices]
    return layers_of_devices(shape.layers, _home_bytes(shape, devices[0], precision), memories)


def _each_layer(devices: Sequence[torch.device], counts: Sequence[int]) -> tuple[torch.device, ...]:
    return tuple(device for device, count in zip(devices, counts, strict=True) for _ in range(count))


def _home_bytes(shape: NetworkShape, home: torch.device, precision: Precision) -> int:
    return shape.home_bytes(precision, packed=can_pack(home))


def weight_bytes_on(device: torch.device, shape: NetworkShape, precision: Precision) -> int:
    """Return the bytes of the weights once they are loaded, on `device` or on a group of its kind."""
    return shape.weight_bytes(precision, packed=can_pack(device), widened=not keeps_bfloat16(device))


@contextmanager
def require_memory(
    name: str, shape: NetworkShape, devices: Sequence[torch.device], precision: Precision
) -> Iterator[None]:
    """Load a model inside; nothing is read where a device's part of the weights is larger than its free memory.

    Raises:
        ModelTooLarge: it is, or memory ran out inside.
        MoreDevicesThanLayers: the model cannot be spread over so many devices.
    """
    parts = _weight_parts(shape, devices, precision)
    shortest = min(zip(devices, parts, map(free_memory, devices), strict=True), key=lambda part: part[2] - part[1])
    device, needed, free = shortest
    refusal = model_too_large(name, str(device), precision, needed, free, part=len(devices) > 1)
    if needed > free:
        raise refusal
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise refusal from error
        raise


def _weight_parts(shape: NetworkShape, devices: Sequence[torch.device], precision: Precision) -> list[int]:
    """Return the bytes of the weights on each device, rounded up."""
    total, home = weight_bytes_on(devices[0], shape, precision), _home_bytes(shape, devices[0], precision)
    counts = layer_counts(shape, devices, precision)
    parts = [-(-(total - home) * count // shape.layers) for count in counts]
    return [home + parts[0], *parts[1:]]
