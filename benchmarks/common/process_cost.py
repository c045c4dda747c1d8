"""What a whole process takes: processor seconds, wall seconds and peak memory, as the kernel tells them at its end."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """Processor seconds, user and system, with those of the processes that it waited for; wall seconds; MiB."""

    processor: float
    wall: float
    peak_mib: float


def cost_of_process(
    command: Sequence[str | Path], environment: Mapping[str, str], *, folder: Path | None = None, code: int = 0
) -> Cost:
    """Run a process and return what it took.

    Raises:
        SystemExit: it ended with another exit code; what it printed is shown.
    """
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            out.seek(0)
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}, not with {code}\n{out.read()}")
    kibibytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Cost(usage.ru_utime + usage.ru_stime, wall, kibibytes / 1024)
