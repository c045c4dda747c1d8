"""PostgreSQL for a Prefect server, of a test's own: it can be killed and started again.

Prefect needs the extension pg_trgm, which the wheel that ledgers are tested with does not have. Debian's PostgreSQL
has it.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.support import PATIENCE, free_port, require

INSTALLED = Path("/usr/lib/postgresql")
EXTENSIONS = Path("/usr/share/postgresql")
OWNER = "postgres"
"""Whose processes they are where the tests run as root, as which PostgreSQL does not."""


class PrefectDatabase:
    """One server with one database, in a folder."""

    def __init__(self, folder: Path) -> None:
        versions = sorted(path.parents[1].name for path in EXTENSIONS.glob("*/extension/pg_trgm.control"))
        require(versions, "no PostgreSQL of the system has the extension pg_trgm (Debian: postgresql)")
        self.folder, self.port, self.programs = folder, free_port(), INSTALLED / versions[-1] / "bin"
        folder.mkdir(mode=0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
        self._run("initdb", "--auth=trust", f"--username={OWNER}", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        """Its address as Prefect takes it."""
        return f"postgresql+asyncpg://{OWNER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it; return when it answers, after the recovery that a crash makes necessary."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self._run("pg_ctl", "start", "--wait", f"--timeout={PATIENCE:.0f}", "--silent", f"--log={self.folder}/log",
                  "-o", options)  # fmt: skip

    def kill(self) -> None:
        """End the postmaster and every session at once, as a machine does that loses its power."""
        postmaster = psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, PATIENCE)
        assert alive == []

    def remove(self) -> None:
        """Stop it if it runs, and delete its folder."""
        self._run("pg_ctl", "stop", "--mode=immediate", "--silent", check=False)
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        command: Sequence[str] = (str(self.programs / program), f"--pgdata={self.folder}", *arguments)
        owner = OWNER if os.geteuid() == 0 else None
        subprocess.run(command, user=owner, cwd="/", stdout=subprocess.DEVNULL, check=check)
