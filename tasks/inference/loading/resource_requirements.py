"""Memory and disk space that a model needs for a request, beside those free on this machine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import torch

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import every_accelerator, name_of
from tasks.inference.catalogue.disk_space import free_disk
from tasks.inference.catalogue.layer_layout import layers_of_devices, usable_bytes
from tasks.inference.catalogue.model_check import Machine, NetworkShape, RowSizes
from tasks.inference.catalogue.precision import PRECISIONS, Precision
from tasks.inference.engine.memory import all_memory, free_memory, is_out_of_memory, model_too_large, spread_budget
from tasks.inference.network.capabilities import can_pack, is_available, keeps_bfloat16


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
