"""Memory budget of the key-value cache, and errors for too little memory."""

import os

import torch

from models_db.errors import EnvironmentProblem, UsageError
from tasks.inference.catalogue.disk_space import size_text
from tasks.inference.catalogue.machine_memory import available_memory, total_memory

LARGEST_DEFAULT = 4 * 2**30
"""Default limit in bytes, on a CPU. A larger batch is hardly faster, and other programs need memory, too."""

_SETTING = "ALMONER_MEMORY"
# The share of free memory that is taken by default: weights, logits and scratch need room as well.
_SHARE = 0.5


class BadMemory(UsageError):
    """ALMONER_MEMORY is not a number of bytes."""

    def __init__(self, value: str) -> None:
        super().__init__(f"{_SETTING}={value!r} is not a positive number of bytes.", "Unset it, or give a number.")


class NotEnoughMemory(EnvironmentProblem):
    """The memory does not hold one generation."""

    def __init__(self, device: str) -> None:
        super().__init__(
            f"The memory of {device} does not hold the rows of one generation.",
            "Lower references, max_reference_tokens or max_new_tokens, or free memory.",
            {"device": device},
        )


class ModelTooLarge(EnvironmentProblem):
    """A model does not fit into the memory that is free."""

    def __init__(self, name: str, device: str, precision: str, needed: int, free: int) -> None:
        super().__init__(
            f"The model {name!r} does not fit into the memory of {device}: its weights take {size_text(needed)} "
            f"in {precision}, and {size_text(free)} are free.",
            "Free memory, request another precision (`almoner models check` says what each needs), or choose a smaller "
            "model.",
            {"model": name, "device": device, "precision": precision, "needed": needed, "free": free},
        )


class MemoryRanOut(EnvironmentProblem):
    """Memory was short while generations were under way.

    How many rows there are is private, so the engine does not go on in another way: the attempt ends
    (docs/decisions/0066).
    """

    def __init__(self, device: str) -> None:
        super().__init__(
            f"The memory of {device} ran out while texts were being written.",
            "Run it again: drawn tokens are kept, nothing is paid twice, and half as many texts are written at once. "
            f"Free memory or lower {_SETTING} if it happens often.",
            {"device": device},
        )


def memory_budget(device: torch.device) -> int:
    """Return the bytes for keys and values: ALMONER_MEMORY, or half of the free memory; on a CPU up to LARGEST_DEFAULT.

    An accelerator's memory is there for models, and its speed grows with the rows of a pass. All of that is public if
    it is measured before any private text is loaded.

    Raises:
        BadMemory: the setting is no positive integer.
    """
    if (configured := asked_memory()) is not None:
        return configured
    half = int(free_memory(device) * _SHARE)
    return half if device.type == "cuda" else min(LARGEST_DEFAULT, half)


def asked_memory() -> int | None:
    """ALMONER_MEMORY in bytes; None if it is not set.

    Raises:
        BadMemory: it is no positive integer.
    """
    value = os.environ.get(_SETTING, "")
    if value and (not value.isdecimal() or int(value) == 0):
        raise BadMemory(value)
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
