"""Memory and disk space that a model needs for a request, beside those free on this machine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import torch

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.disk_space import free_disk
from tasks.inference.catalogue.model_check import Machine, NetworkShape, RowSizes
from tasks.inference.catalogue.precision import PRECISIONS, Precision
from tasks.inference.engine.memory import ModelTooLarge, all_memory, free_memory, is_out_of_memory, memory_budget
from tasks.inference.network.capabilities import can_pack, is_available, keeps_bfloat16


@dataclass(frozen=True)
class Requirements:
    """All in bytes.

    Attributes:
        device: the device that was asked.
        weights: the loaded weights, for each precision.
        generation: keys and values of one generation, for each precision.
        generations_at_once: how many of them the memory for keys and values holds.
        free_memory: memory that can be had on the device now.
        download: size of the weights' files; `free_disk` beside it.
    """

    device: str
    sizes: RowSizes
    weights: Mapping[Precision, int]
    generation: Mapping[Precision, int]
    generations_at_once: Mapping[Precision, int]
    free_memory: int
    download: int
    free_disk: int

    def fits(self, precision: Precision) -> bool:
        """Return whether the weights and one generation fit into the free memory."""
        return self.weights[precision] + self.generation[precision] <= self.free_memory


def requirements_of(shape: NetworkShape, device: torch.device, sizes: RowSizes) -> Requirements:
    """Return the memory and disk space of a network of this shape on `device` for a request of these sizes."""
    widened = not keeps_bfloat16(device)
    generation = {name: shape.generation_bytes(name, *astuple(sizes), widened=widened) for name in PRECISIONS}
    budget = memory_budget(device)
    return Requirements(
        device=str(device),
        sizes=sizes,
        weights={name: weight_bytes_on(device, shape, name) for name in PRECISIONS},
        generation=generation,
        generations_at_once={name: max(1, budget // generation[name]) for name in PRECISIONS},
        free_memory=free_memory(device),
        download=round(shape.parameters * shape.stored_bytes_per_number),
        free_disk=free_disk(model_store.models_folder()),
    )


def machine_of(device: torch.device) -> Machine:
    """Return what decides the memory of models on `device`."""
    accelerator = all_memory(device) if device.type == "cuda" else None
    return Machine(
        device=str(device),
        precisions=tuple(precision for precision in PRECISIONS if is_available(precision, device)),
        accelerator_memory=accelerator,
        packed=can_pack(device),
        widened=not keeps_bfloat16(device),
    )


def weight_bytes_on(device: torch.device, shape: NetworkShape, precision: Precision) -> int:
    """Return the bytes of the weights once they are loaded on `device`."""
    return shape.weight_bytes(precision, packed=can_pack(device), widened=not keeps_bfloat16(device))


@contextmanager
def require_memory(name: str, shape: NetworkShape, device: torch.device, precision: Precision) -> Iterator[None]:
    """Load a model inside; nothing is read where the weights alone are larger than the free memory.

    Raises:
        ModelTooLarge: they are, or memory ran out inside.
    """
    needed, free = weight_bytes_on(device, shape, precision), free_memory(device)
    refusal = ModelTooLarge(name, str(device), precision, needed, free)
    if needed > free:
        raise refusal
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise refusal from error
        raise
