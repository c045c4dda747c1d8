"""Memory of this machine, as its system tells it. Imports no torch."""

from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Return the bytes that programs can have now; None where the system does not tell."""
    return _read("MemAvailable")


def total_memory() -> int | None:
    """Return the bytes of memory that the machine has; None where the system does not tell."""
    return _read("MemTotal")


def _read(field: str) -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
