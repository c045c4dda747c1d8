"""Memory budget of the key-value cache, and errors for too little memory."""

import os
from collections import Counter
from collections.abc import Sequence

import torch

from models_db.errors import EnvironmentProblem, UsageError
from tasks.inference.catalogue.disk_space import size_text
from tasks.inference.catalogue.machine_memory import available_memory, total_memory

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
