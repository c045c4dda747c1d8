"""Disk space for models: what is free, and the refusal where it is too little. Imports no torch."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from models_db.errors import EnvironmentProblem

_WORDS: Final = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 122")
"""Words by which pip, the hub's client and safetensors tell a full disk; their errors have no number of the system."""


def _model_disk_full(name: str, folder: Path, needed: int, free: int) -> EnvironmentProblem:
    left = f"{size_text(free)} are free"
    room = f"{size_text(needed)} are needed, and {left}" if needed else f"{left}, and it needs more"
    return EnvironmentProblem(
        f"The disk of {folder} has no room for the model {name!r}: {room}.",
        "Free disk space, or name a folder on another disk: ALMONER_MODELS, or HF_HOME for models of Hugging Face.",
        {"model": name, "folder": str(folder), "needed": needed or None, "free": free},
        code="ModelDiskFull",
    )


def free_disk(folder: Path) -> int:
    """Return the bytes that are free on the disk of a folder, which need not be there yet."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.is_dir())).free


@contextmanager
def require_disk(name: str, folder: Path, needed: int) -> Iterator[None]:
    """Fetch or make a model inside.

    Args:
        folder: on whose disk it will be.
        needed: bytes that this takes at most; 0 if that is not known.

    Raises:
        ModelDiskFull: less is free, or the disk became full inside.
    """
    if needed > (free := free_disk(folder)):
        raise _model_disk_full(name, folder, needed, free)
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            raise _model_disk_full(name, folder, needed, free_disk(folder)) from error
        raise


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, says that a disk is full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(each in str(error) for each in _WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def size_text(number: int) -> str:
    """Return bytes in words."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
