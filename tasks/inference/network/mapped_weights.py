"""Memory of weights in a mapped file: pages that were read once need not stay resident.

The system counts the pages of a mapped file as memory of the process until it needs them, and keeps them once for all
processes. A layer that has made a packed copy of its weights says so, and the peak of loading is that of the copies
alone.
"""

import ctypes
import mmap
import os
import stat
from pathlib import Path

from torch import Tensor

_MAPPINGS = Path("/proc/self/maps")
_WEIGHTS = ".safetensors"
_BLOBS = "/blobs/"
"""Folder of Hugging Face's cache where the files are that a snapshot links to."""


def release_pages(weight: Tensor) -> None:
    """Let the system forget the pages of `weight`, if it lies in a mapped file of weights, which nothing writes to.

    A later read gets the same numbers from the file. Other memory is left alone, and so is everything on
    systems without Linux's list of mappings.
    """
    start = -(-weight.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (weight.data_ptr() + weight.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if weight.device.type == "cpu" and start < end and _file_at(start, end) is not None:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def file_of(weight: Tensor) -> Path | None:
    """Return the file of weights in which `weight` is mapped; None for other memory, and where that cannot be told."""
    return _file_at(weight.data_ptr(), weight.data_ptr() + weight.nbytes) if weight.device.type == "cpu" else None


def is_protected(file: Path) -> bool:
    """Return whether only this user and the system's administrator can write to a file."""
    try:
        status = file.stat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def _file_at(start: int, end: int) -> Path | None:
    """Return the one file of weights that is mapped to all of these addresses."""
    if not _MAPPINGS.is_file():
        return None
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, _, rest = line.partition(" ")
        first, _, last = addresses.partition("-")
        if int(first, 16) <= start and end <= int(last, 16):
            path = rest[rest.find("/") :] if "/" in rest else ""
            return Path(path) if path.endswith(_WEIGHTS) or _BLOBS in path else None
    return None
